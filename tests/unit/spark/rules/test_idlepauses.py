"""The pauses of idle triggers."""

import pytest

from zkconsumer.spark.rules.idlepauses import IdlePauses, longest_pause_s


@pytest.mark.parametrize(("wait_ms", "seconds"), [(0, 0.0), (100, 0.1), (500, 0.5), (20_000, 0.5)])
def test_brokers_are_asked_once_per_fetch_wait_and_twice_a_second(wait_ms, seconds):
    assert longest_pause_s(wait_ms) == seconds


def test_pauses_grow_up_to_the_longest():
    idle, now, pauses = IdlePauses(), 100.0, []
    for _ in range(6):
        pause_s = idle.next_pause_s(now, 0.8)
        pauses.append(pause_s)
        idle = IdlePauses(now + pause_s, pause_s)
        now = idle.ended_at + 0.01
    assert pauses == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 0.8])


def test_a_late_trigger_does_not_pause():
    idle = IdlePauses(100.0, 0.5)
    assert idle.next_pause_s(100.49, 0.5) == 0.5
    assert idle.next_pause_s(100.5, 0.5) == 0.0
    assert idle.next_pause_s(100.0, 0.0) == 0.0, "nothing to wait for with fetch.wait.max.ms=0"
