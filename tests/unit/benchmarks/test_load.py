import pytest

from benchmarks.load import Load, _records
from benchmarks.logsegment import batch


@pytest.mark.parametrize("load", [Load(), Load(value_bytes=1024), Load(codec="zstd")], ids=str)
def test_a_load_is_made_of_one_batch_that_is_repeated(load):
    assert len(batch(load.codec, _records(load))) < 1 << 20  # the brokers' limit
    assert load.records == load.batches * load.partitions * load.batch_records
    assert load.records * load.value_bytes == pytest.approx(load.total_bytes, rel=0.05)


def test_values_have_the_length_and_compress_like_text():
    records = _records(Load(value_bytes=1024))
    assert {len(record.value) for record in records} == {1024}
    plain, packed = (batch(codec, records) for codec in ("none", "zstd"))
    assert 0.1 < len(packed) / len(plain) < 0.5
