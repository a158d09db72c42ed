"""``offsets export``: the offsets of groups, to be written to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZooKeeperRefused, name_some
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import topic_id_of
from zkconsumer.offsets.rules.topicorigins import JudgedOffset, WrittenFor, describe_before, that_are
from zkconsumer.operate.groups.brokergroups import BrokerGroups
from zkconsumer.operate.groups.groupznodes import existing_groups
from zkconsumer.operate.groups.observedgroup import unread_groups
from zkconsumer.operate.offsets.judgedoffsets import judge_stored, known_identities
from zkconsumer.operate.offsets.offsetfiles import GroupOffset
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.zookeeper.absentzookeeper import AbsentZooKeeper
from zkconsumer.zookeeper.session import ZkSession


@dataclass(frozen=True, slots=True)
class Export:
    """Offsets of groups.

    Attributes:
        offsets: by group, topic and partition.
        problems: groups and znodes that hold no offset, or may not be read, and offsets of earlier topics of the same
            name, which members ignore; they are not in the export, one sentence each.
        warnings: what the operator should know of those that are in the export, one sentence each.
    """

    offsets: tuple[GroupOffset, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def export_broker_offsets(config: ConsumerConfig, groups: Sequence[str]) -> Export:
    """Read the offsets that groups have committed to Kafka, without any ZooKeeper; it writes nothing.

    Args:
        config: how brokers are reached.
        groups: names of groups; none stands for all.

    Raises:
        ZkConsumerError: none of ``groups`` exists and can be read, or no broker answers.
    """
    with BrokerGroups(config, displays=False) as brokers:
        found, failures = brokers.read(sorted(set(groups)) or brokers.names(), with_topics=False)
        unlisted = brokers.unlisted
    unread = unread_groups(found, failures, groups)
    session = AbsentZooKeeper(config.bootstrap_servers or "")
    group_reader = open_group_reader(session, config)
    rows: list[GroupOffset] = []
    problems = [*unlisted, *unread]
    warnings: list[str] = []
    for name, group in found.items():
        problems += group.problems
        named = [p for p, one in group.offsets.items() if topic_id_of(one.mark) is not None]
        judged = judge_stored(session, None, _identities(group_reader, name, named, warnings), group.offsets)
        rows += _current(name, judged, problems)
    return Export(tuple(rows), tuple(problems), tuple(warnings))


def export_offsets(
    session: ZkSession,
    config: ConsumerConfig,
    groups: Sequence[str],
    *,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Export:
    """Read the offsets that ZooKeeper stores; it writes nothing.

    A group without offsets has no rows; ExportZkOffsets ends at such a group.

    Args:
        session: an open session.
        config: where topics are looked up, if brokers answer; else in ZooKeeper.
        groups: names of groups; none stands for all.
        advance: called with the number of groups read, and that of all.

    Raises:
        ZkConsumerError: none of ``groups`` exists and can be read, or ZooKeeper cannot be reached.
    """
    group_reader = open_group_reader(session, config, without_brokers=True)
    rows: list[GroupOffset] = []
    problems: list[str] = []
    warnings: list[str] = []
    names = sorted(set(groups)) or group_reader.groups()
    paths, failures = existing_groups(session, names)
    for number, group in enumerate(paths):
        advance(number, len(paths))
        try:
            stored = offset_nodes(session, group, without_refused=True)
            identities = _identities(group_reader, group, stored.nodes, warnings)
            judged = judge_stored(session, group, identities, stored.stored())
        except ZooKeeperRefused as error:
            failures[group] = error
            continue
        none = stored.nodes.keys() - stored.offsets().keys() - stored.unreadable.keys()
        problems += stored.problems
        problems += (
            f"znode {paths[group].offset(p)} holds a negative number, which is no offset" for p in sorted(none)
        )
        rows += _current(group, judged, problems)
        warnings += (f"group {group}: {text}" for text in describe_before(that_are(judged, WrittenFor.BEFORE)))
    found = [group for group in names if group not in failures]
    return Export(tuple(rows), (*unread_groups(found, failures, groups), *problems), tuple(warnings))


def _identities(
    group_reader: GroupReader, group: str, partitions: Iterable[TopicPartition], warnings: list[str]
) -> dict[str, TopicIdentity]:
    topics = {partition.topic for partition in partitions}
    known = known_identities(group_reader, topics)
    if unknown := sorted(topics - known.keys()):
        warnings.append(
            f"group {group}: topics are not described, so offsets of them may be those of earlier topics of that name, "
            f"which an import would make members use: {name_some(unknown)}"
        )
    return {topic: one for topic, one in known.items() if one is not None}


def _current(group: str, judged: Mapping[TopicPartition, JudgedOffset], problems: list[str]) -> list[GroupOffset]:
    """The offsets without those of earlier topics, which become a problem: an import would make members use them."""
    if left := that_are(judged, WrittenFor.EARLIER):
        problems.append(f"offsets of group {group} were stored for earlier topics of that name: {name_some(left)}")
    return [GroupOffset(group, p, one.counting) for p, one in sorted(judged.items()) if one.counting is not None]
