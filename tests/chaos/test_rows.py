"""A sample of trials of each row, with fixed seeds; ``python -m tests.chaos`` runs more."""

from dataclasses import replace

import pytest

from tests.chaos.group import Group
from tests.chaos.kinds import OURS, SESSION_S
from tests.chaos.rows import ROWS
from tests.chaos.schedule import Fault, Schedule
from tests.chaos.trial import run_undisturbed_trial
from zkconsumer.testing.ledger import Claimed, Committed, Released
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths


@pytest.mark.parametrize(
    ("row", "seed", "jvm"),
    [
        ("R1", 1, False),
        ("R1", 2, True),
        ("R2", 1, False),
        ("R3", 1, False),
        ("R3", 2, True),
        ("R4", 1, False),
        ("R7-clean", 1, False),
        ("R7-hard", 1, True),
        ("MIX", 1, False),
        ("SEQ", 3, False),
        ("DONE", 1, False),
    ],
)
def test_a_group_survives(servers, row, seed, jvm):
    schedule = ROWS[row].schedule(seed, jvm=jvm)
    verdict = run_undisturbed_trial(servers, ROWS[row], schedule)
    assert not verdict.failures, f"{verdict.failures}\n{schedule}\npython -m tests.chaos {row} --seed {seed}"


def test_a_group_that_commits_to_kafka_survives(servers):
    schedule = ROWS["R1"].schedule(3, storage="kafka")
    verdict = run_undisturbed_trial(servers, ROWS["R1"], schedule)
    assert not verdict.failures, f"{verdict.failures}\n{schedule}\npython -m tests.chaos R1 --offsets kafka --seed 3"


def test_a_group_that_brokers_coordinate_survives(servers):
    seed = 4  # has all kinds of faults of the row
    schedule = ROWS["KAFKA"].schedule(seed)
    verdict = run_undisturbed_trial(servers, ROWS["KAFKA"], schedule)
    assert not verdict.failures, f"{verdict.failures}\n{schedule}\npython -m tests.chaos KAFKA --seed {seed}"


def test_a_group_survives_slow_brokers_and_clock_steps(servers):
    modes = ("cut", "refuse", "half-close", "delay", "throttle", "overtake")
    fetching = [Fault("fetching", 0.5 * n, n % 3, 1.5, mode) for n, mode in enumerate(modes)]
    clocks = [Fault("clock", 1.0 + 0.5 * n, n, mode=mode) for n, mode in enumerate(("forward", "back", "suspend"))]
    schedule = Schedule((OURS, OURS, OURS), (*fetching, *clocks))
    row = replace(ROWS["MIX"], judges_overlap=True)  # no session ends
    verdict = run_undisturbed_trial(servers, row, schedule)
    assert not verdict.failures, verdict


def test_a_commit_that_a_later_connection_overtook_is_not_stored(servers):
    """Each time the member connects again, its former connection still holds requests."""
    outages = [Fault("network", 0.5 + 3.0 * n, n, 2 * SESSION_S, "overtake") for n in range(2)]
    verdict = run_undisturbed_trial(servers, ROWS["MIX"], Schedule((OURS, OURS, OURS), tuple(outages)))
    assert not verdict.failures, verdict


def test_the_history_of_a_znode_is_that_of_the_server(servers):
    zookeeper, name = servers.zookeeper, "history"
    paths = GroupPaths(name)
    with Group(servers, name) as group:
        offset, owner = f"{paths.offsets}/t/0", f"{paths.owners}/t/0"
        zookeeper.create(offset, b"3", makepath=True)
        zookeeper.create(owner, b"history_a-0", ephemeral=True, makepath=True)
        transaction = zookeeper.transaction()
        transaction.set_data(offset, b"5")
        transaction.delete(owner)
        transaction.commit()
        failing = zookeeper.transaction()
        failing.create(owner, b"history_b-0", ephemeral=True)
        failing.delete(f"{paths.owners}/t/1")
        assert any(isinstance(result, Exception) for result in failing.commit())
        stat = zookeeper.exists(offset)
        records = group.whole_ledger().records
    (claim,), (release,) = ([one for one in records if isinstance(one, kind)] for kind in (Claimed, Released))
    commits = [one for one in records if isinstance(one, Committed)]
    assert (claim.owner, claim.session) == ("history_a", zookeeper.client_id[0] & 0xFFFFFFFFFFFFFFFF)
    assert [one.offset for one in commits] == [3, 5]
    assert (commits[-1].version, commits[-1].mzxid, commits[-1].czxid) == (stat.version, stat.mzxid, stat.czxid)
    assert release.zxid == stat.mzxid
    assert not release.expired
