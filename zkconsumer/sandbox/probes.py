"""Requests that show whether a server serves: ZooKeeper's four-letter words, Kafka's Metadata."""

import socket
import struct

from zkconsumer.sandbox.ports import HOST

_METADATA = 3
_CORRELATION_ID = 0x7A6B
_LARGEST_ANSWER = 64 * 1024 * 1024


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


def known_brokers(port: int, timeout_s: float = 2.0) -> dict[int, tuple[str, int]]:
    """Ask the broker on a local port for the live brokers: id to host and port; empty if it does not answer.

    The request is Metadata version 0, which every broker that knows ZooKeeper understands (0.8 to 3.9). A broker lists
    itself only after the controller has seen its znode and sent it an update: from then on topics can be created and
    used.
    """
    # An empty list means all topics; a broker might create a named topic.
    request = struct.pack(">hhih", _METADATA, 0, _CORRELATION_ID, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 8 <= size <= _LARGEST_ANSWER:
                return {}
            answer = _exactly(connection, size)
    except OSError:
        return {}
    return parse_brokers(answer)


def parse_brokers(answer: bytes) -> dict[int, tuple[str, int]]:
    """Parse the brokers in a Metadata version 0 response; empty if it is malformed."""
    brokers: dict[int, tuple[str, int]] = {}
    try:
        correlation_id, count = struct.unpack_from(">ii", answer)
        if correlation_id != _CORRELATION_ID:
            return {}
        offset = 8
        for _ in range(count):
            broker_id, length = struct.unpack_from(">ih", answer, offset)
            offset += 6 + length
            (port,) = struct.unpack_from(">i", answer, offset)
            brokers[broker_id] = (answer[offset - length : offset].decode("utf-8"), port)
            offset += 4
    except (struct.error, UnicodeDecodeError):
        return {}
    return brokers


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        received += part
    return received
