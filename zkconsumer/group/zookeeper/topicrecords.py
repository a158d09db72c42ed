"""TopicRecords: the znodes in which a group keeps which topics its members have consumed (adr/0025)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from zkconsumer.errors import MalformedZnode, ZooKeeperRefused
from zkconsumer.model import TopicIdentity, recreated_topics
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, TopicRecord, next_record, origin
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name
from zkconsumer.zookeeper.session import ZkSession

if TYPE_CHECKING:
    from zkconsumer.zookeeper.fencedtransaction import Operation

_log: Final = logging.getLogger(__name__)


class _KnownRecords(NamedTuple):
    """Records that exist, their parent, and its czxid; None if there is no parent."""

    parent: str
    ensemble: int | None
    records: Mapping[str, tuple[TopicRecord | None, Znode]]

    def following(self, topic: str, identity: TopicIdentity) -> tuple[Operation | None, TopicOrigin]:
        """How to write the record when a member begins to consume the topic, and since when offsets can be of it.

        Nothing is written if the record is right. It is written only as it was read: 1. two members read the record of
        the former topic; 2. one replaces it, and commits; 3. the other one's later record would be newer than the
        offset, which would count as one of the former topic.
        """
        present, node = self.records.get(topic, (None, None))
        record = next_record(present, identity, self.ensemble or 0)
        if node is not None and record == present:
            return None, origin(record, identity, node.mzxid)
        path, data = f"{self.parent}/{topic}", record.encode()
        from zkconsumer.zookeeper.fencedtransaction import Operation  # readers of groups need none

        write = Operation("create", path, data) if node is None else Operation("set", path, data, node.version)
        return write, origin(record, identity, None)

    def replaced(self, identities: Mapping[str, TopicIdentity]) -> set[str]:
        """The topics of which the group has consumed an earlier one, and not the present one yet."""
        recorded = {
            topic: record.topic
            for topic, (record, _) in self.records.items()
            if record is not None and record.ensemble == self.ensemble
        }
        return recreated_topics(recorded, identities)


def read_origins(session: ZkSession, group: str, identities: Mapping[str, TopicIdentity]) -> dict[str, TopicOrigin]:
    """What a member would find out that begins to consume these topics now; for readers, which write no record.

    Raises:
        ZooKeeperUnavailable, SessionExpired: the records cannot be read.
    """
    return TopicRecords(session, group, None).consume(identities)


def record_paths(group: str, topics: Iterable[str]) -> list[str]:
    """The nodes that :func:`origins_in` needs."""
    parent = GroupPaths(group).topics
    return [parent, *_paths(parent, topics)]


def origins_in(
    nodes: Mapping[str, Znode | None], group: str, identities: Mapping[str, TopicIdentity]
) -> dict[str, TopicOrigin]:
    """As :func:`read_origins`, of nodes that were read with others of the group: :func:`record_paths`."""
    known = _known_records(GroupPaths(group).topics, identities, nodes)
    return {topic: known.following(topic, identity)[1] for topic, identity in identities.items()}


class DeletedNode(Protocol):
    """What a znode was."""

    @property
    def data(self) -> bytes | None:
        """Its content."""

    @property
    def mzxid(self) -> int:
        """Transaction of its last write."""


def former_origins(
    session: ZkSession, group: str, deleted: Mapping[str, DeletedNode], identities: Mapping[str, TopicIdentity]
) -> dict[str, TopicOrigin]:
    """What a member would have found out by records that were deleted.

    Args:
        session: an open session.
        group: consumer group.
        deleted: znodes of the group, by path; those that are no records count as none. Nothing sets the records'
            parent, so its last write was its creation.
        identities: of the topics that exist.

    Raises:
        ZooKeeperRefused, ZooKeeperUnavailable, SessionExpired: the records' parent exists, and cannot be read.
    """
    parent, *records = record_paths(group, identities)
    if deleted.keys().isdisjoint(records):
        return {}
    nodes = {path: _as_it_was(deleted.get(path)) for path in (parent, *records)}
    if parent not in deleted:
        nodes[parent] = session.get(parent)
    return origins_in(nodes, group, identities)


def _as_it_was(node: DeletedNode | None) -> Znode | None:
    return None if node is None else Znode(node.data, 0, 0, 0, czxid=node.mzxid, mzxid=node.mzxid)


def replace_records(session: ZkSession, group: str, fence: str, identities: Mapping[str, TopicIdentity]) -> None:
    """Before a tool writes offsets: the records of topics that were created again become those of the present topics.

    1. A topic is created again while no member runs; 2. a tool writes an offset of it; 3. a member starts, and replaces
    the record. Where brokers describe topics, an offset counts if it is newer than the record, and that of step 2 would
    not. Offsets of the group that the tool does not write stay older than the record.

    Args:
        session: an open session.
        group: without members: the leader of a coordinated group would not notice any more what members consume.
        fence: path of a node whose absence stops the write.
        identities: of the topics that exist; those without a record get none.

    Raises:
        ZooKeeperRefused: records may not be read or written.
        ZooKeeperUnavailable, SessionExpired: they cannot be.
    """
    known = _read_records(session, GroupPaths(group).topics, identities)
    writes = (known.following(topic, identities[topic])[0] for topic in sorted(known.replaced(identities)))
    session.transact(fence, [write for write in writes if write is not None])


def _paths(parent: str, topics: Iterable[str]) -> dict[str, str]:
    return {f"{parent}/{topic}": topic for topic in topics if is_node_name(topic)}


def _read_records(session: ZkSession, parent: str, topics: Iterable[str]) -> _KnownRecords:
    names = list(topics)
    return _known_records(parent, names, session.get_many([parent, *_paths(parent, names)]))


def _known_records(parent: str, topics: Iterable[str], nodes: Mapping[str, Znode | None]) -> _KnownRecords:
    found = nodes[parent]
    records: dict[str, tuple[TopicRecord | None, Znode]] = {}
    for path, topic in _paths(parent, topics).items():
        if (node := nodes[path]) is not None:
            records[topic] = _decoded(path, node.data), node
    return _KnownRecords(parent, None if found is None else found.czxid, records)


def _decoded(path: str, data: bytes | None) -> TopicRecord | None:
    try:
        return TopicRecord.decode(path, data)
    except MalformedZnode as error:
        _log.error("%s", error)
        return None


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
        return known.replaced(identities)

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
        following = {topic: known.following(topic, identity) for topic, identity in identities.items()}
        origins = {topic: one for topic, (_, one) in following.items()}
        if self._fence is None:
            return origins
        writes = {topic: write for topic, (write, _) in following.items() if write is not None}
        # One that was written since it was read was written by another member, or a tool, for the same topic.
        outcomes = self._session.try_transact(self._fence(), list(writes.values()))
        for refusal in outcomes.refused.values():
            self._report(refusal)
        for topic, write in writes.items():
            if outcomes[write.path] == "refused":
                origins[topic] = TopicOrigin(identities[topic])  # without a record no offset is one of an earlier topic
            elif (mzxid := outcomes.mzxids.get(write.path)) is not None:
                origins[topic] = origins[topic].recorded_at(mzxid)
        by_others = [topic for topic, write in writes.items() if outcomes[write.path] not in ("done", "refused")]
        if by_others:
            known = self._read(by_others)
            origins |= {topic: known.following(topic, identities[topic])[1] for topic in by_others}
        return origins

    def _report(self, refusal: ZooKeeperRefused) -> None:
        if not self._reported:
            self._reported = True
            _log.warning(
                "%s: without a record of its topics the group does not recognise offsets of a topic that is deleted "
                "and created again while none of its members runs",
                refusal,
            )
