"""Opens the groups that a command's options name: in ZooKeeper, at brokers, or both."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.cli.connection import ToolConnection, tool_session
from zkconsumer.cli.groupoptions import require_kafka
from zkconsumer.errors import ZooKeeperRefused, ZooKeeperUnavailable

if TYPE_CHECKING:
    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.brokergroups import BrokerGroups
    from zkconsumer.operate.groups.observedgroup import GroupSource
    from zkconsumer.zookeeper.session import ZkSession


class OpenedGroups(NamedTuple):
    """The groups that the options name.

    Attributes:
        source: where they are read.
        config: how the cluster is reached.
        session: returns the session with ZooKeeper, or raises as :class:`LateSession`; None if the groups are those of
            brokers alone.
        at_brokers: those of them that brokers coordinate; None if no brokers are named.
    """

    source: GroupSource
    config: ConsumerConfig
    session: Callable[[], ZkSession] | None
    at_brokers: BrokerGroups | None = None


class LateSession:
    """A session with a ZooKeeper that may be down, as brokers answer without it; any thread may use it.

    Args:
        config: how it is reached.
        interval: seconds between samples, which do not wait longer for a connection; infinite for a command that reads
            once, and waits for ZooKeeper once.
    """

    def __init__(self, config: ConsumerConfig, interval: float = math.inf) -> None:
        longest_ms = config.zookeeper_connection_timeout_ms
        if interval < longest_ms / 1000:
            longest_ms = max(1000, round(1000 * interval))
        self._config = dataclasses.replace(config, zookeeper_connection_timeout_ms=longest_ms)
        self._opening = threading.Lock()
        self._session: ZkSession | None = None
        self._reads_once = interval == math.inf
        self._unavailable: ZooKeeperUnavailable | ZooKeeperRefused | None = None

    def __call__(self) -> ZkSession:
        """The session; it is opened unless it is open, and connects again after a login was refused meanwhile.

        Raises:
            ZooKeeperUnavailable, ZooKeeperRefused, ChrootMissing: see :meth:`ZkSession.open`; another call tries again,
                where samples are read.
        """
        from zkconsumer.zookeeper.session import ZkSession

        with self._opening:  # also while that waits for servers: a second session would have to wait, too
            if self._session is None:
                if self._unavailable is not None:
                    raise self._unavailable
                session = ZkSession.from_config(self._config)
                try:
                    session.open()
                except (ZooKeeperUnavailable, ZooKeeperRefused) as error:
                    self._unavailable = error if self._reads_once else None
                    raise
                self._session = session
            self._session.revive()
        if not self._session.connected:  # it connects again; a request would wait for the session timeout
            raise ZooKeeperUnavailable(
                f"no connection with ZooKeeper at {self._session.address}{self._session.last_failure}"
            )
        return self._session

    def close(self) -> None:
        """End the session, if there is one."""
        if self._session is not None:
            self._session.close()


@contextmanager
def open_groups(
    connection: ToolConnection,
    storage: OffsetStorage = "auto",
    *,
    interval: float = math.inf,
    of_zookeeper_alone: bool = False,
    tries_again: bool = False,
) -> Iterator[OpenedGroups]:
    """Groups in ZooKeeper; those that brokers coordinate, if brokers are named and no ZooKeeper; both, if both are.

    Args:
        connection: what the options name.
        storage: whose committed offset counts for groups in ZooKeeper.
        interval: seconds between samples, if a sample should not take much longer where a broker is silent.
        of_zookeeper_alone: leave out those that brokers coordinate.
        tries_again: the caller samples again and again, and begins also while ZooKeeper does not answer.

    Raises:
        click.UsageError: ``storage`` is of no use for groups of brokers.
        ConfigError, ZooKeeperUnavailable, ChrootMissing: see there; where brokers are named as well, or with
            ``tries_again``, ZooKeeper is connected when it is read.
    """
    of_brokers = connection.broker_config()
    if of_brokers is not None:
        from zkconsumer.operate.groups.brokergroups import BrokerGroups

        require_kafka(storage)
        with BrokerGroups(of_brokers, interval=interval) as groups:
            yield OpenedGroups(groups, of_brokers, None, groups)
        return
    from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups

    config = connection.config()
    if tries_again and config.bootstrap_servers is None:
        with closing(LateSession(config, interval)) as late:
            _try_to_open(late)
            in_znodes = ZooKeeperGroups(late, config, storage=storage, interval=interval)
            with closing(in_znodes):
                yield OpenedGroups(in_znodes, config, late)
        return
    if config.bootstrap_servers is None or of_zookeeper_alone:
        with tool_session(config) as session:

            def revived() -> ZkSession:  # called by the one thread that samples
                session.revive()
                return session

            in_znodes = ZooKeeperGroups(revived, config, storage=storage, interval=interval)
            with closing(in_znodes):
                yield OpenedGroups(in_znodes, config, lambda: session)
        return
    from zkconsumer.operate.groups.brokergroups import BrokerGroups
    from zkconsumer.operate.groups.everygroup import EveryGroup

    with closing(LateSession(config, interval)) as late:
        if interval < math.inf:
            _try_to_open(late)
        at_brokers = BrokerGroups(config, interval=interval)
        in_znodes = ZooKeeperGroups(late, config, storage=storage, interval=interval, asked=at_brokers.asked)
        with closing(EveryGroup(in_znodes, at_brokers, storage=storage)) as every:
            yield OpenedGroups(every, config, late, at_brokers)


def _try_to_open(late: LateSession) -> None:
    """A wrong chroot ends the command before the first sample."""
    with suppress(ZooKeeperUnavailable, ZooKeeperRefused):
        late()
