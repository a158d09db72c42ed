"""ClusterFacts: what the brokers, their znodes and the members' metrics show of a group's surroundings."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import MalformedZnode, ZkConsumerError, ZooKeeperRefused
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.operate.groups.brokergroups import ObservedBrokerGroup
from zkconsumer.operate.groups.clientquotas import describe_quotas
from zkconsumer.operate.groups.groupdescription import (
    counting_stored,
    existing_partitions,
    read_offsets_in_kafka,
    without_offset,
)
from zkconsumer.operate.groups.groupznodes import GroupZnodes, StoredOffsetNode
from zkconsumer.operate.groups.observedgroup import may_exist
from zkconsumer.operate.groups.replicas import ReplicaReport, describe_replicas
from zkconsumer.operate.groups.rules.clusterznodes import (
    CONTROLLER,
    LeaderAndIsr,
    decode_consumer_rate,
    decode_partition_state,
    partition_state_path,
)
from zkconsumer.operate.groups.rules.quotas import ANONYMOUS, CLIENT_QUOTAS, USER_QUOTAS, clients_of
from zkconsumer.operate.groups.rules.znodeaccess import principals
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets
from zkconsumer.operate.offsets.groupstores import broker_list
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.access import Access
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import TopicNode
from zkconsumer.zookeeper.session import ZkSession

_BROKER_TIMEOUT_MS: Final = 3000
_METRICS_TIMEOUT_S: Final = 3.0
_EXPIRIES: Final = "zkconsumer_session_expiries_total"

T = TypeVar("T")

ZnodeKind = Literal["offset", "parent of offsets", "parent of owners"]
"""Znodes of a group of one kind get the same ACL from its members."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was found around a group.

    Attributes:
        bootstrap_servers: brokers that were asked; empty if they are those that are registered in ZooKeeper.
        has_brokers: False if no broker is registered in ZooKeeper, and none was named.
        controller: True if a broker is the controller.
        answering: brokers that answer.
        unreachable: those that do not, with the reason.
        replicas: brokers of each partition.
        states: leader and in-sync replicas of each partition.
        states_before: the same, some time before; empty if they were read once.
        origins: of those topics that exist, since when offsets can be of them.
        offset_nodes: the offsets in ZooKeeper that count, with the transactions that wrote them.
        committed: the offset that counts; absent if there is none, or if it is unknown. Also of partitions that only
            Kafka has for the group, if offsets there count.
        unread: partitions whose offset may exist, although it is unknown.
        outdated: offsets of earlier topics, which count as none, of partitions without another one.
        log_starts: where the logs start.
        log_ends: where the logs end.
        clock_ahead_s: by consumer id, how far its clock is ahead of ZooKeeper's, in seconds.
        quotas: quota of fetches in bytes per second, by the path of its znode.
        brokers_report_quotas: True if the brokers reported them, so that there may be no such znode.
        user: as which members log in to brokers, if as this client; None if unknown.
        access: ACLs of the group's znodes, by path, for each kind of znode.
        members_as: principals with which members create znodes; empty if unknown.
        expiries: lost sessions, by the address of the metrics page that counts them.
        problems: what cannot be read, one sentence each.
    """

    bootstrap_servers: str = ""
    has_brokers: bool = True
    controller: bool = True
    answering: tuple[Broker, ...] = ()
    unreachable: Mapping[Broker, str] = field(default_factory=dict)
    replicas: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    states: Mapping[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    states_before: Mapping[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    origins: Mapping[str, TopicOrigin] = field(default_factory=dict)
    offset_nodes: Mapping[TopicPartition, StoredOffsetNode] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    unread: frozenset[TopicPartition] = frozenset()
    outdated: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    clock_ahead_s: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, float] = field(default_factory=dict)
    brokers_report_quotas: bool = False
    user: str | None = None
    access: Mapping[ZnodeKind, Mapping[str, Access]] = field(default_factory=dict)
    members_as: frozenset[str] = frozenset()
    expiries: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def servers(self) -> str:
        """Where Kafka's tools find the cluster; empty if no broker is known."""
        return self.bootstrap_servers or broker_list(self.answering)


def read_cluster_facts(
    session: ZkSession,
    config: ConsumerConfig,
    group_reader: GroupReader,
    znodes: GroupZnodes,
    *,
    storage: OffsetStorage = "auto",
    metrics: Sequence[str] = (),
    shared: BrokerOffsets | None = None,
) -> ClusterFacts:
    """Look around a group. Nothing is written, and what does not answer is part of the result.

    Args:
        session: an open session.
        config: how brokers are reached.
        group_reader: with which the group was read.
        znodes: the group.
        storage: whose committed offset counts.
        metrics: addresses of members' metrics pages (``metrics.port``).
        shared: asks the brokers of ``config``, for whom else; None for connections of its own. Where none of them
            answers, those that are registered in ZooKeeper are asked.
    """
    problems: list[str] = []
    registered = group_reader.live_brokers()
    brokers = registered or bootstrap_brokers(config.bootstrap_servers)
    if shared is not None and registered and not _answers(shared):
        shared = None
    with closing(_own(config, brokers)) if shared is None else nullcontext(shared) as asked:
        in_kafka = read_offsets_in_kafka(group_reader, asked, [znodes], storage)
        partitions = sorted(existing_partitions([znodes], in_kafka))
        before = _ask_for_replicas(config, asked.client, partitions, [])
        states_before = _states(session, partitions, []) if before is None else before.states
        logs = asked.logs(partitions)
        answering, unreachable = _reach(asked.client, brokers)
        replicas = _replicas(session, partitions, problems)
        access, members_as = _access(session, znodes, problems)
        of_partitions = _ask_for_replicas(config, asked.client, partitions, problems)
        quotas = _ask_for_quotas(config, asked.client, problems) if len(unreachable) < len(brokers) else None
    of_kafka = in_kafka[znodes.group]
    problems += of_kafka.problems
    # While the coordinator is silent, an offset in ZooKeeper may be an old one, which is no reason for a reset.
    known = partitions if of_kafka.error is None else ()
    chosen = {p: counting_stored(znodes, of_kafka, p, storage) for p in known}
    if of_partitions is None:
        of_partitions = ReplicaReport(
            session.exists(CONTROLLER) is not None,
            replicas,
            _states(session, partitions, problems),
        )
    if brokers and not unreachable and any(_has_leader(of_partitions.states, p) for p in logs.found.unread):
        problems += logs.problems  # otherwise silent brokers and missing leaders are findings of their own
    return ClusterFacts(
        bootstrap_servers=config.bootstrap_servers or "",
        has_brokers=bool(brokers),
        answering=answering,
        controller=of_partitions.controller,
        unreachable=unreachable,
        replicas=of_partitions.replicas,
        states=of_partitions.states,
        states_before=states_before,
        origins=znodes.origins,
        offset_nodes={p: znodes.offsets[p] for p, one in chosen.items() if p in znodes.offsets and not one.in_kafka},
        committed={p: one.offset for p, one in chosen.items() if one.offset is not None},
        unread=frozenset(partitions)
        if of_kafka.error is not None
        else frozenset(
            p for p, one in chosen.items() if one.offset is None and p in {*znodes.unreadable, *of_kafka.unknown}
        ),
        outdated=without_offset(znodes, of_kafka, storage),
        log_starts=logs.found.starts,
        log_ends=logs.found.ends,
        clock_ahead_s=_clocks(session, znodes),
        quotas=_quotas(session, problems) if quotas is None else quotas,
        brokers_report_quotas=quotas is not None,
        user=_user(config),
        access=access,
        members_as=members_as,
        expiries=_expiries(metrics, problems),
        problems=tuple(problems),
    )


def _has_leader(states: Mapping[TopicPartition, LeaderAndIsr], partition: TopicPartition) -> bool:
    return partition in states and states[partition].leader >= 0


def _answers(asked: BrokerOffsets) -> bool:
    try:
        asked.client.ask_any(lambda connection: connection.host)
    except ZkConsumerError:
        return False
    return True


def _own(config: ConsumerConfig, brokers: Sequence[Broker]) -> BrokerOffsets:
    return BrokerOffsets(config, lambda: brokers, timeout_ms=_BROKER_TIMEOUT_MS, displays=True)


def read_broker_facts(
    config: ConsumerConfig, asked: BrokerOffsets, group: ObservedBrokerGroup, *, metrics: Sequence[str] = ()
) -> ClusterFacts:
    """Look around a group of brokers; as :func:`read_cluster_facts`, without what ZooKeeper has.

    Args:
        config: how brokers are reached; it names some.
        asked: the brokers.
        group: the group.
        metrics: addresses of members' metrics pages.

    Raises:
        BrokerUnavailable: no broker answers.
    """
    problems: list[str] = []
    partitions = [partition for partition in group.partitions if may_exist(group, partition)]
    of_topics = [TopicPartition(topic, n) for topic, numbers in group.existing.items() for n in numbers]
    before = _ask_for_replicas(config, asked.client, of_topics, [])
    logs = asked.logs(partitions)
    answering, unreachable = _reach(asked.client, _known_brokers(config, asked.client))
    after = _ask_for_replicas(config, asked.client, of_topics, problems)
    assert before is not None
    assert after is not None
    return ClusterFacts(
        bootstrap_servers=config.bootstrap_servers or "",
        controller=after.controller,
        answering=answering,
        unreachable=unreachable,
        replicas=after.replicas,
        states=after.states,
        states_before=before.states,
        committed={p: stored.offset for p, stored in group.offsets.items() if stored.offset is not None},
        unread=group.unread,
        log_starts=logs.found.starts,
        log_ends=logs.found.ends,
        quotas=_ask_for_quotas(config, asked.client, problems) or {},
        brokers_report_quotas=True,
        user=_user(config),
        expiries=_expiries(metrics, problems),
        problems=(*logs.problems, *problems),
    )


def read_coordinator_facts(config: ConsumerConfig, asked: BrokerOffsets) -> ClusterFacts:
    """What shows why no broker coordinates a group: which brokers do not answer, and the topic of offsets.

    Args:
        config: how brokers are reached; it names some.
        asked: the brokers.

    Raises:
        BrokerUnavailable: no broker answers.
    """
    problems: list[str] = []
    answering, unreachable = _reach(asked.client, _known_brokers(config, asked.client))
    replicas = _ask_for_replicas(config, asked.client, [TopicPartition(OFFSETS_TOPIC, 0)], problems)
    assert replicas is not None
    return ClusterFacts(
        bootstrap_servers=config.bootstrap_servers or "",
        controller=replicas.controller,
        answering=answering,
        unreachable=unreachable,
        replicas=replicas.replicas,
        states=replicas.states,
        problems=tuple(problems),
    )


def _known_brokers(config: ConsumerConfig, client: BrokerClient) -> list[Broker]:
    """The brokers of the metadata, and those of ``bootstrap.servers`` that it does not have: a dead one leaves it."""
    brokers = sorted(client.metadata([]).brokers.values())
    addresses = {(broker.host, broker.port) for broker in brokers}
    named = bootstrap_brokers(config.bootstrap_servers)
    return [*brokers, *(broker for broker in named if (broker.host, broker.port) not in addresses)]


def _ask_for_replicas(
    config: ConsumerConfig, client: BrokerClient, partitions: Iterable[TopicPartition], problems: list[str]
) -> ReplicaReport | None:
    """What the brokers of ``bootstrap.servers`` report; None if it is to be read from ZooKeeper."""
    if config.bootstrap_servers is None:
        return None
    topics = {partition.topic for partition in partitions}
    try:
        return client.ask_any(partial(describe_replicas, topics=topics))
    except ZkConsumerError as error:
        problems.append(f"leaders and replicas are unknown: {error}")
        return ReplicaReport(True, {}, {})


def _ask_for_quotas(config: ConsumerConfig, client: BrokerClient, problems: list[str]) -> dict[str, float] | None:
    """The quotas that the brokers of ``bootstrap.servers`` report; None if they are to be read from ZooKeeper.

    Members need no permission to see them, so a missing one is no problem of the group.
    """
    if config.bootstrap_servers is None:
        return None
    try:
        return client.ask_any(describe_quotas)
    except ZkConsumerError as error:
        problems.append(f"quotas are unknown: {error}")
        return {}


def _reach(client: BrokerClient, brokers: Sequence[Broker]) -> tuple[tuple[Broker, ...], dict[Broker, str]]:
    """The brokers that answer, and those that do not, with the reason; after other questions to them.

    Connecting takes no answer of a broker whose versions are known; one that was silent before is noted by the client.
    """
    unreachable: dict[Broker, str] = {}
    for broker in brokers:
        try:
            client.ask(broker, lambda connection: connection.host)  # connecting takes an answer of the broker
        except ZkConsumerError as error:
            unreachable[broker] = str(error)
    return tuple(broker for broker in brokers if broker not in unreachable), unreachable


def _decoded(
    session: ZkSession, paths: Iterable[str], decode: Callable[[str, bytes | None], T], problems: list[str]
) -> dict[str, T]:
    """What the nodes that exist hold; what cannot be read is added to ``problems``."""
    reads = session.read_many(paths)
    problems += (str(reason) for reason in reads.refused.values())
    decoded: dict[str, T] = {}
    for path, node in reads.nodes.items():
        try:
            if node is not None:
                decoded[path] = decode(path, node.data)
        except MalformedZnode as error:
            problems.append(str(error))
    return decoded


def _replicas(
    session: ZkSession, partitions: Sequence[TopicPartition], problems: list[str]
) -> dict[TopicPartition, tuple[int, ...]]:
    topics = {TopicNode.path(p.topic): p.topic for p in partitions}
    return {
        TopicPartition(topics[path], number): brokers
        for path, of_topic in _decoded(session, topics, TopicNode.replicas, problems).items()
        for number, brokers in of_topic.items()
    }


def _states(
    session: ZkSession, partitions: Sequence[TopicPartition], problems: list[str]
) -> dict[TopicPartition, LeaderAndIsr]:
    paths = {partition_state_path(p): p for p in partitions}
    return {paths[path]: state for path, state in _decoded(session, paths, decode_partition_state, problems).items()}


def _clocks(session: ZkSession, znodes: GroupZnodes) -> dict[str, float]:
    """A registration holds the member's time, and its znode the time of the server that wrote it."""
    paths = {
        GroupPaths(znodes.group).consumer_id(consumer_id): consumer_id for consumer_id in znodes.view.registered_ms
    }
    nodes = session.read_many(paths).nodes
    return {
        paths[path]: (znodes.view.registered_ms[paths[path]] - node.modified_ms) / 1000
        for path, node in nodes.items()
        if node is not None
    }


def _quotas(session: ZkSession, problems: list[str]) -> dict[str, float]:
    """Quotas of client ids and users, by path.

    Where brokers log in to ZooKeeper, they alone can read the znodes of users, which also hold passwords: that is as it
    should be, and no problem of the group.
    """
    try:
        clients = _children(session, CLIENT_QUOTAS)
    except ZooKeeperRefused as error:
        problems.append(str(error))
        clients = []
    try:
        users = _children(session, USER_QUOTAS)
    except ZooKeeperRefused:
        users = []
    of_users = session.children_of(clients_of(user) for user in users).names
    users += [f"{parent}/{name}" for parent, names in of_users.items() for name in names or ()]
    rate_by_path = _decoded(session, clients, decode_consumer_rate, problems)
    rate_by_path |= _decoded(session, users, decode_consumer_rate, [])
    return {path: rate for path, rate in rate_by_path.items() if rate is not None}


def _children(session: ZkSession, parent: str) -> list[str]:
    return [f"{parent}/{name}" for name in session.children(parent) or ()]


def _user(config: ConsumerConfig) -> str | None:
    if config.security_protocol == "PLAINTEXT":
        return ANONYMOUS
    return config.sasl_username if config.security_protocol.startswith("SASL_") else None


def _access(
    session: ZkSession, znodes: GroupZnodes, problems: list[str]
) -> tuple[dict[ZnodeKind, dict[str, Access]], frozenset[str]]:
    """ACLs of the znodes that members write, by kind, and the principals with which members claim partitions."""
    paths = GroupPaths(znodes.group)
    kinds: dict[ZnodeKind, list[str]] = {
        "offset": [paths.offset(partition) for partition in znodes.offsets],
        "parent of offsets": [paths.offset_topic(topic) for topic in sorted(znodes.offset_topics)],
        "parent of owners": [paths.owner_topic(topic) for topic in sorted(znodes.owned_topics)],
    }
    owners = [paths.owner(partition) for partition in znodes.owners if znodes.is_live(partition)]
    try:
        access = session.access([*(path for kind_paths in kinds.values() for path in kind_paths), *owners], masked=True)
    except ZooKeeperRefused as error:
        problems.append(str(error))
        return {}, frozenset()
    by_kind = {
        kind: {path: access[path] for path in kind_paths if path in access} for kind, kind_paths in kinds.items()
    }
    return by_kind, principals(access[path] for path in owners if path in access)


def _expiries(addresses: Iterable[str], problems: list[str]) -> dict[str, float]:
    expiry_counts: dict[str, float] = {}
    for address in addresses:
        try:
            with urllib.request.urlopen(address, timeout=_METRICS_TIMEOUT_S) as page:
                text = page.read().decode("utf-8", "replace")
            samples = [line for line in text.splitlines() if line.startswith(_EXPIRIES)]
            expiry_counts[address] = sum(float(line.rpartition(" ")[2]) for line in samples)
        except (OSError, ValueError, urllib.error.URLError) as error:
            problems.append(f"metrics at {address} cannot be read: {error}")
    return expiry_counts
