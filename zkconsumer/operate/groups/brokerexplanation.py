"""What keeps a group that brokers coordinate from consuming, and whether its last rebalance has succeeded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC, partition_of_group
from zkconsumer.operate.groups.bothhomes import Explained
from zkconsumer.operate.groups.brokergroups import BrokerGroups, ObservedBrokerGroup
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.clusterfindings import (
    describe_replicas,
    explain_brokers,
    explain_surroundings,
    known_lag,
)
from zkconsumer.operate.groups.finding import Finding, describe_topic
from zkconsumer.operate.groups.lagfindings import NO_MEMBER
from zkconsumer.operate.groups.observedgroup import missing_topics, undescribed_topics
from zkconsumer.operate.groups.rules.lagstatus import describe_sum, lacks_members


def verify_broker_group(brokers: BrokerGroups, group: str) -> Explained[str]:
    """Verify that a member has each partition that the group's members subscribe to. Nothing is written.

    Raises:
        GroupMissing: the brokers have no such group.
        ZkConsumerError: its coordinator cannot be asked.
    """
    observed = brokers.required(group)
    return Explained(observed.live, list(assignment_findings(observed)))


def assignment_findings(group: ObservedBrokerGroup) -> Iterator[str]:
    """What is wrong with the assignment of a group, one sentence each."""
    if not group.live:
        yield f"no consumer of group {group.group} is a member"
        return
    if group.phase == "rebalancing":
        yield f"the group is {group.described.state}"
    yield from undescribed_topics(group)
    for partition in _unassigned(group):
        yield f"no member has partition {partition}"


def _unassigned(group: ObservedBrokerGroup) -> list[TopicPartition]:
    every = (TopicPartition(topic, n) for topic in sorted(group.subscribed) for n in group.existing.get(topic, ()))
    return [partition for partition in every if partition not in group.owners]


def explain_broker_group(group: ObservedBrokerGroup, facts: ClusterFacts) -> list[Finding]:
    """Everything that keeps a group of brokers from consuming, in the order in which an operator would look.

    Args:
        group: as its coordinator describes it.
        facts: what is around it.
    """
    reported = frozenset(missing_topics(group))
    return [
        *_state(group, facts),
        *_without_partitions(group),
        *_without_member(group),
        *explain_surroundings(group, facts, reported=reported),
    ]


def explain_without_coordinator(group: str, error: ZkConsumerError, facts: ClusterFacts) -> list[Finding]:
    """Why no broker coordinates a group of brokers, so that its members can neither join nor commit.

    Args:
        group: its name.
        error: the answer to who coordinates it.
        facts: brokers that do not answer, and the replicas of the topic of offsets.
    """
    count = sum(partition.topic == OFFSETS_TOPIC for partition in facts.replicas)
    if not count:
        reason = f"topic {OFFSETS_TOPIC} does not exist, or is not described"
    else:
        partition = TopicPartition(OFFSETS_TOPIC, partition_of_group(group, count))
        state = facts.states.get(partition)
        leader = "none" if state is None or state.leader < 0 else f"broker {state.leader}"
        reason = f"its coordinator is the leader of {partition}: {leader}; {describe_replicas(facts, partition)}"
    evidence = f"no broker coordinates the group ({error}); {reason}"
    where = describe_topic(OFFSETS_TOPIC, facts.servers)
    return [Finding("no-coordinator", group, evidence, where), *explain_brokers(facts)]


def unknown_elsewhere(group: str, evidence: str) -> Finding:
    """That ZooKeeper, or the brokers that are named, do not report whether they have the group, too."""
    return Finding("unreadable", group, evidence, "check --zookeeper and --bootstrap-server, and that both run")


def two_homes(group: str, evidence: str) -> Finding:
    """A group has members in ZooKeeper and at brokers."""
    return Finding(
        "two-homes",
        group,
        evidence,
        "stop the members of one of them; to move from one to the other, use `zkconsumer migrate`",
    )


def lost_group(group: str, evidence: str) -> Finding:
    """Brokers do not have a group that was migrated to them."""
    words = ["zkconsumer", "offsets", "reset", "--group", group, "--store", "kafka", "--all-topics", "--to-earliest"]
    return Finding(
        NO_MEMBER,
        group,
        evidence,
        "check --bootstrap-server; if it is right, decide where consumers are to begin, as with --to-earliest",
        shlex.join(words),
    )


def _command(group: ObservedBrokerGroup, *words: str) -> str:
    return shlex.join(["zkconsumer", *words, "--group", group.group])


def _state(group: ObservedBrokerGroup, facts: ClusterFacts) -> Iterator[Finding]:
    if not group.live:
        lag = known_lag(group, facts)
        yield Finding(
            NO_MEMBER,
            group.group,
            f"the group is {group.described.state}: no consumer is a member; {describe_sum(lag)}",
            "start a consumer; if one runs, check its group.id, its bootstrap.servers and its log",
            is_problem=lacks_members(lag),
        )
    elif group.phase == "rebalancing":
        coordinator = "" if group.coordinator is None else f"; its coordinator is {group.coordinator}"
        yield Finding(
            "rebalancing",
            group.group,
            f"the group is {group.described.state}, so members wait{coordinator}",
            "wait for max.poll.interval.ms of its members",
            _command(group, "groups", "verify"),
        )


def _without_partitions(group: ObservedBrokerGroup) -> Iterator[Finding]:
    """Members that own nothing although the group is stable."""
    if group.phase == "rebalancing":
        return
    absent = group.absent
    idle: Sequence[str] = [member.member_id for member in group.described.members if not member.assigned]
    for member in group.described.members:
        if member.assigned or not group.undescribed.isdisjoint(member.topics):
            continue
        existing = [topic for topic in member.topics if topic in group.existing]
        if member.topics and absent.issuperset(member.topics):
            yield Finding(
                "idle-member",
                member.member_id,
                f"none of its topics exists ({name_some(sorted(member.topics))})",
                "",
                _command(group, "groups", "describe", "--members"),
            )
        else:
            counts = ", ".join(f"{topic} has {len(group.existing[topic])}" for topic in existing)
            yield Finding(
                "more-threads-than-partitions",
                member.member_id,
                f"{len(group.live)} members share {len(group.owners)} partitions, and {len(idle)} have none"
                + (f": {counts}" if counts else ""),
                "end members, or add partitions",
                is_problem=False,
            )


def _without_member(group: ObservedBrokerGroup) -> Iterator[Finding]:
    unassigned = [] if group.phase == "rebalancing" else _unassigned(group)
    if unassigned:
        yield Finding(
            "no-owner",
            format_partitions(unassigned),
            "members subscribe to the topic, and none of them has the partition",
            "wait for metadata.max.age.ms, after which members notice new partitions",
            _command(group, "groups", "verify"),
        )
