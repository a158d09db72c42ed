import pytest

from zkconsumer.fetch.leaders import fetcher_number, join_until
from zkconsumer.model import TopicPartition


@pytest.mark.parametrize(
    ("fetchers", "topic", "partition", "number"),
    [(3, "t8", 0, 1), (3, "t8", 7, 2), (3, "orders", 2, 0), (4, "t8", 7, 3), (4, "page-views", 1, 1), (8, "t8", 0, 4)],
)
def test_partitions_go_to_the_fetchers_that_the_jvm_chooses(fetchers, topic, partition, number):
    """Check values observed on the JVM (SPEC 6.1)."""
    assert fetcher_number(TopicPartition(topic, partition), fetchers) == number


class Hanging:
    """A thread that does not end within any time; waiting for it advances the clock."""

    name = "hanging"

    def __init__(self, clock):
        self._clock = clock

    def join(self, timeout):
        self._clock.now += timeout

    def is_alive(self):
        return True


class Ending(Hanging):
    name = "ending"

    def join(self, timeout):
        self._clock.now += min(timeout, 0.1)

    def is_alive(self):
        return False


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_threads_that_hang_share_one_deadline():
    clock = Clock()
    threads = [Hanging(clock), Ending(clock), Hanging(clock), Hanging(clock)]
    assert join_until(clock.now + 5, threads, clock) == ["hanging"] * 3
    assert clock.now == 105
