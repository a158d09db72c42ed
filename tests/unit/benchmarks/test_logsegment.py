import pytest

from benchmarks.datasets import DATA_SETS
from benchmarks.logsegment import LogSizes, write_log
from tests.fixtures.decoding import rows, sent
from zkconsumer.decode.batchdecoder import BatchDecoder

SMALL = LogSizes(block=50_000, roll=80_000, cut=30_000)
NAMES = ["batches-75", "batches-1", "headers", "gzip-5", "format-1", "format-1-snappy", "format-0", "format-0-gzip"]


class Written:
    """The log of a small partition; segments by base offset."""

    def __init__(self, directory, name):
        self.log = write_log(directory, DATA_SETS[name]._replace(partitions=1, total_bytes=300_000), SMALL)
        self.segments = {int(path.stem): path.read_bytes() for path in sorted(directory.iterdir())}

    def response(self, offset, count):
        """A broker's response to a request for ``count`` bytes: at most to the end of the segment."""
        base = max(base for base in self.segments if base <= offset)
        segment, position, after = self.segments[base], 0, base
        while after < offset:
            after = self._after(segment, position)
            position += 12 + int.from_bytes(segment[position + 8 : position + 12])
        assert after == offset  # a batch begins there
        return segment[position : position + count]

    @staticmethod
    def _after(segment, position):
        """The offset after the batch or message at a position."""
        field = int.from_bytes(segment[position : position + 8])
        is_batch = segment[position + 16] == 2
        return field + 1 + (int.from_bytes(segment[position + 23 : position + 27]) if is_batch else 0)


def decoded(data, requested):
    """All rows of a response, as decoded by a consumer."""
    decoder, found = BatchDecoder(), []
    while True:
        chunk = decoder.decode("t", 0, requested, memoryview(sent(data, requested)))
        if chunk.next_offset == requested:
            return found
        found += rows(chunk)
        requested = chunk.next_offset


@pytest.mark.parametrize("name", NAMES)
def test_offsets_of_a_log_have_no_gaps(name, tmp_path):
    written = Written(tmp_path, name)
    assert sum(map(len, written.segments.values())) == written.log.size
    found = [row for base, segment in written.segments.items() for row in decoded(segment, base)]
    assert [row[0] for row in found] == list(range(written.log.records))
    assert sum(len(row[3] or b"") + len(row[4]) for row in found) > 200_000


@pytest.mark.parametrize("name", NAMES)
def test_a_prepared_request_continues_where_the_response_was_cut(name, tmp_path):
    written = Written(tmp_path, name)
    assert len(written.log.cuts) > len(written.segments)
    for first, after in zip(written.log.cuts, [*written.log.cuts[1:], written.log.records], strict=True):
        response = written.response(first, SMALL.cut)
        assert [row[0] for row in decoded(response, first)] == list(range(first, after))


def test_a_large_partition_has_several_segments(tmp_path):
    assert len(Written(tmp_path, "batches-75").segments) > 1
