"""Batches of some of the columns: the same values as in batches of all, without copies for the others."""

import itertools

import pytest

from tests.fixtures.batches import build
from tests.fixtures.messagesets import compressed_set, message_set
from zkconsumer.decode import batchtable as b
from zkconsumer.decode.batchdecoder import BatchDecoder
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
