"""Requests that show whether a server serves: ZooKeeper's four-letter words, Kafka's Metadata."""

import socket
from contextlib import closing

from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.sandbox.ports import HOST
from zkconsumer.wire.brokerclient import fetch_metadata
from zkconsumer.wire.connection import BrokerConnection


def four_letter_word(port: int, word: str, timeout_s: float = 2.0) -> str:
    """Send one of ZooKeeper's four-letter words to a local port and return the answer, "" if there is none."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(word.encode("ascii"))
            answer = b""
            while received := connection.recv(65_536):
                answer += received
    except OSError:
        return ""
    return answer.decode("utf-8", "replace")


def zookeeper_mode(port: int) -> str:
    """Return ``standalone``, ``leader`` or ``follower``; "" when no ZooKeeper serves on the local port."""
    _, separator, after_mode = four_letter_word(port, "srvr").partition("Mode: ")
    return after_mode.split(maxsplit=1)[0] if separator else ""


def known_brokers(port: int, timeout_s: float = 2.0) -> dict[int, tuple[str, int]]:
    """Ask the broker on a local port for the live brokers: id to host and port; empty if it does not answer.

    A broker lists itself only after the controller has seen its znode and sent it an update: from then on topics can be
    created and used.
    """
    timeout_ms = int(timeout_s * 1000)
    with closing(BrokerConnection(HOST, port, client_id="zkconsumer-sandbox", timeout_ms=timeout_ms)) as connection:
        try:
            connection.connect()
            brokers = fetch_metadata(connection, ()).brokers
        except (BrokerUnavailable, ProtocolError):
            return {}
    return {broker_id: (broker.host, broker.port) for broker_id, broker in brokers.items()}
