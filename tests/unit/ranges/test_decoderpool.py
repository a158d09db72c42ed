from tests.fixtures.batches import build
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.ranges.decoderpool import DecoderPool
from zkconsumer.sandbox.producer import Record


def test_a_decoder_has_one_user_at_a_time_and_is_reused():
    pool = DecoderPool()

    def borrow(columns=("value",), **settings):
        return pool.borrowed(DecoderSettings(**settings), columns)

    with borrow() as first, borrow() as second:
        assert first is not second
    with borrow(columns=("topic", "key")) as again, borrow(check_crcs=False) as other:
        assert again in (first, second)
        assert other not in (first, second)
        batch = again.decode("t", 0, 0, memoryview(build([Record(b"v", b"k", 0)]))).batch
        assert batch.to_pylist() == [{"topic": "t", "key": b"k"}]
