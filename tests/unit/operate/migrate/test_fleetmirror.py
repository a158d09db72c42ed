"""The mirror of a fleet, of whose groups copies fail."""

from contextlib import closing, nullcontext
from dataclasses import replace

import pytest

from zkconsumer.errors import BrokerUnavailable, ChrootMissing, HoldReason, WriteRefused, ZkConsumerError
from zkconsumer.operate.migrate import fleetmirror
from zkconsumer.operate.migrate.fleet import for_each
from zkconsumer.operate.migrate.fleetfiles import GroupFiles, Job
from zkconsumer.operate.migrate.fleetmirror import FleetMirror, run_fleet_mirror
from zkconsumer.operate.migrate.mirror import CopyReport
from zkconsumer.operate.migrate.rules.fleetfile import FleetFile, FleetGroup
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.planfile import encode_plan
from zkconsumer.operate.offsets.snapshot import exclusive


@pytest.fixture
def job(tmp_path, servers):
    servers.begin("zookeeper:g", "kafka:g")
    files = GroupFiles(tmp_path / "fleet" / "g")
    files.directory.mkdir(parents=True)
    files.plan_file.write_text(encode_plan(servers.plan))
    group = FleetGroup("g", 1, "", End("kafka", "g"))
    return Job(FleetFile("c", "h:1", "", "", (group,)), group, files)


@pytest.fixture
def copies(monkeypatch):
    """What becomes of the next copies."""
    outcomes = []

    def copy(_mirror, _ends):
        if isinstance(outcome := outcomes.pop(0), Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(fleetmirror.Mirror, "copy", copy)
    return outcomes


@pytest.mark.parametrize(
    ("error", "most"),
    [
        (ZkConsumerError("not authorized"), 3),
        (OSError("Read-only file system"), 3),
        (WriteRefused("members live"), 1),
        (WriteRefused(HoldReason("another tool is writing")), None),
        (BrokerUnavailable("away"), None),
    ],
)
def test_what_waiting_does_not_cure_ends_the_mirror_of_a_group(job, copies, error, most):
    """As for a single mirror; the plan is released for other commands."""
    mirror = FleetMirror([job])
    copies += [error, CopyReport(()), *[error] * 5]
    tried = 0
    while mirror.is_copied(job) and copies:
        tried += 1
        try:
            mirror.copy(None, job)
        except (ZkConsumerError, OSError) as raised:
            is_held = isinstance(error, WriteRefused) and error.is_held
            assert (raised.__cause__ if is_held else raised) is error  # noqa: PT017 - of some copies
            assert not (is_held and isinstance(raised, WriteRefused)), "it has failed, and is tried again"  # noqa: PT017
    assert tried == {3: 5, 1: 1, None: 7}[most]
    if most is None:
        with pytest.raises(WriteRefused, match="its mirror"), exclusive(job.files.plan_file):
            pass
        mirror.close()
    with exclusive(job.files.plan_file):
        mirror.close()


@pytest.mark.parametrize(("error", "rounds"), [(ChrootMissing("no chroot"), 3), (BrokerUnavailable("away"), 5)])
def test_servers_that_refuse_to_connect_end_the_mirror_of_their_groups(job, error, rounds):
    """As a single mirror does: otherwise it would run until its time is over, and copy nothing."""
    seen = []

    def connect():
        raise error

    with closing(FleetMirror([job])) as mirror:
        run_fleet_mirror(
            [(connect, [job])],
            mirror,
            duration=5,
            interval=1,
            workers=2,
            pause=lambda _seconds: len(seen) == 5,
            show=seen.append,
            clock=lambda: 0.0,
        )
    assert [[(one.outcome, one.reasons) for one in outcomes] for outcomes in seen] == [
        [("failed", (str(error),))]
    ] * rounds


def test_groups_whose_plans_cannot_be_locked_do_not_end_the_mirror_of_others(job, copies, servers, tmp_path):
    """Also if servers were away, so that it was not asked which groups were migrated."""
    copies += [CopyReport(())]
    planless, broken, locked = (job._replace(files=GroupFiles(tmp_path / name)) for name in ("a", "b", "c"))
    for one, text in ((broken, "{"), (locked, job.files.plan_file.read_text())):
        one.files.directory.mkdir()
        one.files.plan_file.write_text(text)
    jobs = [one._replace(group=replace(job.group, group=f"g{at}")) for at, one in enumerate((planless, broken, locked))]
    seen = []
    with closing(FleetMirror([*jobs, job])) as mirror, exclusive(locked.files.plan_file):
        faults = run_fleet_mirror(
            [(lambda: nullcontext((None, servers.brokers)), [*jobs, job])],
            mirror,
            duration=0,
            interval=1,
            workers=1,
            pause=lambda _seconds: True,
            show=seen.append,
            clock=lambda: 0.0,
        )
        assert [mirror.is_copied(one) for one in (*jobs, job)] == [False, True, False, True]
    assert [one.outcome for one in seen[0]] == ["refused", "failed", "refused", "done"]
    assert [name for _, name in faults] == ["g0", "g1", "g2"]


def test_groups_for_which_the_system_allows_no_connection_have_failed(job):
    def connect():
        raise OSError(24, "Too many open files")

    (outcome,) = for_each([job], connect, lambda _ends, _job: None, workers=2)
    assert (outcome.outcome, outcome.reasons) == ("failed", ("[Errno 24] Too many open files",))
