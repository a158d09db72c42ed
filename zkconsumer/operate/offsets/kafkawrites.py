"""KafkaWrites: writes a group's offsets in Kafka while the group is held, and reads them back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from zkconsumer.errors import GroupAuthorizationFailed, ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.offsets.groupstores import Cluster, in_requests
from zkconsumer.operate.offsets.snapshot import KafkaChange
from zkconsumer.operate.offsets.writereport import UnderHold, name_in_kafka


class KafkaWrites:
    """The offsets of one group.

    Args:
        cluster: the brokers.
        changes: what changes.
        under: the group, which is held when a method is called.
    """

    def __init__(self, cluster: Cluster, changes: Sequence[KafkaChange], under: UnderHold) -> None:
        self._cluster = cluster
        self._group = under.group
        self._changes = changes
        self._under = under
        self._report = under.report
        self._sent: set[TopicPartition] = set()  # a request that names them was sent, and none that they are refused

    def write(self) -> None:
        """Commit, and delete; what the coordinator refuses is a fault."""
        names = [self._name(change) for change in self._changes]
        if not names or self._under.is_too_late(names):
            return
        try:
            self._require_former()
        except ZkConsumerError as error:
            self._report.faults.append(f"offsets of group {self._group} in Kafka: {error}")
            self._report.not_written += names
            return
        try:
            refused = self._commit()
        except ZkConsumerError as error:
            if isinstance(error, GroupAuthorizationFailed):
                self._sent.clear()
            self._report.faults.append(f"offsets of group {self._group} in Kafka: {error}; {self._under.plan.resume}")
            self._look_again()
            return
        for change in self._changes:
            name, reason = self._name(change), refused.get(change.partition)
            (self._report.written if reason is None else self._report.not_written).append(name)
            if reason is not None:
                self._report.faults.append(f"{name} was not written: {reason}")
        self._under.show_progress()

    def _name(self, change: KafkaChange) -> str:
        return name_in_kafka(self._group, change.partition)

    def _require_former(self) -> None:
        """Kafka has no compare-and-set: the offsets are read right before they are written."""
        stored = self._offsets()
        for change in self._changes:
            now = stored.get(change.partition)
            if now != change.before:
                raise ZkConsumerError(f"another client wrote {change.partition}, which is {now}, not {change.before}")

    def _offsets(self) -> dict[TopicPartition, int | None]:
        committed = self._cluster.committed(self._group, [change.partition for change in self._changes])
        return {partition: stored.offset for partition, stored in committed.items()}

    def _commit(self) -> dict[TopicPartition, str]:
        """Kafka does not know the hold, so it is checked before each request."""
        refused = dict[TopicPartition, str]()
        for part in in_requests([change for change in self._changes if change.after is not None]):
            wanted = {change.partition: StoredOffset(change.after, change.metadata or None) for change in part}
            refused |= self._cluster.commit(
                self._group,
                wanted,
                retention_ms=self._under.plan.retention_ms,
                before_send=partial(self._before_sending, wanted),
            )
        for gone in in_requests([change.partition for change in self._changes if change.after is None]):
            refused |= self._cluster.delete(self._group, gone, before_send=partial(self._before_sending, gone))
        return refused

    def _before_sending(self, partitions: Iterable[TopicPartition]) -> None:
        self._under.hold.require()
        self._sent.update(partitions)

    def _look_again(self) -> None:
        """Read what became of requests of which one has no answer.

        What was sent may be stored later than it is read here: 1. the coordinator appends a commit, and its followers
        are slow; 2. it answers that they were too slow; 3. what is read here is the former offset; 4. the followers
        store the commit.
        """
        names = [self._name(change) for change in self._changes]
        try:
            stored = self._offsets()
        except ZkConsumerError as error:
            self._report.leave_unknown(names, "written", error)
            return
        for change in self._changes:
            shows = change.before != change.after  # otherwise it is committed for its retention alone
            if shows and stored.get(change.partition) == change.after:
                kind = self._report.written
            else:
                kind = self._report.unknown if change.partition in self._sent else self._report.not_written
            kind.append(self._name(change))

    def read_back(self) -> None:
        """Report what another client has written to Kafka since; no commit could exclude that client."""
        written = set(self._report.written)
        own_changes = [change for change in self._changes if self._name(change) in written]
        stored = self._offsets() if own_changes else {}
        overwritten = [
            f"{self._name(change)} as {stored.get(change.partition)}"
            for change in own_changes
            if stored.get(change.partition) != change.after
        ]
        if overwritten:
            self._report.faults.append(
                f"another client wrote {name_some(overwritten)}, right after it was written here; stop it, and try "
                "again"
            )
