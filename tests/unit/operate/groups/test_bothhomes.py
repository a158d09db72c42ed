"""A group that is looked for in ZooKeeper and at brokers, of which one does not answer, or refuses."""

from dataclasses import replace

import pytest

from tests.fixtures.groups import group_znodes
from tests.unit.operate.groups.test_everygroup import T0, T1, at_brokers
from zkconsumer.errors import (
    BrokerUnavailable,
    ChrootMissing,
    GroupMissing,
    NoCommonVersion,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.operate.groups.bothhomes import Explained, Looks, counting_findings, look_in_both
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.everygroup import GroupInBoth
from zkconsumer.operate.groups.explanation import explain_group, explain_mark
from zkconsumer.operate.groups.groupverification import explain_rebalance
from zkconsumer.operate.groups.rules.lagstatus import LagStatus, evaluate_group
from zkconsumer.operate.groups.rules.lagstretches import LagSample, Stretches, follow
from zkconsumer.zookeeper.rules.znodes import MigrationMark

NO_ZOOKEEPER, NO_BROKER, REFUSED = (
    ZooKeeperUnavailable("no server"),
    BrokerUnavailable("no broker"),
    ZooKeeperRefused("no ACL"),
)
MISSING = GroupMissing("no such group")
ELSEWHERE = "whether it has members {}, too, is unknown: {}"


def looked(in_znodes, at_brokers):
    """What is found, and what is warned of, where each home has these members, or an error."""
    warned = []

    def look(answer):
        if isinstance(answer, Exception):
            raise answer
        return Explained(frozenset(answer), [f"found {answer}"])

    looks = Looks(
        lambda: look(in_znodes), lambda: look(at_brokers), lambda _: Explained(frozenset(), ["coordinator"]),
        str, warned.append, str, str,
    )  # fmt: skip
    return look_in_both("g", looks), warned


@pytest.mark.parametrize(
    ("in_znodes", "at_brokers", "found", "warned"),
    [
        (NO_ZOOKEEPER, "b", ["found b"], [ELSEWHERE.format("in ZooKeeper", "no server")]),
        (NO_ZOOKEEPER, "", ["found ", ELSEWHERE.format("in ZooKeeper", "no server")], []),
        (REFUSED, "b", ["found b", ELSEWHERE.format("in ZooKeeper", "no ACL")], []),
        ("z", NO_BROKER, ["found z", ELSEWHERE.format("at brokers", "no broker")], []),
        ("z", NoCommonVersion("old"), ["found z"], []),
        (MISSING, NO_BROKER, ["coordinator"], []),
    ],
)
def test_a_group_is_shown_with_what_is_unknown_of_the_other_home(in_znodes, at_brokers, found, warned):
    assert looked(in_znodes, at_brokers) == (found, warned)


def test_without_a_way_to_warn_what_is_unknown_is_a_finding():
    def silent():
        raise NO_ZOOKEEPER

    looks = Looks(silent, lambda: Explained(frozenset("b"), ["found b"]), None, str, None, str, str)
    assert look_in_both("g", looks) == ["found b", ELSEWHERE.format("in ZooKeeper", "no server")]


@pytest.mark.parametrize(
    ("in_znodes", "at_brokers", "raised"),
    [
        (NO_ZOOKEEPER, MISSING, "no server"),
        (NO_ZOOKEEPER, NO_BROKER, "no server"),
        (REFUSED, MISSING, "no ACL"),
        (ChrootMissing("no chroot"), "b", "no chroot"),
        (MISSING, NoCommonVersion("old"), "exists neither in ZooKeeper nor at the brokers"),
    ],
)
def test_why_a_group_is_found_nowhere(in_znodes, at_brokers, raised):
    with pytest.raises(Exception, match=raised):
        looked(in_znodes, at_brokers)


def test_a_migrated_group_is_judged_where_its_consumers_should_be():
    """1. A group is migrated; 2. its consumers run at brokers, and end: the mark must not hide that none consumes."""
    znodes = replace(group_znodes(topics={"t": 2}, offsets={"t-0": 5}), mark=MigrationMark("migrated", "kafka:g", 1))
    both = GroupInBoth(znodes, at_brokers())
    behind = LagSample(0.0, 5, None, 0, 9, None, owner_live=False)
    status = evaluate_group({T0: [follow(Stretches(), behind)]}, 2, members=0, mark=both.mark)
    without_member = Explained(frozenset(), ["no consumer is a member"])
    assert (status.status, status.is_problem) == (LagStatus.NO_MEMBERS, True)
    assert counting_findings("g", explain_rebalance(znodes), without_member, str) == ["no consumer is a member"]


@pytest.mark.parametrize(
    ("state", "target", "is_problem"),
    [
        ("migrated", "kafka:g", False),
        ("migrated", "kafka:h", True),
        ("migrating", "kafka:g", True),
        ("undoing", "kafka:g", True),
    ],
)
def test_explain_and_verify_report_the_mark_that_status_reports(state, target, is_problem):
    """1. A run is killed after the last offset; 2. consumers start at brokers: the migration is still not complete."""
    znodes = replace(group_znodes(topics={"t": 2}, offsets={"t-0": 5}), mark=MigrationMark(state, target, 1))
    brokers = at_brokers(T0, T1)
    both = GroupInBoth(znodes, brokers)
    status = evaluate_group({}, 2, members=len(both.live), mark=both.mark, in_two_homes=both.in_two_homes)
    explained = Explained(znodes.live, explain_group(znodes, ClusterFacts()), znodes.mark, explain_mark(znodes))
    healthy = Explained(brokers.live, [])
    found = counting_findings("g", explained, healthy, str)
    verified = counting_findings("g", explain_rebalance(znodes), healthy, str)
    assert status.is_problem == is_problem
    assert [finding.kind for finding in found] == ["migrated"] * is_problem
    assert verified == [finding.evidence for finding in found]


@pytest.mark.parametrize(
    ("target", "not_at_brokers", "found"),
    [
        ("kafka:g", MISSING, "the brokers have no group g"),
        ("kafka:g", NO_BROKER, ELSEWHERE.format("at brokers", "no broker")),
        ("kafka:h", MISSING, None),
    ],
)
def test_what_explain_and_verify_find_of_a_migrated_group_that_brokers_do_not_show(target, not_at_brokers, found):
    """1. A group is migrated; 2. its offsets at brokers expire, as no consumer has run since: its mark hides it."""
    mark = MigrationMark("migrated", target, 1)
    znodes = replace(group_znodes(topics={"t": 2}, offsets={"t-0": 5}), mark=mark)

    def ask_brokers():
        raise not_at_brokers

    looks = Looks(lambda: explain_rebalance(znodes), ask_brokers, None, str, None, str, str)
    findings = look_in_both("g", looks)
    assert [finding.partition(",")[0] for finding in findings] == ([] if found is None else [found.partition(",")[0]])
