"""Observer: samples one group a few times per second, for the timeline and for waits for a state of the group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Protocol, Self

from demo.timeline import Sample, Timeline
from zkconsumer.errors import LeaderUnknown, RetriableError, ZkConsumerError
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore
from zkconsumer.wire.brokerclient import LATEST, BrokerClient
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession

_EVERY_S = 0.1
_LONG_S = 0.5
ANSWER_TIMEOUT_MS = 10_000
CLIENT_ID = "zkconsumer-demo"


class SampleReader(Protocol):
    """Reads one group. Used by one thread.

    Attributes:
        group: consumer group to read.
    """

    group: str

    def read(self, at: float) -> Sample:
        """Read the state of the group once; ``at`` is the time for the sample.

        Raises:
            ZkConsumerError: ZooKeeper or a broker does not answer.
        """

    def close(self) -> None:
        """Close the connections to brokers."""


class ZnodeReader:
    """Reads members, owners and offsets from znodes, log ends from the brokers. See :class:`SampleReader`.

    Args:
        session: an open session, which others may use too.
        brokers: brokers of the cluster.
        group: consumer group to read.
        partitions: partitions of the demo's topic, in order.
    """

    def __init__(
        self, session: ZkSession, brokers: Collection[Broker], group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        self.group = group
        self._session = session
        self._group_reader = GroupReader(session)
        self._offsets = ZooKeeperOffsetStore(session, group)
        self._client = BrokerClient(lambda: tuple(brokers), client_id=CLIENT_ID, timeout_ms=ANSWER_TIMEOUT_MS)
        self._partitions = tuple(partitions)

    def read(self, at: float) -> Sample:
        """See :meth:`SampleReader.read`."""
        members = self._session.children(GroupPaths(self.group).ids) or ()
        owners = self._group_reader.owner_threads(self.group, self._partitions)
        committed = self._offsets.fetch(self._partitions)
        return Sample(
            at,
            frozenset(members),
            tuple(_consumer_id(owners[partition]) for partition in self._partitions),
            tuple(committed.get(partition) for partition in self._partitions),
            read_log_ends(self._client, self._partitions),
        )

    def close(self) -> None:
        """Close the connections to brokers."""
        self._client.close()


def read_log_ends(client: BrokerClient, partitions: Sequence[TopicPartition]) -> tuple[int, ...]:
    """The end of each log. To be read after the offsets: logs only grow, so that a lag is never negative.

    Raises:
        ZkConsumerError: a broker does not answer.
    """
    ends = client.list_offsets(dict.fromkeys(partitions, LATEST))
    if ends.errors:
        raise LeaderUnknown(f"no log end of {len(ends.errors)} partitions; check that the broker is still running")
    return tuple(ends.found[partition] or 0 for partition in partitions)


def _consumer_id(owner: str | None) -> str | None:
    return None if owner is None else ConsumerThreadId.parse(owner).consumer_id


class Observer:
    """Samples a group on its own thread, from construction to the end of its ``with`` block.

    Args:
        reader: reader of the group; the observer closes it.
        timeline: receives the samples.
        clock: returns the seconds since the demo began.
        alive: called repeatedly during a wait; raises if the awaited state cannot be reached any more.
    """

    def __init__(
        self, reader: SampleReader, timeline: Timeline, clock: Callable[[], float], alive: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._alive = alive
        self._samples = timeline.samples.setdefault(reader.group, [])
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"observer-{reader.group}", daemon=True)
        self._thread.start()

    @property
    def newest(self) -> Sample | None:
        """The last sample, None before the first."""
        return self._samples[-1] if self._samples else None

    def expect_alive(self) -> None:
        """Raise ZkConsumerError if the group cannot be observed, or the error of ``alive``."""
        self._alive()
        if self._failure is not None:
            raise ZkConsumerError(f"group {self._reader.group} cannot be observed: {self._failure}")

    def wait_for(
        self,
        condition: Callable[[Sample], bool],
        what: str,
        timeout_s: float,
        tick: Callable[[Sample], None] = lambda _: None,
    ) -> Sample:
        """Wait for a sample that satisfies ``condition`` and return it; ``tick`` sees every sample meanwhile.

        Only samples taken after this call are considered.

        Raises:
            ZkConsumerError: there was none within ``timeout_s`` (the message has ``what``), or something failed
                meanwhile.
        """
        deadline = time.monotonic() + timeout_s
        since = self._clock()
        while True:
            self.expect_alive()
            sample = self._next(since)
            if sample is not None:
                since = self._clock()
                tick(sample)
                if condition(sample):
                    return sample
            if time.monotonic() > deadline:
                raise ZkConsumerError(f"did not happen within {timeout_s:g} s: {what}")

    def _next(self, since: float) -> Sample | None:
        """Wait for a sample taken at ``since`` or later; None if that takes too long."""

        def come() -> bool:
            return self._failure is not None or (self.newest is not None and self.newest.at >= since)

        with self._changed:
            return self.newest if self._changed.wait_for(come, _LONG_S) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            begun = self._clock()
            try:
                sample = self._reader.read(begun)
            except RetriableError:
                sample = None  # a gap in the curve; a failed broker is reported elsewhere
            except Exception as error:  # noqa: BLE001 - passed to the thread that waits
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            if sample is not None:
                with self._changed:
                    self._samples.append(sample)
                    self._changed.notify_all()
            self._ending.wait(max(0.0, _EVERY_S - (self._clock() - begun)))
