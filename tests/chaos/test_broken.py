"""Members that are broken on purpose are caught, and the schedule that shows it is made smaller."""

import pytest

from tests.chaos.kinds import COORDINATED, IN_BROKERS, OURS, SESSION_S
from tests.chaos.rows import ROWS
from tests.chaos.schedule import Fault, Schedule
from tests.chaos.trial import run_trial, run_undisturbed_trial, shrink_schedule

STORAGE = {IN_BROKERS: "kafka"}
OUTAGE = Fault("network", 1.0, 0, 3 * SESSION_S, "cut")
"""The member has delivered records that it could not commit, when its session ends."""


@pytest.mark.parametrize(
    ("broken", "row", "fault", "found"),
    [
        ("fence", "R3", OUTAGE, "commits by others than the owner"),
        ("lease", "R3", OUTAGE, "after the lease had ended"),
        ("start", "R7-hard", Fault("bounce", 0.5, 0, mode="hard"), "records lost"),
    ],
)
def test_a_broken_consumer_is_caught(servers, broken, row, fault, found):
    schedule = Schedule((OURS, OURS, OURS), (fault,))
    verdicts = []
    # What a protection prevents is a race: a trial need not meet it, above all on a machine that stands still.
    for _ in range(3):
        verdicts.append(run_trial(servers, ROWS[row], schedule, broken=[broken]))
        if any(found in failure for failure in verdicts[-1].failures):
            return
    pytest.fail(f"not found: {found}; {verdicts}")


CUT_OFF = Fault("fetching", 0.5, 0, 3 * SESSION_S, "cut")
"""It begins while there is a backlog, so that there are records to hand out although no broker answers."""


@pytest.mark.parametrize(
    ("broken", "row", "fault", "found", "kind"),
    [
        ("lease", "R3", CUT_OFF, "after the lease had ended", IN_BROKERS),
        *(
            ("commit", "R7-clean", Fault("bounce", 0.5, 0, mode="clean"), "duplicates", kind)
            for kind in (OURS, COORDINATED, IN_BROKERS)
        ),
        *(
            ("done", "DONE", Fault("kill", 1.0, 0, 0.5), "commits of what was not done", kind)
            for kind in (OURS, COORDINATED, IN_BROKERS)
        ),
    ],
)
def test_a_broken_consumer_of_another_protocol_is_caught(servers, broken, row, fault, found, kind):
    """A commit without its fence is not here: coordinators of brokers have the fence, and refuse it."""
    storage = STORAGE.get(kind, "zookeeper")
    schedule = Schedule((kind,) * 3, (fault,), ROWS[row].manual, storage, ROWS[row].done)
    verdicts = []
    for _ in range(3):
        verdicts.append(run_trial(servers, ROWS[row], schedule, broken=[broken], backlog=6000))
        if any(found in failure for failure in verdicts[-1].failures):
            return
    pytest.fail(f"not found: {found}; {verdicts}")


def test_a_failing_schedule_is_shrunk_and_fails_again(servers):
    matters = Fault("network", 0.5, 0, 1.5 * SESSION_S, "cut")
    others = (Fault("grow", 0.3), Fault("clock", 0.4, 1, mode="forward"))
    schedule = Schedule((OURS, OURS), (matters, *others))
    shrunk = shrink_schedule(servers, ROWS["R3"], schedule, broken=["lease"])
    assert shrunk.faults == (matters,)
    replayed = run_undisturbed_trial(servers, ROWS["R3"], Schedule.from_json(shrunk.to_json()), broken=["lease"])
    assert any("after the lease had ended" in failure for failure in replayed.failures), replayed
