"""Opens the groups that a command's options name: in ZooKeeper, at brokers, or both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.cli.connection import ToolConnection, tool_session
from zkconsumer.cli.groupoptions import require_kafka

if TYPE_CHECKING:
    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.observedgroup import GroupSource
    from zkconsumer.zookeeper.session import ZkSession


class OpenedGroups(NamedTuple):
    """The groups that the options name.

    Attributes:
        source: where they are read.
        config: how the cluster is reached.
        session: with ZooKeeper; None if the groups are those of brokers alone.
    """

    source: GroupSource
    config: ConsumerConfig
    session: ZkSession | None


@contextmanager
def open_groups(
    connection: ToolConnection,
    storage: OffsetStorage = "auto",
    *,
    interval: float = math.inf,
    of_zookeeper_alone: bool = False,
) -> Iterator[OpenedGroups]:
    """Groups in ZooKeeper; those that brokers coordinate, if brokers are named and no ZooKeeper; both, if both are.

    Args:
        connection: what the options name.
        storage: whose committed offset counts for groups in ZooKeeper.
        interval: seconds between samples, if a sample should not take much longer where a broker is silent.
        of_zookeeper_alone: leave out those that brokers coordinate.

    Raises:
        click.UsageError: ``storage`` is of no use for groups of brokers.
        ConfigError, ZooKeeperUnavailable, ChrootMissing: see there.
    """
    of_brokers = connection.broker_config()
    if of_brokers is not None:
        from zkconsumer.operate.groups.brokergroups import BrokerGroups

        require_kafka(storage)
        with BrokerGroups(of_brokers, interval=interval) as groups:
            yield OpenedGroups(groups, of_brokers, None)
        return
    config = connection.config()
    with (
        tool_session(config) as session,
        closing(_groups_of_cluster(session, config, storage, interval, both=not of_zookeeper_alone)) as of_cluster,
    ):
        yield OpenedGroups(of_cluster, config, session)


def _groups_of_cluster(
    session: ZkSession, config: ConsumerConfig, storage: OffsetStorage, interval: float, *, both: bool
) -> GroupSource:
    """The groups of a cluster with a ZooKeeper, and those that brokers coordinate if ``bootstrap.servers`` is given."""
    from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups

    in_znodes = ZooKeeperGroups(session, config, storage=storage, interval=interval)
    if config.bootstrap_servers is None or not both:
        return in_znodes
    from zkconsumer.operate.groups.brokergroups import BrokerGroups
    from zkconsumer.operate.groups.everygroup import EveryGroup

    return EveryGroup(in_znodes, BrokerGroups(config, interval=interval))
