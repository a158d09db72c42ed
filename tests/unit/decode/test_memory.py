"""ChunkMemory: blocks are reused when they are not referenced any more, and not before."""

import pyarrow as pa
import pytest

from tests.fixtures.kernels import NATIVE
from zkconsumer.decode.memory import ChunkMemory

SIZE = 1 << 20


def address(view):
    return NATIVE.address_of(view)


def integers_on(view):
    return view[8:].cast("q")[1:]


def a_column_on(view):
    return pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(view)]).slice(1)


def a_batch_on(view):
    return pa.record_batch([a_column_on(view)], names=["n"])


@pytest.mark.parametrize("hold", [memoryview, integers_on, pa.py_buffer, a_column_on, a_batch_on])
def test_a_block_is_used_again_once_the_last_reference_is_gone(hold):
    memory = ChunkMemory()
    view = memory.take(SIZE)
    first = address(view)
    holder = hold(view)
    del view
    assert address(memory.take(SIZE)) != first
    del holder
    assert address(memory.take(SIZE)) == first


def test_written_bytes_stay_while_others_take_and_release():
    memory = ChunkMemory()
    kept = []
    for number in range(50):
        view = memory.take(40_000 + 1000 * number)
        view[:] = bytes([number]) * len(view)
        if number % 3 == 0:
            kept.append((number, pa.py_buffer(view)))
        del view
    assert all(buffer.to_pybytes() == bytes([number]) * len(buffer) for number, buffer in kept)


@pytest.mark.parametrize("count", [0, 1, 1 << 15, (1 << 15) + 1, SIZE, SIZE + 1, (1 << 24) + 1])
def test_a_view_has_the_requested_length_and_is_writable(count):
    view = ChunkMemory().take(count)
    assert len(view) == count
    assert not view.readonly


def test_spare_memory_is_bounded():
    memory = ChunkMemory()
    views = [memory.take(SIZE) for _ in range(100)]
    del views
    for _ in range(100):
        memory.take(SIZE)
    memory.take(2 * SIZE)
    assert sum(len(block) for blocks in memory._blocks.values() for block in blocks) <= 18 * SIZE


class Clock:
    """Seconds that pass when the test advances them."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("count", [None, 100, SIZE, 1 << 25], ids=["nothing", "tiny", "the same", "huge"])
def test_memory_of_a_burst_is_freed_at_once(count):
    """With and without later requests for memory."""
    clock = Clock()
    memory = ChunkMemory(clock=clock)
    views = [memory.take(SIZE) for _ in range(100)]
    kept = views[50]
    address_of_kept = address(kept)
    del views
    clock.now = 1.0
    memory.trim() if count is None else memory.take(count)
    assert memory.nbytes <= 17 * SIZE
    assert address(kept) == address_of_kept
    kept[:1] = b"x"


def test_blocks_in_use_are_never_freed():
    clock = Clock()
    memory = ChunkMemory(clock=clock)
    views = [memory.take(SIZE) for _ in range(30)]
    clock.now = 5.0
    memory.trim()
    assert memory.nbytes == 30 * SIZE
    assert len({address(view) for view in views}) == 30


def test_no_block_is_reused_without_reliable_reference_counts():
    memory = ChunkMemory(pooled=False)
    memory.take(SIZE)
    assert memory.nbytes == 0
