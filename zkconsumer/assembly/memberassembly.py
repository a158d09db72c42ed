"""Assembles a group member from its parts: the only module that chooses its group protocol and its offset store.

The connector and the Spark driver pass different fetch controls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from zkconsumer.assembly.clusterchoice import cluster_of_member
from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.fetch.rules.fetchcontrol import FetchControl
from zkconsumer.group.assignorloading import load_assignor
from zkconsumer.group.coordinator.coordinatorgroup import CoordinatorGroup
from zkconsumer.group.groupprotocol import BrokerSource
from zkconsumer.group.grouprefusals import OnRefusal
from zkconsumer.group.member import GroupMember, MemberParts
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.zookeepergroup import ZooKeeperGroup
from zkconsumer.model import Stamp
from zkconsumer.offsets.storechoice import open_kafka_store, open_store
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore
from zkconsumer.process.wakeup import Latch
from zkconsumer.wire.connectionpool import ConnectionPool

if TYPE_CHECKING:
    from zkconsumer.group.kafka.brokersession import BrokerSession, BrokerSessionParts


class MemberCallbacks(TypedDict, total=False):
    """The optional callbacks of :class:`~zkconsumer.group.member.GroupMember`."""

    on_failure: Callable[[BaseException], None]
    before_commit: Callable[[], None] | None
    on_refusal: OnRefusal
    without_last_commit: str


def assemble_parts(
    config: ConsumerConfig,
    consumer_id: str,
    stamp: Callable[[], Stamp | None] | None = None,
    pool: ConnectionPool | None = None,
) -> MemberParts:
    """The parts of a member: its protocol, and the store that ``offsets.storage`` specifies.

    For ``stamp`` and ``pool`` see :func:`assemble_member`.
    """
    signal, closing = RebalanceSignal(), Latch()

    def wait_before_retry(seconds: float) -> bool:
        """Wait; True if there should be no further attempt: this member leaves or rebalances, and others wait.

        A rebalance ends the wait, since it cannot begin before: while members of a group that brokers coordinate are
        being assigned, a commit is refused and waits here, and the assignment that arrives meanwhile waits for it.
        """
        return signal.wait_raised(seconds) or closing.is_set()

    pool = pool or ConnectionPool()
    cluster = cluster_of_member(config, consumer_id, pool)
    if config.brokers_coordinate:
        assert cluster is not None  # the configuration has bootstrap.servers then
        return _assemble_broker_group(config, consumer_id, signal, closing, cluster, pool, wait_before_retry, stamp)
    group: CoordinatorGroup | ZooKeeperGroup
    if config.group_protocol == "coordinator":
        own = load_assignor(config.partition_assignment_strategy)
        group = CoordinatorGroup(config, consumer_id, signal, cluster=cluster, assignor=own)
    else:
        group = ZooKeeperGroup(config, consumer_id, signal, cluster=cluster)
    brokers: BrokerSource
    if cluster is not None:
        brokers = cluster
    else:
        brokers = group if isinstance(group, CoordinatorGroup) else GroupReader(group.zk, config.security_protocol)
    store = open_store(
        config,
        ZooKeeperOffsetStore(group.zk, config.group_id, group.fence, is_stamping=stamp is not None),
        live_brokers=brokers.live_brokers,
        wait_before_retry=wait_before_retry,
        pool=pool,
    )
    return MemberParts(group, brokers, store, signal, closing, stamp)


def _assemble_broker_group(
    config: ConsumerConfig,
    consumer_id: str,
    signal: RebalanceSignal,
    closing: Latch,
    cluster: ClusterSource,
    pool: ConnectionPool,
    wait_before_retry: Callable[[float], bool],
    stamp: Callable[[], Stamp | None] | None,
) -> MemberParts:
    from zkconsumer.group.kafka.brokergroup import BrokerGroup
    from zkconsumer.group.kafka.brokersession import BrokerSessionParts

    session = make_session(BrokerSessionParts(config, consumer_id, cluster, signal.raise_flag, pool=pool))
    group = BrokerGroup(config, consumer_id, session)
    store = open_kafka_store(
        config,
        live_brokers=cluster.live_brokers,
        wait_before_retry=wait_before_retry,
        identity=group.identity,
        membership=group.commit_membership,
        pool=pool,
    )
    return MemberParts(group, cluster, store, signal, closing, stamp)


def make_session(parts: BrokerSessionParts) -> BrokerSession[Any]:
    """The session of the protocol of brokers that ``group.protocol`` names."""
    if parts.config.group_protocol == "consumer":
        from zkconsumer.group.consumer.heartbeatsession import HeartbeatSession

        return HeartbeatSession(parts)
    from zkconsumer.group.kafka.joinsession import JoinSession

    return JoinSession(parts)


def assemble_member(
    config: ConsumerConfig,
    consumer_id: str,
    fetch: FetchControl,
    *,
    stamp: Callable[[], Stamp | None] | None = None,
    pool: ConnectionPool | None = None,
    **callbacks: Unpack[MemberCallbacks],
) -> GroupMember:
    """A member, which is not connected yet; for the arguments see :class:`~zkconsumer.group.member.GroupMember`.

    ``stamp`` returns the stamp of what may be committed now, in a member whose offsets have one; ``pool`` has the
    connections that its clients share with ``fetch``.
    """
    return GroupMember(config, consumer_id, fetch, assemble_parts(config, consumer_id, stamp, pool), **callbacks)
