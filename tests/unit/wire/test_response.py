"""ResponseStream: the taken bytes equal the sent ones, for any parts and any arriving pieces."""

import random
import socket
import threading

import pytest

from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.response import WINDOW_BYTES, ResponseStream
from zkconsumer.wire.transport import Transport

CONTENT = random.Random(1).randbytes(3 * WINDOW_BYTES)


@pytest.fixture
def arriving():
    """A stream on which these pieces arrive one after the other, and then the end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transports = []

        def send(*pieces):
            def serve():
                sock, _ = listener.accept()
                with sock:
                    for piece in pieces:
                        sock.sendall(piece)

            threading.Thread(target=serve, daemon=True).start()
            port = listener.getsockname()[1]
            transport = Transport("127.0.0.1", port, timeout_ms=60_000, receive_buffer_bytes=0, security=PLAINTEXT)
            transport.connect()
            transports.append(transport)
            return ResponseStream(transport)

        yield send
        for transport in transports:
            transport.close()


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_all_lengths_follow_each_other(arriving, seed):
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(len(CONTENT)), 10))
    stream = arriving(*(CONTENT[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)))
    stream.begin(len(CONTENT))
    kept, at = [], 0
    while stream.left:
        count = min(stream.left, chance.choice([0, 1, 8, 100, WINDOW_BYTES, WINDOW_BYTES + 1, 2 * WINDOW_BYTES]))
        if chance.random() < 0.5:
            kept.append((at, stream.take_to_keep(count)))
        else:
            assert stream.take(count) == CONTENT[at : at + count]
        at += count
    assert all(view == CONTENT[at : at + len(view)] for at, view in kept)


def test_no_bytes_of_the_next_response_are_taken(arriving):
    stream = arriving(b"first" + b"second")
    stream.begin(5)
    assert stream.take(5) == b"first"
    stream.begin(6)
    assert stream.take_to_keep(6) == b"second"


def test_a_response_ends_at_its_announced_length(arriving):
    stream = arriving(b"12345")
    stream.begin(5)
    stream.take(3)
    with pytest.raises(ProtocolError, match="1 bytes are missing"):
        stream.take(3)
    with pytest.raises(ProtocolError, match="2 bytes of the previous response"):
        stream.begin(1)


def test_a_connection_that_ends_early_is_an_error(arriving):
    stream = arriving(b"123")
    stream.begin(5)
    with pytest.raises(BrokerUnavailable, match="closed the connection"):
        stream.take_to_keep(5)


def test_memory_to_keep_comes_from_the_given_source(arriving):
    own = memoryview(bytearray(5))
    stream = arriving(b"12345")
    stream.begin(5, lambda count: own[:count])
    assert stream.take_to_keep(5).obj is own.obj
    assert own == b"12345"


def test_a_whole_response_is_taken_without_copies():
    body = bytearray(b"abcde") + CONTENT
    whole = ResponseStream(None, memoryview(body))
    assert (whole.take(2), whole.take_to_keep(3), whole.left) == (b"ab", b"cde", len(CONTENT))
    assert whole.take(len(CONTENT)).obj is body
    with pytest.raises(ProtocolError, match="1 bytes are missing"):
        whole.take(1)
