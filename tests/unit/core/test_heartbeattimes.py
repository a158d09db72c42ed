from math import inf

import pytest

from zkconsumer.core.heartbeattimes import heartbeat_pause


def test_pauses_after_an_assignment_double_up_to_the_interval():
    at, pauses = 0.0, []
    while at < 10:
        pauses.append(heartbeat_pause(3.0, at))
        at += pauses[-1]
    assert pauses == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0])


@pytest.mark.parametrize(("interval_s", "since_s"), [(3.0, inf), (0.05, 0.0), (0.05, 7.0)])
def test_pause_is_never_longer_than_the_interval(interval_s, since_s):
    assert heartbeat_pause(interval_s, since_s) == interval_s
