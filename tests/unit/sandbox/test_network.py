"""Ports and protocol probes."""

import socket
from pathlib import Path

import pytest

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ports import HOST, free_port, is_free, require_free
from zkconsumer.sandbox.probes import four_letter_word, known_brokers


def test_free_port_is_below_the_range_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < lowest for _ in range(50))


def test_a_port_in_use_is_refused_with_a_hint() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(SandboxError, match=rf"port {port} .* for ZooKeeper: .*\(ss -ltnp 'sport = :{port}'\)"):
            require_free(port, "ZooKeeper")
    require_free(port, "ZooKeeper")


def test_a_port_without_listener_gives_no_answer() -> None:
    port = free_port()
    assert four_letter_word(port, "srvr") == ""
    assert known_brokers(port) == {}


def test_a_silent_listener_gives_no_answer() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert four_letter_word(port, "srvr", timeout_s=0.1) == ""
        assert known_brokers(port, timeout_s=0.1) == {}
