"""FetcherThread with a small server that answers with given bytes."""

import contextlib
import socket
import struct
import threading

import pytest

from tests.fixtures.batches import build, spoil
from tests.fixtures.chunks import make_info, make_queue, take
from tests.fixtures.messagesets import message_set
from tests.fixtures.stubbroker import running_stub_broker
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode import library
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.errors import ConfigError, CorruptRecord, DecoderUnavailable, RecordTooLarge
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.fetcher import FetcherThread
from zkconsumer.model import Broker
from zkconsumer.sandbox.producer import Record
from zkconsumer.wire.errorcodes import ErrorCode

API_VERSIONS = struct.pack(">hi", 0, 2) + struct.pack(">hhh", 18, 0, 0) + struct.pack(">hhh", 1, 4, 4)
GOOD = build([Record(b"v")], offset=5)
BAD = spoil(GOOD)


def fetch_response(records, high_watermark):
    partition = struct.pack(">ihqqii", 0, 0, high_watermark, high_watermark, 0, len(records)) + records
    return struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">i", 1) + partition


def serve(sock, log, high_watermark):
    with sock, contextlib.suppress(OSError), sock.makefile("rb") as incoming:
        while header := incoming.read(4):
            frame = incoming.read(struct.unpack(">i", header)[0])
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            answers = [b""]
            for offset in log:
                if struct.pack(">iq", 0, offset) in frame:
                    answers = log[offset]
            end = high_watermark() if callable(high_watermark) and key != 18 else high_watermark
            body = API_VERSIONS if key == 18 else fetch_response(answers[0], end)
            if len(answers) > 1:
                del answers[0]
            sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


@pytest.fixture
def fetched():
    """A partition that is fetched from offset 5.

    Its broker answers there with ``records``. Or they are a dictionary: by requested offset, the sequence of answers,
    of which the last one is repeated. ``high_watermark`` may be a function, which is called for each answer.
    """
    with contextlib.ExitStack() as cleaning:

        def fetch(records, *, high_watermark=100, **settings):
            log = records if isinstance(records, dict) else {5: [records]}
            listener = cleaning.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept():
                with contextlib.suppress(OSError):
                    while True:
                        serve(listener.accept()[0], log, high_watermark)

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
    """Fewer bytes than requested, and first in the response: no broker cuts those, so the length is damaged."""
    with pytest.raises(CorruptRecord, match=rf"t-0 at offset 5: {len(GOOD) - 1} bytes hold no complete batch"):
        fetched(GOOD[:-1], on_corrupt=policy).queue.request(60)


def test_unusable_settings_are_raised_by_the_stream_and_tried_again(fetched, tmp_path, caplog):
    settings = {"security_protocol": "SSL", "ssl_ca_location": str(tmp_path / "missing.pem")}
    info = fetched(GOOD, **settings, refresh_leader_backoff_ms=1)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"ssl\.ca\.location .*missing\.pem cannot be used"):
            info.queue.request(60)
    assert info.refusals > 3
    assert "unexpected" not in caplog.text


def test_a_malformed_answer_is_not_raised_by_the_stream(fetched, caplog):
    info = fetched(GOOD, security_protocol="SSL", refresh_leader_backoff_ms=1, socket_timeout_ms=100)
    eventually(lambda: caplog.text.count("looking for the leaders of its partitions again") > 5)
    assert info.queue.request(0) is None


def test_a_wrong_checksum_is_an_error(fetched):
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 5 .*checksum"):
        ChunkReader(fetched(BAD, refresh_leader_backoff_ms=1).queue).request(60)


def test_a_wrong_checksum_is_skipped_under_on_corrupt_skip(fetched, caplog):
    info = fetched({5: [BAD], 6: [build([Record(b"behind")], offset=6)]}, on_corrupt="skip")
    assert ChunkReader(info.queue).request(60).batch.column("value").to_pylist() == [b"behind"]
    assert info.consumed == 6
    assert "offsets 5 to 5 of t-0 are skipped: t-0 at offset 5 (fetched from 5): checksum" in caplog.text


def test_damage_in_transit_is_fixed_by_fetching_again(fetched):
    batches = {offset: build([Record(b"%d" % offset)], offset=offset) for offset in range(5, 15)}
    info = fetched({offset: [spoil(batch), spoil(batch), batch] for offset, batch in batches.items()})
    reader = ChunkReader(info.queue)
    values = [take(reader, info.queue, 10).batch.column("value").to_pylist() for _ in batches]
    assert values == [[b"%d" % offset] for offset in batches]


def test_markers_of_transactions_are_verified_though_no_reader_looks_at_them(fetched):
    """Otherwise a flipped bit could turn records into markers, and their loss would not be noticed."""
    marker = bytearray(GOOD)
    marker[22] |= 0x20
    info = fetched({5: [bytes(marker), GOOD]})
    assert ChunkReader(info.queue).request(60).batch.column("value").to_pylist() == [b"v"]


VALUES = [Record(b"%d" % number) for number in range(4)]


def batches_from(*bases):
    """Batches of four records with these first offsets."""
    return b"".join(build(VALUES, offset=base) for base in bases)


def read_offsets(info, count):
    """The offsets that the stream hands out, until it has handed out this many."""
    reader, found = ChunkReader(info.queue), []
    while len(found) < count:
        found += take(reader, info.queue, 60).batch.column("offset").to_pylist()
    return found


IMPLAUSIBLE = {
    "before the requested offset": batches_from(5 - 4, 9),
    "that the next batch contradicts": batches_from(5 + 512, 9),
    "that the next batch contradicts, which is cut off": batches_from(5 + 512, 9)[:-60],
    "beyond the high watermark": batches_from(5 + 2**40),
}


@pytest.mark.parametrize("name", IMPLAUSIBLE)
def test_an_implausible_offset_is_fixed_by_fetching_again(fetched, name):
    """No checksum covers it: the records would vanish, or be handed out with offsets of others."""
    log = {5: [IMPLAUSIBLE[name], batches_from(5, 9)], 9: [batches_from(9)], 13: [b""]}
    info = fetched(log, high_watermark=13, refresh_leader_backoff_ms=1)
    assert read_offsets(info, 8) == list(range(5, 13))
    eventually(lambda: info.fetched == 13)


@pytest.mark.parametrize("name", IMPLAUSIBLE)
def test_an_implausible_offset_on_the_broker_s_disk_is_raised(fetched, name):
    info = fetched(IMPLAUSIBLE[name], high_watermark=13, refresh_leader_backoff_ms=1)
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 5 \(fetched from 5\): .*batch .*has the offsets"):
        info.queue.request(60)
    assert (info.position(handed_out=True), info.faults.are_believed) == (5, True)


@pytest.mark.parametrize("name", IMPLAUSIBLE)
def test_a_batch_with_an_implausible_offset_is_skipped_if_configured(fetched, name):
    log = {5: [IMPLAUSIBLE[name]], 9: [batches_from(9)], 13: [b""]}
    info = fetched(log, high_watermark=13, refresh_leader_backoff_ms=1, on_corrupt="skip")
    if name == "beyond the high watermark":  # nothing shows where the batch ends
        eventually(lambda: info.fetched == 13)
    else:
        assert read_offsets(info, 4) == list(range(9, 13))


def test_an_answer_with_an_old_high_watermark_is_fetched_again_without_a_warning(fetched, caplog):
    """1. A broker reads the high watermark for its answer. 2. It advances. 3. The broker reads the records up to it."""
    ends = iter([5, 9])
    info = fetched(batches_from(5), high_watermark=lambda: next(ends, 9))
    assert read_offsets(info, 4) == list(range(5, 9))
    assert info.faults.times == 0
    assert "fetching it again" not in caplog.text


def test_consequences_of_damage_are_forgotten_with_it(fetched, caplog):
    """The header claims a later end of the batch, so the next request skips records."""
    longer = bytearray(GOOD)
    struct.pack_into(">i", longer, 23, 4)
    batches = {offset: [build([Record(b"%d" % offset)], offset=offset)] for offset in range(6, 12)}
    info = fetched({5: [bytes(longer), GOOD], **batches})
    eventually(lambda: len(info.queue) > 1)
    reader = ChunkReader(info.queue)
    offsets = [take(reader, info.queue, 10).batch.column("offset").to_pylist() for _ in range(7)]
    assert offsets == [[offset] for offset in range(5, 12)]


def test_a_skipped_range_ends_with_the_log(fetched):
    damaged = bytearray(GOOD)
    struct.pack_into(">i", damaged, 23, 2**31 - 1)
    info = fetched(bytes(damaged), on_corrupt="skip")
    eventually(lambda: info.fetched == 100)


def test_the_stream_raises_that_the_decoder_cannot_be_loaded(fetched, monkeypatch):
    kernels.cache_clear()
    monkeypatch.setattr(library, "source_hash", lambda: "another")
    info = fetched(GOOD)
    with pytest.raises(DecoderUnavailable, match=r"StaleLibrary: .* install zkconsumer again"):
        info.queue.request(60)


def test_a_batch_that_is_too_long_is_not_skipped_as_corrupt(fetched):
    long = build([Record(bytes(2 << 20))], offset=5, codec="gzip")
    info = fetched({5: [long], 6: [build([Record(b"next")], offset=6)]}, on_corrupt="skip", refresh_leader_backoff_ms=1)
    with pytest.raises(RecordTooLarge, match=r"t-0 at offset 5 .* raise decompressed\.max\.bytes"):
        ChunkReader(info.queue, DecoderSettings(max_decompressed_bytes=1 << 20)).request(60)
    assert info.position(handed_out=True) == 5


def test_a_long_batch_is_read_under_a_higher_limit(fetched):
    info = fetched(build([Record(bytes(2 << 20))], offset=5, codec="gzip"))
    assert ChunkReader(info.queue, DecoderSettings(max_decompressed_bytes=4 << 20)).request(60).batch.num_rows == 1


class OldBroker(threading.Thread):
    """Supports Fetch version 2, as 0.10.0: one record per partition, at offset 0; records the requested partitions."""

    def __init__(self, listener, empty):
        super().__init__(daemon=True)
        self._listener = listener
        self._empty = empty
        self.requests = []

    def run(self):
        with contextlib.suppress(OSError), self._listener.accept()[0] as sock, sock.makefile("rb") as incoming:
            while header := incoming.read(4):
                frame = incoming.read(struct.unpack(">i", header)[0])
                key, _, correlation_id = struct.unpack_from(">hhi", frame)
                body = struct.pack(">hihhhhhh", 0, 2, 18, 0, 0, 1, 0, 2) if key == 18 else self._fetch(frame)
                sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def _fetch(self, frame):
        asked = list(struct.iter_unpack(">iqi", frame[frame.index(b"\0\x01t", 11) + 7 :]))
        self.requests.append([(partition, max_bytes) for partition, _, max_bytes in asked])
        parts = [self._answer(partition, offset) for partition, offset, _ in asked]
        return struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">i", len(parts)) + b"".join(parts)

    def _answer(self, partition, offset):
        records = b"" if offset or partition in self._empty else build([Record(b"%d" % partition)])
        return struct.pack(">ihqi", partition, 0, 1, len(records)) + records


def test_requests_to_an_old_broker_fit_into_the_room():
    """Before 0.10.1 there is no limit for a response: 8 x 1 MiB would come, though only 4 MiB may wait."""
    with contextlib.ExitStack() as cleaning:
        listener = cleaning.enter_context(socket.create_server(("127.0.0.1", 0)))
        broker = OldBroker(listener, empty={0, 1, 2, 3})
        broker.start()
        queue = make_queue(max_bytes=4 << 20)
        config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", fetch_wait_max_ms=1)
        address = Broker(0, "127.0.0.1", listener.getsockname()[1])
        fetcher = FetcherThread("fetcher", address, config, lambda infos: fetcher.add(list(infos)))
        fetcher.add([make_info(queue, number) for number in range(8)])
        fetcher.start()
        cleaning.callback(fetcher.join)
        cleaning.callback(fetcher.close)
        reader = ChunkReader(queue)
        values = {take(reader, queue, 30).batch.column("value").to_pylist()[0] for _ in range(4)}
        eventually(lambda: len(broker.requests) > 8)
    assert values == {b"4", b"5", b"6", b"7"}
    assert all(sum(size for _, size in asked) <= 4 << 20 for asked in broker.requests)
    assert {number for asked in broker.requests[:8] for number, _ in asked} == set(range(8))


class BrokerOfSmallMessages(OldBroker):
    """Has many messages of format 1 in each partition, and sends as many bytes as are requested."""

    count = 30_000

    def _answer(self, partition, offset):
        size = dict(self.requests[-1])[partition]
        numbers = range(offset, min(self.count, offset + size // 100))
        records = message_set([Record(b"v" * 64)] * len(numbers), 1, numbers)[:size]
        records += b"\0" * (size - len(records) if numbers.stop < self.count else 0)  # a message that is cut off
        return struct.pack(">ihqi", partition, 0, self.count, len(records)) + records


def test_more_is_requested_at_a_time_of_a_log_of_small_messages_until_its_end_is_near():
    with contextlib.ExitStack() as cleaning:
        listener = cleaning.enter_context(socket.create_server(("127.0.0.1", 0)))
        broker = BrokerOfSmallMessages(listener, empty=())
        broker.start()
        queue = make_queue(max_bytes=64 << 20)
        info = make_info(queue)
        info.fetch_bytes = info.request_bytes = 100_000
        address = Broker(0, "127.0.0.1", listener.getsockname()[1])
        with fetching(address, info, fetch_wait_max_ms=1):
            reader, read = ChunkReader(queue), 0
            while read < broker.count:
                read += take(reader, queue, 30).batch.num_rows
            eventually(lambda: broker.requests[-1] == [(0, 100_000)])
    sizes = [size for asked in broker.requests for _, size in asked]
    assert list(dict.fromkeys(sizes))[:4] == [100_000, 200_000, 400_000, 800_000]


class BrokerWithFullAnswer(BrokerOfSmallMessages):
    """Once an answer is full before the last partition's first message has ended."""

    is_cut = False

    def _answer(self, partition, offset):
        size = dict(self.requests[-1])[partition]
        if not self.is_cut and len(self.requests[-1]) > 1 and partition == self.requests[-1][-1][0] and size > 100_000:
            self.is_cut = True
            records = message_set([Record(b"v" * 64)], 1, [offset])[:40]
            return struct.pack(">ihqi", partition, 0, self.count, len(records)) + records
        return super()._answer(partition, offset)


def test_a_full_answer_does_not_raise_the_size_of_a_request_that_has_grown(caplog):
    with contextlib.ExitStack() as cleaning:
        listener = cleaning.enter_context(socket.create_server(("127.0.0.1", 0)))
        broker = BrokerWithFullAnswer(listener, empty=())
        broker.start()
        queue = make_queue(max_bytes=64 << 20)
        infos = [make_info(queue, number) for number in range(2)]
        for info in infos:
            info.fetch_bytes = info.request_bytes = 100_000
        address = Broker(0, "127.0.0.1", listener.getsockname()[1])
        with fetching(address, *infos, fetch_wait_max_ms=1):
            reader, read = ChunkReader(queue), 0
            while read < 2 * broker.count:
                read += take(reader, queue, 30).batch.num_rows
        assert broker.is_cut
    assert "fetch size raised" not in caplog.text
    assert [info.fetch_bytes for info in infos] == [100_000, 100_000]


@contextlib.contextmanager
def fetching(broker, *infos, return_to_finder=lambda infos: None, **settings):
    """A fetcher of these partitions, which has sent a request when the block begins."""
    config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", refresh_leader_backoff_ms=1, **settings)
    fetcher = FetcherThread("fetcher", broker, config, return_to_finder)
    fetcher.add(infos)
    fetcher.start()
    try:
        eventually(lambda: fetcher.requests > 0)
        yield fetcher
    finally:
        fetcher.close()
        fetcher.join()


def test_ended_fetchers_keep_no_share_of_the_room():
    queue = make_queue()
    with running_stub_broker() as stub:
        info = make_info(queue)
        stub.log(info.partition)
        for _ in range(5):
            with fetching(stub.broker, info):
                assert queue.room.allowance() == 1 << 20
    queue.room.add(print)
    assert queue.room.allowance() == 1 << 20


def test_a_fetcher_whose_partitions_moved_keeps_no_share_of_the_room():
    stays, moves = make_queue(), make_queue()
    moves.room.add(lambda: None)  # that of the new leader's fetcher
    infos = [make_info(stays, 0), make_info(moves, 1)]
    given_back = []
    with running_stub_broker() as stub:
        for info in infos:
            stub.log(info.partition)
        stub.fetch_errors[infos[1].partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        with fetching(stub.broker, *infos, return_to_finder=given_back.extend):
            eventually(lambda: moves.room.allowance() == 1 << 20)
            stays.room.add(lambda: None)
            assert stays.room.allowance() == 1 << 19
        assert given_back[0] is infos[1]
