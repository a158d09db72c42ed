"""What tests use of kafka-python, loaded as the product loads it: its import warns, and here warnings are errors."""

from zkconsumer.kafka.library import load_kafka_python

load_kafka_python()

from kafka.protocol.admin import DeleteRecordsRequest  # noqa: E402
from kafka.protocol.consumer import FetchRequest, FetchResponse  # noqa: E402
from kafka.protocol.metadata import MetadataRequest  # noqa: E402
from kafka.record import MemoryRecordsBuilder  # noqa: E402
from kafka.record.legacy_records import LegacyRecordBatchBuilder  # noqa: E402
from kafka.record.util import calc_crc32c  # noqa: E402

__all__ = [
    "DeleteRecordsRequest",
    "FetchRequest",
    "FetchResponse",
    "LegacyRecordBatchBuilder",
    "MemoryRecordsBuilder",
    "MetadataRequest",
    "calc_crc32c",
]
