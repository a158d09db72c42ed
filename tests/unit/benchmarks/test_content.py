import pytest

from benchmarks.content import plain_bytes, random_share, records
from benchmarks.datasets import DATA_SETS
from benchmarks.logsegment import encode

COMPRESSED = ["lz4-2", "snappy-3", "gzip-20", "zstd-20", "format-1-snappy", "format-0-gzip"]


def test_keys_headers_and_lengths_are_as_the_data_set_specifies():
    content = records(DATA_SETS["headers"], 1000)
    assert {len(record.headers) for record in content} == {2}
    assert all(record.key for record in content)
    lengths = [len(record.value) for record in content]
    assert (min(lengths), max(lengths)) == (20, 400)
    assert content == records(DATA_SETS["headers"], 1000)


@pytest.mark.parametrize("name", COMPRESSED)
def test_batches_have_the_compression_ratio(name):
    data = DATA_SETS[name]
    content = records(data, 2 * data.batch_records, random_share(data, lambda sample: encode(data, sample)))
    assert sum(map(plain_bytes, content)) / sum(map(len, encode(data, content))) == pytest.approx(data.ratio, rel=0.1)


def test_a_ratio_that_cannot_be_reached_is_refused():
    data = DATA_SETS["lz4-5"]._replace(ratio=500)
    with pytest.raises(ValueError, match="lower its ratio"):
        random_share(data, lambda sample: encode(data, sample))
