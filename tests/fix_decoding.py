"""What the decoder makes of bytes, as rows to compare; whatever it returns, Arrow has to find it valid."""

from zkconsumer.fetch.messages import records


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
