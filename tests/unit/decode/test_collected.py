"""Batches that an application collects and drops: their memory returns to the operating system."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

COLLECT = """
import sys
from pathlib import Path
from tests.fixtures.batches import build
from tests.fixtures.chunks import make_info, make_queue
from zkconsumer.connector.stream import MessageStream
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.sandbox.producer import Record
from zkconsumer.model import Message

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

def collect(mebibytes):
    for _ in range((mebibytes << 20) // SIZE):
        received = fetcher.memory.take(len(data))
        received[:] = data
        scanned = fetcher.scan(*info.partition, 0, received)
        queue.put(Chunk(info, None, scanned.next_offset, len(received), len(received), scanned))
        del received, scanned
        yield next(batches)

SIZE = int(sys.argv[1])
data = build([Record(b"%0*d" % (SIZE // 100, n)) for n in range(100)], codec=sys.argv[2])
queue, fetcher = make_queue(max_bytes=1 << 30, max_chunks=1000), BatchDecoder()
info, batches = make_info(queue), MessageStream(queue, name="s", kind=Message).batches()
for _ in collect(50):
    pass
before = resident()
collected = list(collect(300))
held = resident() - before
del collected
print(held, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the resident memory where Linux shows it")
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_batches_that_are_dropped_leave_at_most_64_mebibytes(size, codec):
    """Without another request, and at once: a stream may wait long for the next record."""
    command = [sys.executable, "-c", COLLECT, str(size), codec]
    held, left = map(int, subprocess.check_output(command, text=True).split())
    assert held > 250
    assert left <= 64
