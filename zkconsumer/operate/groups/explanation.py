"""Explains why a group is stuck: findings with their evidence and the next command, decided from what was read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from zkconsumer.errors import name_some
from zkconsumer.group.rules.assignors import ASSIGNORS, SHARED_WITH_JVM, Assignment
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.clusterfindings import explain_surroundings, known_lag
from zkconsumer.operate.groups.coordinatorfindings import explain_coordinator
from zkconsumer.operate.groups.everygroup import continues_at_brokers
from zkconsumer.operate.groups.finding import Finding, utc_time
from zkconsumer.operate.groups.groupverification import describe_marked, misowned
from zkconsumer.operate.groups.groupznodes import GroupZnodes
from zkconsumer.operate.groups.lagfindings import NO_MEMBER
from zkconsumer.operate.groups.observedgroup import is_migrated
from zkconsumer.operate.groups.rules.lagstatus import describe_sum, lacks_members
from zkconsumer.operate.groups.rules.lagstretches import OWNERLESS_S
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode

_JVM_GIVES_UP: Final = "a JVM member stops trying after rebalance.max.retries attempts until the group changes"


def explain_group(znodes: GroupZnodes, facts: ClusterFacts) -> list[Finding]:
    """Everything that keeps a group from consuming, in the order in which an operator would look.

    Args:
        znodes: the group.
        facts: what is around it.
    """
    marked = explain_mark(znodes, "" if facts.bootstrap_servers else facts.servers)
    migrated = [] if marked is None else [marked]
    if is_migrated(znodes.mark, znodes.live):
        return migrated
    return [
        *migrated,
        *_registrations(znodes, facts),
        *explain_coordinator(znodes),
        *_strategies(znodes),
        *_dead_owners(znodes),
        *_idle_members(znodes),
        *_ownerless(znodes),
        *_strange_owners(znodes),
        *_undescribed_topics(znodes, facts),
        *explain_surroundings(znodes, facts, reported=frozenset(znodes.view.unreadable.values())),
    ]


def _command(znodes: GroupZnodes, *words: str) -> str:
    return shlex.join(["zkconsumer", *words, "--group", znodes.group])


def explain_mark(znodes: GroupZnodes, servers: str = "") -> Finding | None:
    """That the group has the mark of a migration; None if it has none.

    Args:
        znodes: the group.
        servers: brokers where it can be looked at if it continues there; empty if they are unknown, or were asked.
    """
    if znodes.mark is None:
        return None
    how = "stop these members" if znodes.live else "start no consumer of it in ZooKeeper"
    evidence = describe_marked(znodes, znodes.mark)
    if is_migrated(znodes.mark, znodes.live):
        at_brokers = ["zkconsumer", "groups", "explain", "--group", znodes.group, "--bootstrap-server", servers]
        command = shlex.join(at_brokers) if servers and continues_at_brokers(znodes.group, znodes.mark, ()) else ""
        return Finding("migrated", znodes.group, evidence, how, command, is_problem=False)
    command = shlex.join(["zkconsumer", "migrate", "unmark", "--group", znodes.group])
    how += "; the command shows what removes the mark, if it is wrong"
    return Finding("migrated", znodes.group, evidence, how, command)


def _registrations(znodes: GroupZnodes, facts: ClusterFacts) -> Iterator[Finding]:
    for consumer_id, reason in sorted(znodes.view.unreadable.items()):
        yield Finding(
            "unreadable-registration",
            consumer_id,
            f"{reason}; JVM members fail at every rebalance as long as it is there",
            "end the process of this member, or delete the znode",
        )
    if not znodes.live and znodes.mark is None:
        lag = known_lag(znodes, facts)
        yield Finding(
            NO_MEMBER,
            znodes.group,
            f"no consumer is registered; {describe_sum(lag)}{_newest_commit(znodes)}",
            "start a member; if one runs, check its group.id, the chroot of its zookeeper.connect, and its log: a "
            "process that hangs loses its session",
            is_problem=lacks_members(lag),
        )


def _newest_commit(znodes: GroupZnodes) -> str:
    """Since when there is no commit, in words; one look does not know since when there is no member."""
    if znodes.newest_commit_ms is None:
        return ""
    return f"; its newest commit to ZooKeeper was at {utc_time(znodes.newest_commit_ms)}"


def _assignments(znodes: GroupZnodes) -> dict[str, Assignment]:
    threads = znodes.view.threads_by_topic(exclude_internal=True)
    return {name: ASSIGNORS[name](threads, znodes.existing) for name in sorted(SHARED_WITH_JVM)}


def _strategies(znodes: GroupZnodes) -> Iterator[Finding]:
    """Members that compute different assignments claim the same partitions, and leave others without an owner."""
    if znodes.is_commanded:
        return
    strategies = sorted({name for member, name in znodes.view.our_clients.items() if member in znodes.live})
    if len(strategies) > 1:
        yield Finding(
            "different-strategies",
            znodes.group,
            f"its zkconsumer members assign by {', '.join(strategies)}",
            "give all members the same partition.assignment.strategy and roundrobin.hash.era",
        )
        return
    if not znodes.owners:
        return
    by_member = {
        consumer_id: {
            name for name, assignment in _assignments(znodes).items() if _agrees(znodes, consumer_id, assignment)
        }
        for consumer_id in znodes.live
        if any(PartitionOwnerNode.consumer_of(owner) == consumer_id for owner in znodes.owners.values())
    }
    possible = list(by_member.values())
    if len(possible) > 1 and all(possible) and not set.intersection(*possible):
        ways = "; ".join(f"{member} by {' or '.join(sorted(names))}" for member, names in sorted(by_member.items()))
        yield Finding(
            "different-strategies",
            znodes.group,
            f"the partitions that members own were assigned {ways}",
            "give all members the same partition.assignment.strategy; releases up to 0.11 order round-robin by another "
            "hash than 1.0 and later",
        )


def _agrees(znodes: GroupZnodes, consumer_id: str, assignment: Assignment) -> bool:
    """True if all that a member owns is given to the same threads by an assignment."""
    return all(
        str(assignment.get(partition)) == owner
        for partition, owner in znodes.owners.items()
        if PartitionOwnerNode.consumer_of(owner) == consumer_id
    )


def _idle_members(znodes: GroupZnodes) -> Iterator[Finding]:
    owning = {PartitionOwnerNode.consumer_of(owner) for owner in znodes.owners.values()}
    threads = znodes.view.threads_by_topic(exclude_internal=True)
    shares = _possible_shares(znodes)
    for consumer_id in sorted(znodes.view.members.keys() - owning):
        topics = sorted(
            topic
            for topic, topic_threads in threads.items()
            if any(thread.consumer_id == consumer_id for thread in topic_threads)
        )
        existing = [topic for topic in topics if topic in znodes.existing]
        if wanted := {partition for share in shares for partition in share.get(consumer_id, ())}:
            if not znodes.is_commanded:  # otherwise explain_coordinator reports it
                yield _without_share(znodes, consumer_id, wanted)
        elif not znodes.undescribed.isdisjoint(topics) or not (topics or znodes.view.topics):
            continue  # what exists is unknown
        elif not existing:
            reason = f"none of its topics exists ({name_some(topics)})" if topics else "its filter matches no topic"
            yield Finding("idle-member", consumer_id, reason, "", _command(znodes, "groups", "describe", "--members"))
        else:
            counts = ", ".join(
                f"{topic} has {len(znodes.existing[topic])} and {len(threads[topic])} threads" for topic in existing
            )
            yield Finding(
                "more-threads-than-partitions",
                consumer_id,
                f"partitions are fewer than the group's threads: {counts}",
                "end members or lower their number of threads, or add partitions",
                is_problem=False,
            )


def _without_share(znodes: GroupZnodes, consumer_id: str, wanted: set[TopicPartition]) -> Finding:
    held = {p for p in wanted if p in znodes.owners}
    evidence = (
        f"it should own partitions of {format_partitions(wanted)}, of which {len(held)} have another owner and "
        f"{len(wanted) - len(held)} have none"
    )
    verify = _command(znodes, "groups", "verify")
    if consumer_id in znodes.view.our_clients:
        # A member that starts gives up after rebalance.max.retries attempts; one that runs does not.
        return Finding(
            "owns-nothing",
            consumer_id,
            f"{evidence}; it claims them again until it owns them",
            "remove the other owners; do not restart it, since it may fail to start while they are there; SIGUSR1 has "
            "it log what it waits for",
            verify,
        )
    return Finding(
        "gave-up",
        consumer_id,
        f"{evidence}; {_JVM_GIVES_UP}",
        'look for "can\'t rebalance" in its log, remove owners that are not registered, check that all members have '
        "the same partition.assignment.strategy, and restart it",
        verify,
    )


def _possible_shares(znodes: GroupZnodes) -> list[dict[str, set[TopicPartition]]]:
    """What each member should own: by its command, or by each of the strategies that the members may have."""
    if znodes.coordinator is not None and znodes.is_commanded:
        commands = znodes.coordinator.commands
        return [{name: set(command.share) for name, command in commands.items() if command and command.share}]
    return [_shares(assignment) for assignment in _assignments(znodes).values()]


def _shares(assignment: Assignment) -> dict[str, set[TopicPartition]]:
    shares: dict[str, set[TopicPartition]] = {}
    for partition, thread in assignment.items():
        shares.setdefault(thread.consumer_id, set()).add(partition)
    return shares


def _undescribed_topics(znodes: GroupZnodes, facts: ClusterFacts) -> Iterator[Finding]:
    """Where no broker is registered, nothing is known of any topic, and that is reported."""
    for topic in sorted(znodes.undescribed & (znodes.subscribed | znodes.topics)) if facts.has_brokers else ():
        yield Finding(
            "undescribed-topic",
            topic,
            "whether it exists is unknown, and so are its partitions; the log has the reason",
            "start the brokers, if none answers; with --bootstrap-server, let this client describe it (ACL Describe); "
            "otherwise let it read the topic's znode, and check what is in it",
        )


def _ownerless(znodes: GroupZnodes) -> Iterator[Finding]:
    ownerless = [partition for partition, owner in misowned(znodes) if owner is None]
    if not ownerless:
        return
    expected = {
        member for share in _possible_shares(znodes) for member in share if not share[member].isdisjoint(ownerless)
    }
    by_share = f"; by its share {name_some(sorted(expected))} should own them" if expected else ""
    jvm = sorted(znodes.view.jvm_members & expected)
    gave_up = f"; {_JVM_GIVES_UP}" if jvm else ""
    todo = f"restart {name_some(jvm)}" if jvm else "look in the members' logs for failed attempts"
    yield Finding(
        "no-owner",
        format_partitions(ownerless),
        f"members subscribe to the topic, and there is no owner znode{by_share}{gave_up}",
        f"wait for a rebalance that may be under way; if they have no owner for more than {OWNERLESS_S:.0f} s (STOP in "
        f"`zkconsumer groups status`), {todo}",
        _command(znodes, "groups", "verify"),
    )


def _strange_owners(znodes: GroupZnodes) -> Iterator[Finding]:
    for partition, owner in misowned(znodes):
        if owner is not None and znodes.is_live(partition):
            yield Finding(
                "strange-owner",
                str(partition),
                f"its owner {owner} is no thread of that member that subscribes to the topic, so no thread consumes it",
                "restart that member, or delete the owner znode",
                _command(znodes, "groups", "verify"),
            )


def _dead_owners(znodes: GroupZnodes) -> Iterator[Finding]:
    for partition, owner in sorted(znodes.owners.items()):
        if not znodes.is_live(partition):
            dead = f"its owner {owner} is not registered"
            if partition in znodes.lasting_owners:
                path = GroupPaths(znodes.group).owner(partition)
                yield Finding(
                    "dead-owner",
                    str(partition),
                    f"{dead}, and the owner znode is persistent: no member wrote it, it ends with no session, and "
                    "members cannot claim the partition while it exists",
                    f"stop what writes it, and delete it: zookeeper-shell.sh SERVER delete {shlex.quote(path)} (below "
                    "the chroot of zookeeper.connect)",
                )
                continue
            yield Finding(
                "dead-owner",
                str(partition),
                f"{dead}; the owner znode disappears with the session of that process",
                "wait for a session timeout; if the znode stays, its process still runs: end it",
            )
