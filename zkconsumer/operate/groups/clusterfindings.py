"""Findings about what surrounds a group: offsets, topics, brokers, leaders, access, clocks, sessions and quotas."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import AFTER_LOG, BEFORE_LOG, lag, outside_log, sum_known
from zkconsumer.offsets.rules.topicorigins import WrittenFor
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.finding import Finding, describe_topic
from zkconsumer.operate.groups.lagfindings import CHECK_COMMITS, NO_COMMIT
from zkconsumer.operate.groups.observedgroup import ObservedGroup
from zkconsumer.operate.groups.rules.quotas import quota_title, quotas_that_apply
from zkconsumer.operate.groups.rules.znodeaccess import locked_out
from zkconsumer.zookeeper.rules.znodes import BROKER_IDS

_CLOCK_TOLERANCE_S: Final = 30.0

_EPOCH_JUMP: Final = 10
"""So many elections more than the other partitions of a topic had do not come from restarts, which concern all."""


def explain_surroundings(
    group: ObservedGroup, facts: ClusterFacts, *, reported: Container[str] = ()
) -> Iterator[Finding]:
    """What around a group keeps it from consuming, in the order in which an operator would look.

    Args:
        group: in ZooKeeper, or of brokers.
        facts: what is around it.
        reported: those of its problems that are findings already.
    """
    yield from _offsets(group, facts)
    yield from _commits(group, facts)
    yield from _topics(group)
    yield from explain_brokers(facts)
    yield from _leaders(group, facts)
    yield from _leader_epochs(facts)
    yield from _unreadable(group, facts, reported)
    yield from _access(group, facts)
    yield from _clocks(facts)
    yield from _sessions(facts)
    yield from _quotas(group, facts)


def _offsets(group: ObservedGroup, facts: ClusterFacts) -> Iterator[Finding]:
    """A finding for each partition; the first of those of one topic with one remedy has a command for all of them."""
    found = list(_misplaced(facts))
    alike: dict[tuple[str, _Remedy], list[TopicPartition]] = {}
    for _, partition, _, remedy in found:
        alike.setdefault((partition.topic, remedy), []).append(partition)
    for kind, partition, evidence, remedy in found:
        partitions = alike[partition.topic, remedy]
        if partition != partitions[0]:
            yield Finding(kind, str(partition), evidence, f"as for {partitions[0]}")
            continue
        yield Finding(kind, str(partition), evidence, remedy.to_do, _reset(group, partitions, remedy.where))


def _commits(group: ObservedGroup, facts: ClusterFacts) -> Iterator[Finding]:
    """Members that have committed nothing, although there are records; one look does not show for how long."""
    if facts.committed or facts.outdated or facts.unread:
        return
    ends, starts = facts.log_ends, facts.log_starts
    records = {p: ends[p] - starts[p] for p in sorted(ends.keys() & starts.keys()) if group.is_live(p)}
    partitions = [partition for partition, count in records.items() if count > 0]
    if partitions:
        yield Finding(
            NO_COMMIT,
            format_partitions(partitions),
            f"{len(partitions)} partitions have {sum(records.values())} records and no committed offset",
            "right after the members' start, wait for auto.commit.interval.ms; members of librdkafka that begin at the "
            f"log end commit nothing before they read a record; otherwise {CHECK_COMMITS}",
            shlex.join(["zkconsumer", "groups", "status", "--group", group.group]),
        )


class _Remedy(NamedTuple):
    """What to do about an offset, and where a reset sets it."""

    to_do: str
    where: Literal["earliest", "latest"]


_TO_EARLIEST: Final = _Remedy("stop all members", "earliest")
_TO_LATEST: Final = _Remedy("stop all members", "latest")


def _misplaced(facts: ClusterFacts) -> Iterator[tuple[str, TopicPartition, str, _Remedy]]:
    """Offsets that are not where a member can continue: the kind of finding, the partition, evidence and remedy."""
    for partition, former in sorted(facts.outdated.items()):
        yield (
            "earlier-topic",
            partition,
            f"the offset {former} was stored for an earlier topic of that name and does not count; zkconsumer members "
            "begin at the log start",
            _Remedy("nothing, unless members are of the JVM, which use that offset: then stop all members", "earliest"),
        )
    for partition, offset in sorted(facts.committed.items()):
        start, end = facts.log_starts.get(partition), facts.log_ends.get(partition)
        outside = outside_log(offset, start, end)
        if outside == BEFORE_LOG:
            evidence = (
                f"committed offset {offset} lies {outside} {start or 0}: {(start or 0) - offset} records were deleted "
                "before they were consumed"
            )
            yield "offset-outside-log", partition, evidence, _TO_EARLIEST
        elif outside == AFTER_LOG:
            state = facts.states.get(partition)
            epoch = "" if state is None else f"; the leader epoch is {state.leader_epoch}"
            why, remedy = _shorter_log(facts, partition)
            evidence = f"committed offset {offset} lies {outside} {end}: {why}{epoch}"
            yield "offset-outside-log", partition, evidence, remedy


def _shorter_log(facts: ClusterFacts, partition: TopicPartition) -> tuple[str, _Remedy]:
    """Why a log ends before an offset, and what to do: no record of a topic that was created again has been consumed.

    A topic's znode is created with the topic, and an offset in ZooKeeper shows the transaction that wrote it. Where
    brokers describe topics, that znode is no sign: brokers that were migrated have left it behind.
    """
    node, origin = facts.offset_nodes.get(partition), facts.origins.get(partition.topic)
    if node is None or origin is None or origin.identity.czxid is None:
        why = "the log was truncated by an unclean leader election, or the topic was created again"
        to_do = "stop all members; if the topic was created again, use --to-earliest instead, which skips no record"
        return why, _Remedy(to_do, "latest")
    if origin.judge(node.mzxid) is WrittenFor.BEFORE:
        why = "the topic was created again after that commit, unless ZooKeeper was filled by copying or restored"
        return f"{why}: then the log was truncated", _TO_EARLIEST
    return "the log was truncated by an unclean leader election, or the offset was set by hand", _TO_LATEST


def _reset(group: ObservedGroup, partitions: Sequence[TopicPartition], where: str) -> str:
    chosen = f"{partitions[0].topic}:{','.join(str(partition.partition) for partition in partitions)}"
    return shlex.join(["zkconsumer", "offsets", "reset", "--group", group.group, "--topic", chosen, f"--to-{where}"])


def _topics(group: ObservedGroup) -> Iterator[Finding]:
    for topic in sorted(group.subscribed & group.absent):
        yield Finding(
            "unknown-topic",
            topic,
            "a member subscribes to it, and it does not exist",
            "create the topic, or correct the subscription; in ZooKeeper check the chroot, too",
        )


def explain_brokers(facts: ClusterFacts) -> Iterator[Finding]:
    """Brokers that do not answer or are not registered, and whether one is the controller."""
    if not facts.has_brokers:
        yield Finding(
            "no-broker",
            BROKER_IDS,
            "no broker is registered, so nothing can be fetched, and log ends are unknown",
            "start the brokers; if they run, check the chroot of zookeeper.connect, or give --bootstrap-server",
        )
        return
    for broker, reason in sorted(facts.unreachable.items()):
        yield Finding(
            "broker-unreachable",
            str(broker),
            reason,
            "check that the broker runs and that its advertised listener is reachable from here",
        )
    if not facts.controller:
        yield _no_controller(facts)


def _no_controller(facts: ClusterFacts) -> Finding:
    if facts.bootstrap_servers:
        return Finding(
            "no-controller",
            f"metadata of {facts.bootstrap_servers}",
            "the brokers' metadata names no controller, so leaders are not elected",
            "check the brokers' logs; since Kafka 4 also those of the controllers, of which a majority has to run",
        )
    return Finding(
        "no-controller",
        "/controller",
        "there is no such znode, so leaders are not elected",
        "check the brokers' logs; a broker becomes controller when it can create the znode",
    )


def _leaders(group: ObservedGroup, facts: ClusterFacts) -> Iterator[Finding]:
    existing = (p for p in group.partitions if p.partition in group.existing.get(p.topic, ()))
    only_in_kafka = (p for p in facts.committed.keys() - set(group.partitions) if p in facts.replicas)
    for partition in sorted({*existing, *only_in_kafka}):
        state, replicas = facts.states.get(partition), facts.replicas.get(partition, ())
        if state is None and not replicas:
            continue  # nothing is known of it, which is a problem of the facts
        where = describe_replicas(facts, partition)
        describe = describe_topic(partition.topic, facts.servers)
        if state is None or state.leader < 0:
            yield Finding("no-leader", str(partition), f"it has no leader; {where}", describe)
        elif len(state.isr) < len(replicas):
            yield Finding("short-isr", str(partition), f"leader {state.leader}, {where}", describe)
        if state is not None and replicas and state.isr and not set(state.isr) <= set(replicas):
            yield Finding("reassignment", str(partition), f"a broker in sync is no replica: {where}", describe)


def known_lag(group: ObservedGroup, facts: ClusterFacts) -> int | None:
    """The lag of a group in records, of the partitions where it is known; None if it is known of none."""
    partitions = {*group.partitions, *facts.committed}
    return sum_known(lag(facts.committed.get(p), facts.log_ends.get(p)) for p in partitions)


def describe_replicas(facts: ClusterFacts, partition: TopicPartition) -> str:
    """Replicas of a partition, in words."""
    state = facts.states.get(partition)
    in_sync = () if state is None else state.isr
    replicas = facts.replicas.get(partition, ())
    registered = {broker.id for broker in (*facts.answering, *facts.unreachable)}
    gone = tuple(number for number in replicas if registered and number not in registered)
    not_registered = f", not registered {_numbers(gone)} (down, or hanging)" if gone else ""
    return f"replicas {_numbers(replicas)}, in sync {_numbers(in_sync)}{not_registered}"


def _numbers(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _leader_epochs(facts: ClusterFacts) -> Iterator[Finding]:
    """Each election raises the epoch of its partition by one, and each may lose records if it is unclean."""
    for partition, state in sorted(facts.states.items()):
        before = facts.states_before.get(partition, state)
        other_epochs = [
            other.leader_epoch for p, other in facts.states.items() if p.topic == partition.topic and p != partition
        ]
        if state.leader_epoch > before.leader_epoch:
            evidence = f"it rose from {before.leader_epoch} to {state.leader_epoch} while this command ran"
        elif other_epochs and state.leader_epoch - median(other_epochs) >= _EPOCH_JUMP:
            evidence = f"it is {state.leader_epoch}, and {median(other_epochs):g} for the other partitions of the topic"
        else:
            continue
        yield Finding(
            "leader-epoch",
            str(partition),
            f"its leader changes often: {evidence}; the leader is {state.leader}, in sync {_numbers(state.isr)}",
            "look for this partition in the controller's state-change.log, and for lost sessions and full disks of its "
            "replicas; check that unclean.leader.election.enable is false",
        )


_CHECK_READING: Final = (
    "check the znode's data and ACL (zkCli getAcl); if brokers refuse it, check their ACLs of group and topic"
)


_CHECK_BROKERS: Final = "start the brokers that do not answer first, then look again"


def _unreadable(group: ObservedGroup, facts: ClusterFacts, reported: Container[str]) -> Iterator[Finding]:
    are_silent = bool(facts.unreachable) or not facts.has_brokers
    for problem in dict.fromkeys((*group.problems, *facts.problems)):
        if problem not in reported:
            yield Finding("unreadable", group.group, problem, _CHECK_BROKERS if are_silent else _CHECK_READING)


def _access(group: ObservedGroup, facts: ClusterFacts) -> Iterator[Finding]:
    """Members write offsets, and create what is below the parents; all of them log in as one principal."""
    for kind, nodes in facts.access.items():
        permission: Literal["write", "create"] = "write" if kind == "offset" else "create"
        deed = "write it" if kind == "offset" else "create nodes below it"
        for path, (allowed, expected) in sorted(locked_out(nodes, permission, facts.members_as).items()):
            yield Finding(
                "access",
                path,
                f"only {name_some(allowed) if allowed else 'no principal'} may {deed}, not {expected}, as whom the "
                "group's members write",
                "as a principal that may, give it the ACL of its siblings (zookeeper-shell getAcl, setAcl), or delete "
                f"it so that a member of group {group.group} creates it again",
            )


def _clocks(facts: ClusterFacts) -> Iterator[Finding]:
    for consumer_id, seconds in sorted(facts.clock_ahead_s.items()):
        if abs(seconds) > _CLOCK_TOLERANCE_S:
            direction = "ahead of" if seconds > 0 else "behind"
            yield Finding(
                "clock",
                consumer_id,
                f"its clock was {abs(seconds):.0f} s {direction} ZooKeeper's when it registered",
                "check the time synchronisation of both hosts",
            )


def _sessions(facts: ClusterFacts) -> Iterator[Finding]:
    for address, count in sorted(facts.expiries.items()):
        if count:
            yield Finding(
                "session-expiries",
                address,
                f"this member has lost {count:g} ZooKeeper sessions",
                "look for long pauses (garbage collection, a paused process) and raise zookeeper.session.timeout.ms",
            )


def _quotas(group: ObservedGroup, facts: ClusterFacts) -> Iterator[Finding]:
    for path in quotas_that_apply(facts.quotas, facts.user, group.group):
        yield Finding(
            "quota",
            quota_title(path) if facts.brokers_report_quotas else path,
            f"fetches are limited to {facts.quotas[path]:g} bytes/s by each broker (for members whose client id is the "
            "group's name, as it is unless client.id is set)",
            "compare with the throttle time in the members' metrics",
        )
