"""What tests use of kafka-python, loaded as the product loads it: its import warns, and here warnings are errors."""

from zkconsumer.kafka.library import load_kafka_python

load_kafka_python()

from kafka.protocol.admin import DeleteRecordsRequest  # noqa: E402
from kafka.protocol.consumer import (  # noqa: E402
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse  # noqa: E402
from kafka.record import MemoryRecordsBuilder  # noqa: E402
from kafka.record.legacy_records import LegacyRecordBatchBuilder  # noqa: E402
from kafka.record.util import calc_crc32c  # noqa: E402

__all__ = [
    "DeleteRecordsRequest",
    "FetchRequest",
    "FetchResponse",
    "LegacyRecordBatchBuilder",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "MemoryRecordsBuilder",
    "MetadataRequest",
    "MetadataResponse",
    "calc_crc32c",
]
