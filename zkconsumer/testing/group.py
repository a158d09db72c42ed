"""ConsumerGroup: consumers of one group, and faults between each of them and ZooKeeper."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.config.serveraddresses import server_addresses
from zkconsumer.connector.connector import ConsumerConnector
from zkconsumer.errors import UsageError
from zkconsumer.group.zookeeper.zookeepergroup import ZooKeeperGroup
from zkconsumer.operate.groups.groupdescription import GroupDescription, describe_group
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.zookeeper.forcedexpiry import expire
from zkconsumer.zookeeper.session import ZkSession

_DEFAULTS: Final[dict[str, Any]] = {
    "auto_offset_reset": "smallest",
    "zookeeper_session_timeout_ms": 6_000,
    "zookeeper_connection_timeout_ms": 20_000,
    "rebalance_backoff_ms": 1_000,
    "rebalance_max_retries": 30,
    "consumer_timeout_ms": 30_000,
}
"""Properties that suit a test: a fault is noticed within seconds, and a stream that stays empty raises."""


class ConsumerGroup:
    """Makes the consumers of one group. A context manager that shuts them down on exit.

    Each consumer reaches ZooKeeper through proxies of its own, so a test can cut off one of them; brokers are reached
    directly. Used by one thread at a time.

    Args:
        name: of the group.
        zookeeper_connect: servers, and a chroot if there is one.

    Attributes:
        name: as given.
    """

    def __init__(self, name: str, zookeeper_connect: str) -> None:
        self.name = name
        self._connect = zookeeper_connect
        self._made = contextlib.ExitStack()
        self._proxies: dict[ConsumerConnector, list[TcpProxy]] = {}

    def consumer(self, **properties: Any) -> ConsumerConnector:
        """Make a consumer; ``properties`` are those of :class:`~zkconsumer.ConsumerConfig`.

        Raises:
            ZooKeeperUnavailable: no server answered.
            ConfigError: a property is not valid.
        """
        servers, chroot = server_addresses(self._connect)
        proxies = [self._made.enter_context(TcpProxy(server)) for server in servers]
        connect = ",".join(proxy.address for proxy in proxies) + chroot
        config = ConsumerConfig(zookeeper_connect=connect, group_id=self.name, **{**_DEFAULTS, **properties})
        consumer = self._made.enter_context(ConsumerConnector(config))
        self._proxies[consumer] = proxies
        return consumer

    def expire_session(self, consumer: ConsumerConnector) -> None:
        """End the ZooKeeper session of a consumer for real; returns when it has another one.

        Its registration and its owner znodes are deleted at once, before the consumer notices.

        Raises:
            ZooKeeperUnavailable: the session could not be ended.
            UsageError: the consumer has no session, since its group is not in ZooKeeper.
        """
        expire(_session_of(consumer))

    def cut(self, consumer: ConsumerConnector) -> None:
        """Cut the network between a consumer and ZooKeeper: its connections break, and no new one can be made.

        The servers expire its session after the session timeout.
        """
        for proxy in self._proxies[consumer]:
            proxy.refuse()

    def heal(self, consumer: ConsumerConnector) -> None:
        """Undo :meth:`cut`."""
        for proxy in self._proxies[consumer]:
            proxy.heal()

    def describe(self) -> GroupDescription:
        """Members, owners, offsets and lag, as ``zkconsumer groups describe`` shows them.

        Raises:
            ZkConsumerError: ZooKeeper or a broker does not answer.
        """
        config = ConsumerConfig(zookeeper_connect=self._connect, group_id=self.name)
        with contextlib.closing(ZkSession.from_config(config)) as session:
            session.open()
            return describe_group(session, config, self.name)

    def close(self) -> None:
        """Shut all consumers down. Idempotent."""
        for proxies in self._proxies.values():
            for proxy in proxies:
                proxy.heal()
        self._proxies.clear()
        self._made.close()

    def __enter__(self) -> ConsumerGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _session_of(consumer: ConsumerConnector) -> ZkSession:
    protocol = consumer._member._protocol  # no description of a consumer shows its session
    if not isinstance(protocol, ZooKeeperGroup):
        raise UsageError(f"consumer {consumer.consumer_id} has no ZooKeeper session; its group is not in ZooKeeper")
    return protocol.zk
