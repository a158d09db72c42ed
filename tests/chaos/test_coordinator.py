"""Groups with a coordinator under faults, audited by the ledger; ``python -m tests.chaos`` takes further seeds."""

from dataclasses import replace

import pytest

from tests.chaos.kinds import COORDINATED, JVM, OURS, SESSION_S
from tests.chaos.rows import ROWS
from tests.chaos.schedule import LEADER, Fault, Schedule
from tests.chaos.trial import run_undisturbed_trial


def expect_survival(servers, row, schedule):
    """Run a trial; the row's own requirements and those of all rows hold."""
    verdict = run_undisturbed_trial(servers, row, schedule)
    assert not verdict.failures, f"{verdict.failures}\n{schedule}"


@pytest.mark.parametrize(
    ("row", "seed", "jvm"),
    [
        ("R1", 1, False),
        ("R1", 2, True),
        ("R2", 1, False),
        ("R3", 2, False),
        ("R4", 1, False),
        ("R7-clean", 1, False),
        ("R7-hard", 1, True),
        ("R8", 3, True),
        ("MIX", 1, False),
    ],
)
def test_a_group_with_a_coordinator_survives(servers, row, seed, jvm):
    expect_survival(servers, ROWS[row], ROWS[row].schedule(seed, jvm=jvm, ours=COORDINATED))


def test_a_leader_that_is_killed_in_the_middle_of_moves_loses_nothing(servers):
    """Each time another member has just joined, so that partitions are on their way to it."""
    kills = [
        Fault("kill", 0.5, 0, 1.0),
        Fault("kill", 1.6, LEADER, 1.5 * SESSION_S),
        Fault("kill", 7.0, 1, 0.5),
        Fault("kill", 7.55, LEADER, 1.0),
    ]
    expect_survival(servers, replace(ROWS["MIX"], judges_overlap=True), Schedule((COORDINATED,) * 3, tuple(kills)))


def test_a_leader_that_is_stopped_in_the_middle_of_moves_commands_nothing_later(servers):
    """The split brain: it continues with what it had planned, in the epoch of its successor."""
    faults = [
        Fault("kill", 0.5, 0, 1.0),
        Fault("pause", 1.6, LEADER, 2.5 * SESSION_S),
        Fault("kill", 9.0, LEADER, 0.5),
        Fault("pause", 9.6, LEADER, 2.0 * SESSION_S),
    ]
    expect_survival(servers, ROWS["MIX"], Schedule((COORDINATED,) * 3, tuple(faults)))


def test_a_leader_whose_session_ends_or_cannot_be_reached_is_replaced(servers):
    faults = [
        Fault("kill", 0.5, 0, 0.5),
        Fault("expire", 1.1, LEADER),
        Fault("network", 5.0, LEADER, 2.5 * SESSION_S, "cut"),
        Fault("network", 12.0, LEADER, 2.5 * SESSION_S, "overtake"),
    ]
    expect_survival(servers, ROWS["MIX"], Schedule((COORDINATED,) * 3, tuple(faults)))


@pytest.mark.parametrize("third", [OURS, JVM])
def test_a_rolling_change_of_the_protocol_and_back_loses_nothing(servers, third):
    """Under load; a JVM consumer stays in the group all the time."""
    places = range(2 if third == JVM else 3)
    there = [Fault("switch", 0.5 + number, place, mode=COORDINATED) for number, place in enumerate(places)]
    back = [Fault("switch", 4.5 + number, place, mode=OURS) for number, place in enumerate(places)]
    schedule = Schedule((OURS, OURS, third), (*there, *back), manual=True)
    expect_survival(servers, ROWS["R7-clean" if third == OURS else "R7-hard"], schedule)
