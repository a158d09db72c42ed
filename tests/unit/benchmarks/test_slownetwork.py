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


def measure(slow, packets):
    """The shortest and the longest of some round trips, in seconds."""
    run = (
        "import sys; from benchmarks.slownetwork import SlowNetwork, run_in; "
        f"sys.exit(run_in(SlowNetwork{tuple(slow)}, [sys.executable, '-c', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", run, ECHO % packets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(map(float, done.stdout.split()))


def test_a_packet_and_its_answer_take_the_round_trip():
    shortest, _ = measure(SlowNetwork(0.02, 0.0), 5)
    assert shortest >= 0.02


def test_what_is_lost_is_sent_again():
    shortest, longest = measure(SlowNetwork(0.002, 0.1), 40)
    assert longest > shortest + 0.01


def test_elsewhere_nothing_is_different():
    assert (network(), disk_properties()) == ("", ({}, {}))
