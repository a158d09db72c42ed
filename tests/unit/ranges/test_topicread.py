"""What a read of a topic makes of a topic that brokers do not describe."""

import pyarrow as pa
import pytest

from tests.fixtures.kafka import MetadataRequest
from zkconsumer.cluster import brokercatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import OffsetOutOfRange, TopicUnreadable, UsageError
from zkconsumer.ranges import topicread
from zkconsumer.ranges.topicread import plan_read
from zkconsumer.wire.errorcodes import ErrorCode


@pytest.mark.parametrize(("code", "error"), [(ErrorCode.LEADER_NOT_AVAILABLE, TopicUnreadable), (None, UsageError)])
def test_a_topic_that_is_not_described_is_not_called_missing(stub_broker, monkeypatch, code, error):
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.2)
    stub_broker.versions[MetadataRequest.API_KEY] = 12
    if code is not None:
        stub_broker.topic_errors["secret"] = code
    config = ConsumerConfig.without_group(bootstrap_servers=f"127.0.0.1:{stub_broker.port}")
    with pytest.raises(error, match="topic secret"):
        plan_read("secret", config, "earliest", "latest")


def test_a_reader_that_has_failed_does_not_report_the_end_afterwards():
    schema = pa.schema([("offset", pa.int64())])

    def batches():
        yield pa.record_batch([[1]], schema)
        raise OffsetOutOfRange("2 to 5 are gone")

    reader = pa.RecordBatchReader.from_batches(
        schema, topicread._Batches(batches(), pa.record_batch([pa.array([], pa.int64())], schema))
    )
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match="are gone"):
            reader.read_all()


def test_a_range_without_records_is_one_batch_without_rows():
    schema = pa.schema([("offset", pa.int64())])
    nothing = pa.record_batch([pa.array([], pa.int64())], schema)
    one = pa.record_batch([[1]], schema)
    assert list(topicread._Batches(iter([]), nothing)) == [nothing]
    assert list(topicread._Batches(iter([one]), nothing)) == [one]
