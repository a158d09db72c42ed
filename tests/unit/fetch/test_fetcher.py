"""FetcherThread against a small server that answers every fetch with the same bytes."""

import contextlib
import socket
import struct
import threading

import pytest

from tests.fix_batches import build
from tests.fix_chunks import make_info, make_queue
from tests.fix_waiting import eventually
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigError, CorruptRecord
from zkconsumer.fetch.fetcher import FetcherThread
from zkconsumer.kafka.producer import Record
from zkconsumer.model import Broker

API_VERSIONS = struct.pack(">hi", 0, 2) + struct.pack(">hhh", 18, 0, 0) + struct.pack(">hhh", 1, 4, 4)
GOOD = build([Record(b"v")], offset=5)
BAD = GOOD[:-1] + bytes([GOOD[-1] ^ 1])


def fetch_response(records, high_watermark):
    partition = struct.pack(">ihqqii", 0, 0, high_watermark, high_watermark, 0, len(records)) + records
    return struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">i", 1) + partition


def serve(sock, records, high_watermark):
    with sock, contextlib.suppress(OSError), sock.makefile("rb") as incoming:
        while header := incoming.read(4):
            frame = incoming.read(struct.unpack(">i", header)[0])
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            wanted = struct.pack(">iq", 0, 5) in frame
            body = API_VERSIONS if key == 18 else fetch_response(records if wanted else b"", high_watermark)
            sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


@pytest.fixture
def fetched():
    """A partition that is fetched from offset 5, where its broker has ``records``, and nothing behind them."""
    with contextlib.ExitStack() as cleaning:

        def fetch(records, *, high_watermark=100, **settings):
            listener = cleaning.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept():
                with contextlib.suppress(OSError):
                    while True:
                        serve(listener.accept()[0], records, high_watermark)

            threading.Thread(target=accept, daemon=True).start()
            config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", **settings)
            info = make_info(make_queue(), start=5)
            broker = Broker(0, "127.0.0.1", listener.getsockname()[1])
            fetcher = FetcherThread("fetcher", broker, config, lambda infos: fetcher.add(list(infos)))
            fetcher.add([info])
            fetcher.start()
            cleaning.callback(fetcher.join)
            cleaning.callback(fetcher.close)
            return info

        yield fetch


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_bytes_that_hold_no_complete_batch_end_in_an_error(fetched, policy):
    """Fewer than were asked for, and first in the response: no broker cuts those, so the length is damaged."""
    with pytest.raises(CorruptRecord, match=rf"t-0 at offset 5: {len(GOOD) - 1} bytes hold no complete batch"):
        fetched(GOOD[:-1], on_corrupt=policy).queue.take(10)


def test_settings_that_cannot_be_used_are_told_to_the_user_and_tried_again(fetched, tmp_path, caplog):
    settings = {"security_protocol": "SSL", "ssl_ca_location": str(tmp_path / "missing.pem")}
    info = fetched(GOOD, **settings, refresh_leader_backoff_ms=1)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"ssl\.ca\.location .*missing\.pem cannot be used"):
            info.queue.take(10)
    assert info.refusals > 3
    assert "unexpected" not in caplog.text


def test_a_broker_that_cannot_be_understood_is_no_trouble_of_the_users(fetched, caplog):
    info = fetched(GOOD, security_protocol="SSL", refresh_leader_backoff_ms=1, socket_timeout_ms=100)
    eventually(lambda: caplog.text.count("look for a leader again") > 5)
    assert info.queue.take(0) is None


def test_a_wrong_checksum_is_an_error(fetched):
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 5 .*checksum"):
        fetched(BAD).queue.take(10)


def test_a_wrong_checksum_is_passed_where_that_is_wanted(fetched, caplog):
    info = fetched(BAD, on_corrupt="skip")
    eventually(lambda: info.fetched == 6)
    assert "offsets 5 to 5 of t-0 are left out: t-0 at offset 5 (fetched from 5): checksum" in caplog.text


def test_what_is_left_out_ends_with_the_log(fetched):
    damaged = bytearray(GOOD)
    struct.pack_into(">i", damaged, 23, 2**31 - 1)
    info = fetched(bytes(damaged), on_corrupt="skip")
    eventually(lambda: info.fetched == 100)
