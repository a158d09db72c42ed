"""What keeps a group of brokers from consuming."""

from dataclasses import replace
from functools import partial

import pytest

from tests.unit.operate.groups.test_everygroup import T0, T1, at_brokers
from zkconsumer.model import Broker
from zkconsumer.operate.groups.bothhomes import Explained, counting_findings
from zkconsumer.operate.groups.brokerexplanation import assignment_findings, explain_broker_group, two_homes
from zkconsumer.operate.groups.brokergroups import ObservedBrokerGroup
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.rules.clusterznodes import LeaderAndIsr
from zkconsumer.wire.rules.describedgroup import DescribedGroup, DescribedMember

FOUND = Finding("no-owner", "t-0", "e", "n")
HEALTHY = {
    "replicas": {T0: (1,), T1: (1,)},
    "states": {T0: LeaderAndIsr(1, 3, (1,)), T1: LeaderAndIsr(1, 3, (1,))},
    "log_ends": {T0: 9, T1: 9},
    "bootstrap_servers": "b:1",
}


def kinds(group, **facts):
    return [(one.kind, one.subject) for one in explain_broker_group(group, ClusterFacts(**{**HEALTHY, **facts}))]


def of_members(*members, state="Stable", existing=None):
    described = DescribedGroup("classic", state, "range", members)
    return ObservedBrokerGroup(
        "g", described, Broker(1, "h", 9), {}, existing={"t": (0, 1)} if existing is None else existing
    )


def member(name, *assigned, topics=("t",)):
    return DescribedMember(name, "c", None, frozenset(assigned), "/h", topics)


def test_nothing_is_found_where_nothing_is_wrong():
    assert kinds(at_brokers(T0, T1, offsets=[(T0, 5)])) == []
    assert list(assignment_findings(at_brokers(T0, T1))) == []


@pytest.mark.parametrize(
    ("group", "found", "verified"),
    [
        (of_members(state="Empty"), [("no-member", "g")], ["no consumer of group g is a member"]),
        (
            of_members(member("a"), state="PreparingRebalance"),
            [("rebalancing", "g")],
            ["the group is PreparingRebalance", "no member has partition t-0", "no member has partition t-1"],
        ),
        (
            of_members(member("a"), state="AwaitingSync"),
            [("rebalancing", "g")],
            ["the group is AwaitingSync", "no member has partition t-0", "no member has partition t-1"],
        ),
        (of_members(state="Dead"), [("no-member", "g")], ["no consumer of group g is a member"]),
        (of_members(member("a", T0)), [("no-owner", "t 1")], ["no member has partition t-1"]),
        (of_members(member("a", T0, T1), member("b")), [("more-threads-than-partitions", "b")], []),
        (
            of_members(member("a", T0, T1), member("b", topics=("gone",))),
            [("idle-member", "b"), ("unknown-topic", "gone")],
            ["topic gone does not exist"],
        ),
    ],
)
def test_members_and_partitions(group, found, verified):
    assert kinds(group) == found
    assert list(assignment_findings(group)) == verified


@pytest.mark.parametrize(("committed", "is_problem"), [({T0: 5}, True), ({T0: 9}, False), ({}, False)])
def test_a_group_without_members_is_a_problem_if_it_has_lag(committed, is_problem):
    facts = ClusterFacts(**HEALTHY, committed=committed)
    (finding,) = explain_broker_group(of_members(state="Empty"), facts)
    assert (finding.kind, finding.is_problem) == ("no-member", is_problem)


def test_topics_that_brokers_do_not_describe_are_not_absent_and_not_verified():
    group = replace(of_members(member("a", T0, T1, topics=("t", "secret"))), undescribed=frozenset({"secret"}))
    assert kinds(group) == []
    assert list(assignment_findings(group)) == ["partitions of topic secret are unknown"]
    idle = of_members(member("a", T0, T1), member("b", topics=("t", "secret")), member("c", topics=("secret",)))
    assert kinds(replace(idle, undescribed=frozenset({"secret"}))) == [], "they may have partitions of it"


def test_offsets_leaders_and_brokers():
    group = at_brokers(T0, T1, offsets=[(T0, 12)])
    found = kinds(
        group,
        committed={T0: 12},
        states={T0: LeaderAndIsr(-1, 3, ()), T1: LeaderAndIsr(1, 3, (1,))},
        unreachable={Broker(2, "h", 9): "silent"},
    )
    assert found == [
        ("offset-outside-log", "t-0"),
        ("broker-unreachable", str(Broker(2, "h", 9))),
        ("no-leader", "t-0"),
    ]


@pytest.mark.parametrize(
    ("in_znodes", "at_brokers", "found"),
    [
        (None, None, []),
        (([], [FOUND]), None, ["no-owner"]),
        (None, (["m"], [FOUND]), ["no-owner"]),
        ((["a"], []), ([], [FOUND]), []),  # it stores its offsets in Kafka
        (([], [FOUND]), (["m"], []), []),  # it has left its znodes behind
        ((["a"], [FOUND]), (["m"], [FOUND]), ["two-homes", "no-owner"]),
    ],
)
def test_a_group_of_both(in_znodes, at_brokers, found):
    explained = [None if part is None else Explained(frozenset(part[0]), part[1]) for part in (in_znodes, at_brokers)]
    assert [one.kind for one in counting_findings("g", *explained, partial(two_homes, "g"))] == found


def test_members_that_have_committed_nothing_although_there_are_records():
    logs = {"log_starts": {T0: 0, T1: 4}}
    (finding,) = explain_broker_group(of_members(member("a", T0, T1)), ClusterFacts(**{**HEALTHY, **logs}))
    assert (finding.kind, finding.subject) == ("no-commit", "t 0-1")
    assert finding.evidence == "2 partitions have 14 records and no committed offset"
    assert finding.next_command == "zkconsumer groups status --group g"
    assert kinds(of_members(member("a", T0, T1)), **logs, committed={T0: 5}) == []
    assert kinds(of_members(member("a", T0, T1)), **logs, unread=frozenset({T0})) == []
    assert kinds(of_members(member("a", T0, T1)), log_starts={T0: 9, T1: 9}) == []


def test_a_spare_member_is_no_problem():
    (finding,) = explain_broker_group(of_members(member("a", T0, T1), member("b")), ClusterFacts(**HEALTHY))
    assert (finding.kind, finding.is_problem) == ("more-threads-than-partitions", False)
