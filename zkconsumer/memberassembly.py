"""Assembles a group member from its parts: the only module that chooses its group protocol and its offset store.

The connector and the Spark driver pass different fetch controls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypedDict, Unpack

from zkconsumer.clusterchoice import cluster_of_member
from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchControl
from zkconsumer.core.groupprotocol import BrokerSource
from zkconsumer.group.grouprefusals import OnRefusal
from zkconsumer.group.member import GroupMember, MemberParts
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.offsets.storechoice import open_store
from zkconsumer.offsets.zookeeper import ZooKeeperOffsetStore
from zkconsumer.zookeeper.coordinator.coordinatorgroup import CoordinatorGroup
from zkconsumer.zookeeper.registry import Registry
from zkconsumer.zookeeper.zookeepergroup import ZooKeeperGroup


class MemberCallbacks(TypedDict, total=False):
    """The optional callbacks of :class:`~zkconsumer.group.member.GroupMember`."""

    on_failure: Callable[[BaseException], None]
    before_commit: Callable[[], None] | None
    on_refusal: OnRefusal
    without_last_commit: str


def assemble_parts(config: ConsumerConfig, consumer_id: str) -> MemberParts:
    """The parts of a member: its protocol, and the store that ``offsets.storage`` specifies."""
    signal, closing = RebalanceSignal(), threading.Event()
    cluster = cluster_of_member(config, consumer_id)
    group: CoordinatorGroup | ZooKeeperGroup
    if config.group_protocol == "coordinator":
        group = CoordinatorGroup(config, consumer_id, signal, cluster=cluster)
    else:
        group = ZooKeeperGroup(config, consumer_id, signal, cluster=cluster)
    brokers: BrokerSource = Registry(group.zk, config.security_protocol) if cluster is None else cluster

    def wait_before_retry(seconds: float) -> bool:
        """Wait; True if there should be no further attempt: this member leaves or rebalances, and others wait."""
        return closing.wait(seconds) or signal.raised

    store = open_store(
        config,
        ZooKeeperOffsetStore(group.zk, config.group_id, group.fence),
        live_brokers=brokers.live_brokers,
        wait_before_retry=wait_before_retry,
    )
    return MemberParts(group, brokers, store, signal, closing)


def assemble_member(
    config: ConsumerConfig, consumer_id: str, fetch: FetchControl, **callbacks: Unpack[MemberCallbacks]
) -> GroupMember:
    """A member, which is not connected yet; for the arguments see :class:`~zkconsumer.group.member.GroupMember`."""
    return GroupMember(config, consumer_id, fetch, assemble_parts(config, consumer_id), **callbacks)
