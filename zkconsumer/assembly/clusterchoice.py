"""Chooses where brokers, topics and partitions are read from: ``bootstrap.servers``, or ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, Final

from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.cluster.rules.clustercatalog import ClusterCatalog, ClusterSnapshot, ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.wire.rules.outage import Outage
from zkconsumer.zookeeper.session import ZkSession

if TYPE_CHECKING:
    from zkconsumer.cluster.brokercatalog import PatientCatalog
    from zkconsumer.wire.connectionpool import ConnectionPool

_log: Final = logging.getLogger(__name__)

ReadCluster = Callable[[Collection[str] | None], ClusterCatalog]


def cluster_of_member(config: ConsumerConfig, owner: str, pool: ConnectionPool | None = None) -> ClusterSource | None:
    """The cluster for a member that has to notice changes; None if ZooKeeper reports them.

    Args:
        config: the consumer's properties.
        owner: the consumer, as part of the name of a thread.
        pool: connections that the member's clients share.
    """
    if config.bootstrap_servers is None:
        return None
    from zkconsumer.cluster.polledcluster import PolledCluster

    return PolledCluster(config, owner, pool)


def read_cluster(config: ConsumerConfig, topics: Collection[str]) -> ClusterSnapshot:
    """The brokers and these topics, over connections that are closed afterwards.

    Raises:
        BrokerUnavailable: ``bootstrap.servers`` is set, and no broker answers.
        ZooKeeperUnavailable: no server answers.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
    """
    if config.bootstrap_servers is not None:
        from zkconsumer.cluster.brokercatalog import BrokerCatalog

        return BrokerCatalog(config).read(topics)
    with closing(ZkSession.from_config(config)) as session:
        session.open()
        znodes = BrokerZnodes(session, config.security_protocol)
        described = znodes.describe_topics(topics)
        return ClusterSnapshot(znodes.live_brokers(), described, frozenset(topics), undescribed=znodes.undescribed)


def open_group_reader(
    session: ZkSession,
    config: ConsumerConfig,
    *,
    without_brokers: bool = False,
    catalog: PatientCatalog | None = None,
    silence: Outage | None = None,
) -> GroupReader:
    """The group_reader for a client that is not a member.

    What it reads from ZooKeeper it reads each time. With ``bootstrap.servers`` it describes the cluster as of its first
    question, so that one run of a tool asks brokers once; its methods raise BrokerUnavailable if no broker answers.

    Args:
        session: an open session.
        config: where the cluster is, and how brokers are reached.
        without_brokers: if no broker answers, log it and read what ZooKeeper has: nothing, for brokers without it.
        catalog: asks the brokers of ``bootstrap.servers``; None for a connection of each question's own.
        silence: decides whether it is logged that no broker answers; None for always. A caller that opens a reader
            again and again gives the same one.
    """
    if config.bootstrap_servers is None:
        return GroupReader(session, config.security_protocol)
    from zkconsumer.cluster.brokercatalog import BrokerCatalog, RememberedCatalog

    read = RememberedCatalog((catalog or BrokerCatalog(config)).read).read
    if without_brokers:
        znodes = BrokerZnodes(session, config.security_protocol, may_lack_topics=True)
        read_cluster = _with_fallback(read, znodes, silence or Outage())
        return GroupReader(session, config.security_protocol, read_cluster=read_cluster)
    return GroupReader(session, config.security_protocol, read_cluster=read)


def _with_fallback(read: ReadCluster, znodes: ClusterCatalog, silence: Outage) -> ReadCluster:
    """As ``read``; once no broker answers, ``znodes``: each attempt may take the timeouts of all brokers."""
    has_failed = False

    def read_cluster(topics: Collection[str] | None) -> ClusterCatalog:
        nonlocal has_failed
        if not has_failed:
            try:
                catalog = read(topics)
            except BrokerUnavailable as error:
                has_failed = True
                is_news = silence.is_news(str(error), monotonic())
                _log.log(
                    logging.WARNING if is_news else logging.DEBUG,
                    "no broker answers, so topics and partitions are read from ZooKeeper, where Kafka 4 has none: %s",
                    error,
                )
            else:
                silence.end(monotonic())
                return catalog
        return znodes

    return read_cluster
