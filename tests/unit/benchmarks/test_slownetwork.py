"""A slow network of this kernel's: how long packets take in it, and that connections survive losses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.slownetwork import SlowNetwork, disk_properties, network

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="needs root and TUN")

ECHO = """
import socket, threading, time

server = socket.create_server(("127.0.0.1", 0))

def answer():
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)

threading.Thread(target=answer, daemon=True).start()
client = socket.create_connection(server.getsockname())
times = []
for _ in range(%d):
    began = time.monotonic()
    client.sendall(b"x")
    assert client.recv(1) == b"x"
    times.append(time.monotonic() - began)
print(min(times), max(times))
"""


RESOLVE = """
import socket

print(socket.getaddrinfo("127.0.0.1", 9092, flags=socket.AI_ADDRCONFIG)[0][4])
"""


def printed(slow, program):
    """What a program prints in a slow network."""
    run = (
        "import sys; from benchmarks.slownetwork import SlowNetwork, run_in; "
        f"sys.exit(run_in(SlowNetwork{tuple(slow)}, [sys.executable, '-c', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", run, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measure(slow, packets):
    """The shortest and the longest of some round trips, in seconds."""
    return tuple(map(float, printed(slow, ECHO % packets).split()))


def test_a_packet_and_its_answer_take_the_round_trip():
    shortest, _ = measure(SlowNetwork(0.02, 0.0), 5)
    assert shortest >= 0.02


def test_what_is_lost_is_sent_again():
    shortest, longest = measure(SlowNetwork(0.002, 0.1), 40)
    assert longest > shortest + 0.01


def test_clients_that_resolve_only_what_the_machine_can_reach_resolve_loopback():
    assert "127.0.0.1" in printed(SlowNetwork(0.002, 0.0), RESOLVE)


def test_elsewhere_nothing_is_different():
    assert (network(), disk_properties()) == ("", ({}, {}))
