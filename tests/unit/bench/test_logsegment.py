import pytest

from tests.fix_decoding import rows
from zkconsumer.bench import logsegment
from zkconsumer.bench.datasets import DATA_SETS
from zkconsumer.bench.logsegment import write_segment
from zkconsumer.fetch.decode import Decoder

NAMES = ["batches-75", "batches-1", "headers", "gzip-5", "format-1", "format-1-snappy", "format-0", "format-0-gzip"]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(logsegment, "_BLOCK_BYTES", 50_000)
    monkeypatch.setattr(logsegment, "CUT_BYTES", 30_000)


def decoded(data, requested):
    """All rows of a partition from an offset on, as a consumer gets them."""
    decoder, found = Decoder(), []
    while True:
        chunk = decoder.decode("t", 0, requested, memoryview(data))
        if chunk.next_offset == requested:
            return found
        found += rows(chunk)
        requested = chunk.next_offset


@pytest.mark.parametrize("name", NAMES)
def test_offsets_of_a_segment_have_no_gaps(name, small_blocks, tmp_path):
    data = DATA_SETS[name]._replace(partitions=1, total_bytes=120_000)
    segment = write_segment(tmp_path / "log", data)
    content = (tmp_path / "log").read_bytes()
    assert len(content) == segment.size
    found = decoded(content, 0)
    assert [row[0] for row in found] == list(range(segment.records))
    assert sum(len(row[3] or b"") + len(row[4]) for row in found) > 80_000


@pytest.mark.parametrize("name", NAMES)
def test_a_prepared_request_continues_where_the_response_was_cut(name, small_blocks, tmp_path):
    data = DATA_SETS[name]._replace(partitions=1, total_bytes=120_000)
    segment = write_segment(tmp_path / "log", data)
    content = (tmp_path / "log").read_bytes()
    found, position = [], 0
    for first, after in zip(segment.cuts, [*segment.cuts[1:], segment.records], strict=True):
        response = content[position : position + logsegment.CUT_BYTES]
        offsets = [row[0] for row in decoded(response, first)]
        assert offsets == list(range(first, after))
        found += offsets
        position += len(response) if after == segment.records else _start_of(content, after) - position
    assert found == list(range(segment.records))


def _start_of(content, offset):
    """Position of the batch or message whose first record has this offset."""
    position = before = 0
    while before < offset:
        length = 12 + int.from_bytes(content[position + 8 : position + 12])
        field = int.from_bytes(content[position : position + 8])
        last_delta = int.from_bytes(content[position + 23 : position + 27]) if content[position + 16] == 2 else 0
        before = field + last_delta + 1
        position += length
    return position
