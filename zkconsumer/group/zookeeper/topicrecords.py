"""TopicRecords: the znodes in which a group keeps which topics its members have consumed (adr/0025)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from zkconsumer.errors import MalformedZnode, ZooKeeperRefused
from zkconsumer.model import TopicIdentity
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, TopicRecord, next_record, origin
from zkconsumer.zookeeper.fencedtransaction import Kind, Operation
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name
from zkconsumer.zookeeper.session import ZkSession

_log: Final = logging.getLogger(__name__)


class _KnownRecords(NamedTuple):
    """Records that exist, and the czxid of their parent; None if there is no parent."""

    ensemble: int | None
    records: Mapping[str, tuple[TopicRecord | None, int]]

    def following(self, topic: str, identity: TopicIdentity) -> tuple[TopicRecord, TopicOrigin]:
        """What the record has to be when a member begins to consume the topic, and since when offsets can be of it."""
        present, written_at = self.records.get(topic, (None, None))
        record = next_record(present, identity, self.ensemble or 0)
        return record, origin(record, identity, written_at if record == present else None)


def read_origins(session: ZkSession, group: str, identities: Mapping[str, TopicIdentity]) -> dict[str, TopicOrigin]:
    """What a member would find out that begins to consume these topics now; for readers, which write no record.

    Raises:
        ZooKeeperUnavailable, SessionExpired: the records cannot be read.
    """
    return TopicRecords(session, group, None).consume(identities)


def _read_records(session: ZkSession, parent: str, topics: Iterable[str]) -> _KnownRecords:
    paths = {f"{parent}/{topic}": topic for topic in topics if is_node_name(topic)}
    nodes = session.get_many([parent, *paths])
    found = nodes.pop(parent)
    records: dict[str, tuple[TopicRecord | None, int]] = {}
    for path, node in nodes.items():
        if node is None:
            continue
        try:
            record = TopicRecord.decode(path, node.data)
        except MalformedZnode as error:
            _log.error("%s", error)
            record = None
        records[paths[path]] = record, node.mzxid
    return _KnownRecords(None if found is None else found.czxid, records)


class TopicRecords:
    """Reads and writes the records of one group; used by one thread.

    Args:
        session: an open session.
        group: consumer group.
        fence: returns the path of a node whose absence stops every write; None for a reader, which writes nothing.
    """

    def __init__(self, session: ZkSession, group: str, fence: Callable[[], str] | None) -> None:
        self._session = session
        self._parent = GroupPaths(group).topics
        self._fence = fence
        self._reported = False

    def replaced(self, identities: Mapping[str, TopicIdentity]) -> set[str]:
        """The topics of which the group has consumed an earlier one, as recorded, and not the present one yet.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the records cannot be read.
        """
        if not identities:
            return set()
        try:
            known = self._read(identities)
        except ZooKeeperRefused as refusal:
            self._report(refusal)
            return set()
        return {
            topic
            for topic, (record, _) in known.records.items()
            if record is not None
            and record.ensemble == known.ensemble
            and not identities[topic].is_recorded_as(record.topic)
        }

    def consume(self, identities: Mapping[str, TopicIdentity]) -> dict[str, TopicOrigin]:
        """Record that this member begins to consume these topics; returns since when offsets can be of them.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the records cannot be read or written.
        """
        if not identities:
            return {}
        try:
            known = self._read(identities)
            if known.ensemble is None and self._fence is not None:
                self._session.ensure_path(self._parent, b"", open_to_all=True)
                known = self._read(identities)
            return self._write(identities, known)
        except ZooKeeperRefused as refusal:
            self._report(refusal)
            return {topic: TopicOrigin(identity) for topic, identity in identities.items()}

    def _read(self, topics: Iterable[str]) -> _KnownRecords:
        return _read_records(self._session, self._parent, topics)

    def _write(self, identities: Mapping[str, TopicIdentity], known: _KnownRecords) -> dict[str, TopicOrigin]:
        operations, origins = [], {}
        for topic, identity in identities.items():
            record, origins[topic] = known.following(topic, identity)
            if record != known.records.get(topic, (None, 0))[0]:
                kind: Kind = "set" if topic in known.records else "create"
                operations.append(Operation(kind, f"{self._parent}/{topic}", record.encode()))
        if self._fence is None:
            return origins
        # One that exists by now was created by another member, for the same topic.
        for refusal in self._session.try_transact(self._fence(), operations).refused.values():
            self._report(refusal)
        return origins

    def _report(self, refusal: ZooKeeperRefused) -> None:
        if not self._reported:
            self._reported = True
            _log.warning(
                "%s: without a record of its topics the group does not recognise offsets of a topic that is deleted "
                "and created again while none of its members runs",
                refusal,
            )
