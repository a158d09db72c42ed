"""Columns of a batch: those of Spark's own Kafka source, so that a batch can be passed to Spark unchanged.

The Arrow types are those to which pyspark (4.2 and later) maps that source's schema, including nullability; Spark
compares the schemas for equality and refuses others (notes.md#sparks-data-source-api).
"""

from __future__ import annotations

import functools
from typing import Final

import pyarrow as pa

from zkconsumer.decode.buffers import HEADERS_COLUMN

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
"""The schema without headers, one record per row.

``timestampType`` is 0 for create time and 1 for log-append time. A record of message format 0 has no timestamp: as in
Spark's Kafka source, its type is -1 and its timestamp one millisecond before the epoch.
"""

SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field(HEADERS_COLUMN, HEADERS))
"""The schema with ``headers``, in their order and with duplicates; null (not empty) for a record without any."""


@functools.lru_cache(maxsize=64)
def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of batches with only these columns, in this order.

    Raises:
        KeyError: there is no column of this name.
    """
    return pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in columns])
