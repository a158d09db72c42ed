"""What the decoder makes of bytes, as rows to compare; whatever it returns, Arrow has to find it valid."""

import pyarrow as pa

from zkconsumer.decode.messages import records
from zkconsumer.model import Message


def rows(chunk):
    """(offset, timestamp in ms, type, key, value, headers) of each record."""
    if chunk.batch is None:
        return []
    chunk.batch.validate(full=True)
    return [(m.offset, m.timestamp, m.timestamp_type, m.key, m.value, m.headers) for m in records(chunk.batch)]


def decode(decoder, requested, data):
    """Rows from an offset on, and the offset after all that was decoded."""
    chunk = decoder.decode("t", 1, requested, memoryview(data))
    return rows(chunk), chunk.next_offset


def messages_of(batch):
    """The messages of a batch as pyarrow gives its columns."""
    micros = batch.column("timestamp").view(pa.int64())  # a datetime has an end
    timed = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", micros).to_pylist()
    return [
        Message(
            row["topic"],
            row["partition"],
            row["offset"],
            None if row["timestampType"] < 0 else row["timestamp"] // 1000,
            None if row["timestampType"] < 0 else row["timestampType"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in timed
    ]
