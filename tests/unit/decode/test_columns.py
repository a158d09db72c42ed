"""Batches of some of the columns: the same values as in batches of all, without copies for the others."""

import itertools
import subprocess
import sys
import tracemalloc

import pyarrow as pa
import pytest

from tests.fixtures.batches import build
from tests.fixtures.documents import ROOT
from tests.fixtures.messagesets import compressed_set, message_set
from zkconsumer.decode import batchtable as b
from zkconsumer.decode.assemble import most_rows
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.columns import ConstantColumns
from zkconsumer.decode.schema import SCHEMA_WITH_HEADERS, schema_of
from zkconsumer.sandbox.producer import Record

ALL = tuple(SCHEMA_WITH_HEADERS.names)
RECORDS = [
    Record(b"first", b"k", 1_700_000_000_000),
    Record(None, b"tombstone", 1_700_000_000_005),
    Record(b"", None, 1_699_999_999_999),
    Record(b"x" * 500, b"", 1_700_000_000_010),
]
WITH_HEADERS = [Record(b"v", b"k", 5, [("a", b"1"), ("a", None)]), *RECORDS, Record(b"w", None, 6, [("b", b"")])]
CHUNKS = {
    "plain": build(WITH_HEADERS) + build(WITH_HEADERS, offset=6, attributes=0x08, max_timestamp=7),
    "compressed": build(WITH_HEADERS, codec="lz4") + build(WITH_HEADERS, offset=6, codec="gzip"),
    "of three formats": message_set(RECORDS, 0, range(4))
    + compressed_set(RECORDS, 1, range(4, 8), "gzip")
    + build(WITH_HEADERS, offset=8, codec="lz4")
    + build(WITH_HEADERS, offset=14),
}


def decode(data, columns=None, decoder=None):
    decoder = decoder or BatchDecoder(headers=True)
    if columns is not None:
        decoder.choose_columns(columns)
    decoded = decoder.decode("t", 3, 0, memoryview(data))
    decoded.batch.validate(full=True)
    return decoded


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize(
    "columns", [*itertools.combinations(ALL, 1), *itertools.permutations(("key", "value", "headers"), 2), ALL[::-1]]
)
def test_chosen_columns_equal_those_of_a_full_batch(chunk, columns):
    everything, chosen = decode(CHUNKS[chunk]), decode(CHUNKS[chunk], columns)
    assert chosen.batch.schema.equals(schema_of(columns), check_metadata=True)
    assert chosen.batch.equals(everything.batch.select(columns))
    assert (chosen.next_offset, chosen.rest) == (everything.next_offset, None)


def test_one_decoder_serves_queries_of_different_columns():
    decoder = BatchDecoder()
    for columns in [("value",), ("headers", "key"), ("offset",), ALL, ("value",)]:
        chosen = decode(CHUNKS["plain"], columns, decoder)
        assert chosen.batch.equals(decode(CHUNKS["plain"]).batch.select(columns))


def test_a_column_that_does_not_exist_is_refused():
    with pytest.raises(KeyError, match="vaule"):
        BatchDecoder().choose_columns(("vaule",))


@pytest.mark.parametrize("chunk", ["plain", "of three formats"])
@pytest.mark.parametrize("columns", [("key", "headers"), ("offset",)])
def test_unwanted_values_are_not_moved(chunk, columns):
    received = bytearray(CHUNKS[chunk])
    decode(received, columns)
    assert received == CHUNKS[chunk]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_unwanted_keys_and_headers_are_not_copied(chunk):
    decoder = BatchDecoder(headers=True)

    def copied(columns):
        decoder.choose_columns(columns)
        prepared = decoder.prepare(decoder.scan("t", 3, 0, memoryview(CHUNKS[chunk])))
        decoder.complete(prepared)
        decoder.recycle(prepared)
        totals = prepared.totals[-1]
        return totals[b.KEY_BYTES] > 0, totals[b.HEADER_BYTES] > 0

    assert copied(ALL) == (True, True)
    assert copied(("value", "key")) == (True, False)
    assert copied(("headers",)) == (False, True)
    assert copied(("value",)) == (False, False)


def test_a_batch_of_constants_holds_no_memory():
    assert decode(CHUNKS["plain"], ("topic", "partition")).nbytes == 0
    assert decode(CHUNKS["plain"], ("key",)).nbytes < decode(CHUNKS["plain"], ("key", "value")).nbytes


LONGEST_NAME = "t" * 249
MOST_BYTES = 16 << 20


def test_many_records_of_a_long_topic_come_in_several_batches():
    count = 70_000
    data = build([Record(b"%d" % n, b"k") for n in range(count)], offset=50, last_delta=count + 9)
    parts, rest = BatchDecoder(headers=True).decode(LONGEST_NAME, 3, 60, memoryview(data)).parts()
    assert len(parts) > 1
    assert rest is None
    table = pa.Table.from_batches([part.batch.drop_columns(["topic"]) for part in parts])
    assert table.column("offset").to_pylist() == list(range(60, 50 + count))
    assert table.column("value").to_pylist() == [b"%d" % n for n in range(10, count)]
    assert [part.next_offset for part in parts[:-1]] == [part.batch["offset"][0].as_py() for part in parts[1:]]
    assert parts[-1].next_offset == 60 + count
    for part in parts:
        assert part.batch["topic"].nbytes <= MOST_BYTES
        assert part.batch["topic"].unique().to_pylist() == [LONGEST_NAME]


def test_constant_columns_stay_far_below_the_limit_of_arrow():
    assert all(most_rows("t" * length) * (length + 4) <= MOST_BYTES for length in range(250))


@pytest.mark.parametrize("name", ["t", "t" * 20, "t" * 249])
def test_usual_numbers_of_records_come_in_one_batch(name):
    data = build([Record(b"v")] * 30_000)
    assert BatchDecoder().decode(name, 3, 0, memoryview(data)).batch.num_rows == 30_000


def test_long_constant_columns_are_counted():
    data = build([Record(b"v")] * 30_000)
    decoded = BatchDecoder().decode(LONGEST_NAME, 3, 0, memoryview(data))
    assert decoded.nbytes >= decoded.batch["topic"].nbytes > 7_000_000


@pytest.fixture
def clock():
    return iter(range(1000)).__next__


def test_a_long_column_is_dropped_when_it_is_not_needed(clock):
    columns = ConstantColumns(clock=clock)
    columns.topic("t" * 100, 100_000)
    assert columns.nbytes > 10_000_000
    for _ in range(50):
        columns.topic("t" * 100, 100)
        columns.trim()
    assert columns.nbytes < 1_000_000


def test_a_long_column_that_is_needed_is_built_once():
    now = 0.0
    columns = ConstantColumns(clock=lambda: now)
    first = columns.topic("t" * 100, 100_000)
    for halves in range(20):
        now = halves / 2
        columns.trim()
        assert columns.topic("t" * 100, 1).buffers()[2].address == first.buffers()[2].address
        assert columns.topic("t" * 100, 90_000).buffers()[2].address == first.buffers()[2].address


def test_short_columns_are_kept_and_long_ones_are_bounded(clock):
    columns = ConstantColumns(clock=clock)
    short = columns.integer(3, 10).buffers()[1].address
    columns.trim()
    assert columns.integer(3, 20).buffers()[1].address == short
    for number in range(20):
        columns.topic(f"{number:0100}", 60_000)
        assert columns.nbytes <= 32 << 20


def test_work_buffers_of_a_large_batch_are_dropped():
    decoder = BatchDecoder(headers=True)
    data = memoryview(bytearray(build([Record(bytes(20 << 20))])))
    decode(CHUNKS["plain"], decoder=decoder)
    tracemalloc.start()
    try:
        decoder.decode("t", 0, 0, data)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_batch_is_built_without_pandas():
    """pyarrow imports pandas, if it is installed, for the first scalar; that takes a third of a second."""
    text = (
        "import sys\n"
        "from tests.fixtures.batches import build\n"
        "from zkconsumer.decode.batchdecoder import BatchDecoder\n"
        "from zkconsumer.sandbox.producer import Record\n"
        "raw = memoryview(build([Record(b'v', None, 1)], offset=0))\n"
        "batch = BatchDecoder(headers=True).decode('t', 0, 0, raw).batch\n"
        "print(batch.num_rows, 'pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
