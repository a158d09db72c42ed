"""When the events of a round happen."""

from itertools import pairwise

from benchmarks.brokergroup import phase


def test_events_of_few_rounds_are_spread_over_a_heartbeat_interval():
    fractions = sorted(phase(number) for number in range(10))
    assert max(later - earlier for earlier, later in pairwise([0.0, *fractions, 1.0])) < 0.2
