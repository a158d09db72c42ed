import gc
import pickle
import random
import sys
import tracemalloc
import weakref
from ctypes import ArgumentError

import pyarrow as pa
import pytest

from tests.fixtures.fork import in_forked_child
from zkconsumer.connector.decoder import decoded_message
from zkconsumer.decode import library
from zkconsumer.decode.arrow import records_of
from zkconsumer.decode.messages import MOST_AT_ONCE, build, records
from zkconsumer.decode.native import NativeKernels
from zkconsumer.decode.schema import SCHEMA, SCHEMA_WITH_HEADERS
from zkconsumer.model import Message


def make_batch(rows, schema=SCHEMA_WITH_HEADERS):
    """A batch of (offset, microseconds, type, key, value, headers)."""
    offsets, times, kinds, keys, values, headers = zip(*rows, strict=True)
    columns = [keys, values, ["clicks"] * len(rows), [3] * len(rows), offsets, times, kinds, headers]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


ROWS = [
    (7, 1_000, 0, b"k", b"value", None),
    (8, 1_999, 1, None, b"", [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]),
    (9, -1, 0, b"", None, None),
    (10, -1_000, -1, b"\x00\xff", bytes(range(256)), [{"key": "ä", "value": b""}]),
    (2**62, 2**62, 0, None, None, None),
]
MESSAGES = [
    Message("clicks", 3, 7, 1, 0, b"k", b"value"),
    Message("clicks", 3, 8, 1, 1, None, b"", (("a", b"1"), ("a", None))),
    Message("clicks", 3, 9, -1, 0, b"", None),
    Message("clicks", 3, 10, None, None, b"\x00\xff", bytes(range(256)), (("ä", b""),)),
    Message("clicks", 3, 2**62, 2**62 // 1000, 0, None, None),
]


def test_a_message_for_each_row() -> None:
    messages = build(Message, make_batch(ROWS))
    assert messages == MESSAGES
    assert [type(message) for message in messages] == [Message] * len(ROWS)
    assert [list(map(type, message)) for message in messages] == [list(map(type, message)) for message in MESSAGES]
    assert pickle.loads(pickle.dumps(messages)) == MESSAGES


def test_a_message_has_the_hash_of_an_equal_one() -> None:
    """Python 3.14 keeps hashes in tuples."""
    messages = build(Message, make_batch(ROWS))
    assert list(map(hash, messages)) == list(map(hash, MESSAGES))
    assert set(messages) == set(MESSAGES)


@pytest.mark.parametrize("kind", [Message, decoded_message(None, None)])
def test_messages_are_built_through_the_class_where_tuples_keep_their_hash(kind: type[Message]) -> None:
    native = NativeKernels(*library.load(), keeps_hash=True)
    batch = make_batch(ROWS).drop_columns(["headers"])
    messages = native.messages(kind, records_of(batch), None)
    assert messages == build(kind, batch)
    assert {type(message) for message in messages} == {kind}
    assert list(map(hash, messages)) == list(map(hash, build(kind, batch)))
    assert list(map(gc.is_tracked, messages)) == [kind is not Message] * len(ROWS)


@pytest.mark.parametrize("start", range(len(ROWS) + 1))
def test_a_part_of_a_batch(start: int) -> None:
    assert build(Message, make_batch(ROWS).slice(start, 2)) == MESSAGES[start : start + 2]


def test_a_batch_without_headers_keys_and_values() -> None:
    batch = make_batch([(offset, 0, 0, None, None, None) for offset in range(3)], SCHEMA)
    assert build(Message, batch) == [Message("clicks", 3, offset, 0, 0, None, None) for offset in range(3)]


def test_messages_are_of_the_requested_class() -> None:
    kind = decoded_message(bytes.hex, None)
    (message,) = build(kind, make_batch(ROWS[:1]))
    assert type(message) is kind
    assert (message.key, message.value) == ("6b", b"value")


def test_more_messages_than_are_built_at_once() -> None:
    count = 2 * MOST_AT_ONCE + 1
    batch = make_batch([(offset, 0, 0, None, b"%d" % offset, None) for offset in range(count)], SCHEMA)
    assert [message.value for message in records(batch)] == [b"%d" % offset for offset in range(count)]


class Application:
    """Decodes with a method of its own, and keeps messages."""

    def __init__(self) -> None:
        self.kept = build(decoded_message(self.decode, None), make_batch(ROWS))

    def decode(self, data: bytes) -> str:
        return data.hex()


def test_an_application_that_keeps_messages_with_its_decoders_is_collected() -> None:
    applications = [weakref.ref(Application()) for _ in range(20)]
    gc.collect()
    assert [reference() for reference in applications] == [None] * 20


def test_the_garbage_collector_may_run_while_tracked_messages_are_built() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        assert build(decoded_message(None, bytes.hex), make_batch(ROWS)) == MESSAGES
    finally:
        gc.set_threshold(*thresholds)


def test_the_garbage_collector_does_not_track_messages() -> None:
    assert not any(map(gc.is_tracked, build(Message, make_batch(ROWS))))


def test_all_memory_is_freed_when_messages_are_dropped() -> None:
    topic = b"a topic of this test".decode()
    batch = make_batch(ROWS)
    batch = batch.set_column(2, SCHEMA_WITH_HEADERS.field("topic"), pa.array([topic] * len(ROWS)))
    shared = [Message, None, 0, 1, 3, ()]
    build(Message, batch)
    before = [sys.getrefcount(each) for each in shared]
    tracemalloc.start()
    try:
        for _ in range(100):
            build(Message, batch)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
    # If objects are not immortal, each message references and releases them; other code changes a few counts.
    assert all(abs(sys.getrefcount(each) - count) < 100 for each, count in zip(shared, before, strict=True))


@pytest.mark.parametrize("keeps_hash", [False, True])
def test_a_failed_allocation_leaks_no_objects(keeps_hash: bool) -> None:
    """Each allocation fails once: of a message, an integer, a key, a value; in a child, which has no other threads."""
    testcapi = pytest.importorskip("_testcapi")
    batch = make_batch([(2**40 + row, 2**50, 0, b"k" * 20, b"v" * 600, None) for row in range(20)])
    plain, native = records_of(batch), NativeKernels(*library.load(), keeps_hash=keeps_hash)

    def fail_each_once() -> None:
        counts = set()
        for number in range(200):
            testcapi.set_nomemory(number, number + 1)
            try:
                messages = native.messages(Message, plain, None)
            except (MemoryError, ArgumentError):  # of the call itself
                continue
            finally:
                testcapi.remove_mem_hooks()
            assert [message.value for message in messages] == [b"v" * 600] * len(messages)
            counts.add(len(messages))
        assert counts == set(range(21))

    assert in_forked_child(fail_each_once)


def test_a_message_can_be_used_after_its_batch_is_freed() -> None:
    values = [random.Random(row).randbytes(500) for row in range(50)]
    messages = build(Message, make_batch([(row, 0, 0, b"k", value, None) for row, value in enumerate(values)]))
    gc.collect()
    assert [message.value for message in messages] == values
