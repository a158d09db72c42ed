"""BrokerReader: what the brokers know of a group that they coordinate, for the demo's observer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from demo.observer import ANSWER_TIMEOUT_MS, CLIENT_ID, read_log_ends
from demo.timeline import Sample
from zkconsumer.group.kafka.describedmembers import group_members
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.findcoordinator import CoordinatorClient


class BrokerReader:
    """A :class:`~demo.observer.SampleReader`; members are named by their ``client.id``.

    Args:
        brokers: brokers of the cluster.
        group: consumer group to read.
        partitions: partitions of the demo's topic, in order.
    """

    def __init__(self, brokers: Collection[Broker], group: str, partitions: Sequence[TopicPartition]) -> None:
        self.group = group
        self._partitions = tuple(partitions)
        self._client = BrokerClient(lambda: tuple(brokers), client_id=CLIENT_ID, timeout_ms=ANSWER_TIMEOUT_MS)
        self._coordinator = CoordinatorClient(self._client, group)
        self._offsets = OffsetCoordinator(self._client, group)

    def read(self, at: float) -> Sample:
        """See :meth:`SampleReader.read <demo.observer.SampleReader.read>`."""
        members = group_members(self._coordinator, self.group)
        owners = {partition: member.client_id for member in members for partition in member.assigned}
        committed = self._offsets.fetch(self._partitions).found
        return Sample(
            at,
            frozenset(member.client_id for member in members),
            tuple(owners.get(partition) for partition in self._partitions),
            tuple(committed[p].offset if p in committed else None for p in self._partitions),
            read_log_ends(self._client, self._partitions),
        )

    def close(self) -> None:
        """Close the connections to brokers."""
        self._client.close()
