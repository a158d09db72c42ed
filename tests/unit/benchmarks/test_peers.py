import pytest

from benchmarks.task import Clock, Task


@pytest.fixture
def task():
    return Task("", "", "group", "topic", partitions=1, records=100, seconds=60.0)


def test_the_first_records_start_the_clock_and_do_not_count(task):
    clock = Clock(task)
    assert not clock.note(0)
    assert not clock.note(40)
    assert (clock.counted, clock.elapsed) == (0, 0.0)
    assert not clock.note(50)
    assert clock.note(10)
    assert clock.counted == 60
    assert clock.elapsed > 0


def test_a_slow_contestant_is_stopped(task):
    clock = Clock(task._replace(seconds=0.0))
    assert not clock.note(1)
    assert clock.note(1)
