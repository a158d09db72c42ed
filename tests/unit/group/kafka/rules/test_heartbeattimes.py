from math import inf

import pytest

from zkconsumer.group.kafka.rules.heartbeattimes import heartbeat_pause


def times(interval_s, until, late_s=0.0):
    """When heartbeats are sent after an assignment, each of them late."""
    at = 0.0
    while True:
        at += heartbeat_pause(interval_s, at) + late_s
        if at > until:
            return
        yield at


def test_heartbeats_come_sooner_after_an_assignment():
    assert list(times(3.0, 10.0)) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 6.0, 9.0])


def test_late_heartbeat_does_not_put_off_the_others():
    assert list(times(3.0, 10.0, late_s=0.05)) == pytest.approx([0.15, 0.25, 0.45, 0.85, 1.65, 3.05, 6.05, 9.05])
    assert heartbeat_pause(3.0, 8.5) == pytest.approx(0.5)


def test_time_of_a_heartbeat_is_not_the_next_one_again():
    assert heartbeat_pause(3.0, 3.0 - 1e-9) == pytest.approx(3.0)
    assert heartbeat_pause(3.0, 0.2 - 1e-9) == pytest.approx(0.2)


@pytest.mark.parametrize("since_s", [0.0, 0.03, 0.1, 1.0, 2.9, 3.0, 7.0, 1e6, inf])
@pytest.mark.parametrize("interval_s", [0.01, 0.1, 3.0])
def test_pause_is_positive_and_not_longer_than_the_interval(interval_s, since_s):
    assert 0 < heartbeat_pause(interval_s, since_s) <= interval_s
