"""Which topic a stored offset was written for: one that is deleted and created again has the name, not the records.

A group has one znode for each topic that its zkconsumer members have consumed, its *record* (adr/0025).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from zkconsumer.errors import MalformedZnode, name_some
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import Mark, StoredOffset, topic_id_of, usable_offset
from zkconsumer.zookeeper.rules.znodes import parse_json

_EVERY_ZXID: Final = 1 << 63


class WrittenFor(Enum):
    """What the mark of a stored offset shows of the topic that it was written for."""

    PRESENT = "the topic that exists"
    EARLIER = "an earlier topic of the name, so it counts as none"
    BEFORE = "before the topic that exists was created"
    """A sign of an earlier topic, and no proof, since the group has no record of the topic: an ensemble that was filled
    by copying has the offset and the topic in any order."""
    UNKNOWN = "unknown"


class TopicOrigin(NamedTuple):
    """A topic that a member begins to consume.

    Attributes:
        identity: of the topic that exists now.
        after: ZooKeeper transaction before which no offset of this topic was written; None if that is unknown.
    """

    identity: TopicIdentity
    after: int | None = None

    def judge(self, mark: Mark | None) -> WrittenFor:
        """Which topic the offset with this mark was written for.

        Args:
            mark: mzxid of the offset's znode, or the metadata of its commit to Kafka.
        """
        if isinstance(mark, int):
            if self.after is not None:
                return WrittenFor.EARLIER if mark < self.after else WrittenFor.PRESENT
            created = self.identity.czxid
            return WrittenFor.BEFORE if created is not None and mark < created else WrittenFor.UNKNOWN
        written_for = topic_id_of(mark)
        if written_for is None:
            return WrittenFor.UNKNOWN
        if not self.identity.is_recorded_as(written_for):
            return WrittenFor.EARLIER
        return WrittenFor.PRESENT if self.identity.topic_id == written_for else WrittenFor.UNKNOWN

    def recorded_at(self, mzxid: int) -> TopicOrigin:
        """This origin, now that the write of its record is known, which :func:`origin` may have waited for."""
        return self._replace(after=mzxid) if self.after == _EVERY_ZXID else self


class JudgedOffset(NamedTuple):
    """A stored offset, and which topic it was written for.

    Attributes:
        offset: as it is stored; None if there is none, or if it is unknown.
        written_for: by its mark.
    """

    offset: int | None
    written_for: WrittenFor = WrittenFor.UNKNOWN

    @property
    def counting(self) -> int | None:
        """The offset; None if it is of an earlier topic."""
        return None if self.written_for is WrittenFor.EARLIER else self.offset

    @property
    def position(self) -> int | None:
        """Where a consumer continues by it; None if it has to reset."""
        return usable_offset(self.counting)


NOT_STORED: Final = JudgedOffset(None)
"""What a store holds of a partition without an offset."""


def judge_offset(origin: TopicOrigin | None, stored: StoredOffset) -> JudgedOffset:
    """A stored offset with the topic that it was written for; ``origin`` is None if the topic is not known to exist."""
    return JudgedOffset(stored.offset, WrittenFor.UNKNOWN if origin is None else origin.judge(stored.mark))


def judge_offsets(
    origins: Mapping[str, TopicOrigin], stored: Mapping[TopicPartition, StoredOffset]
) -> dict[TopicPartition, JudgedOffset]:
    """The stored offsets with the topics that they were written for.

    Args:
        origins: by name, as far as the topics exist; of others that is unknown.
        stored: offsets and their marks.
    """
    return {p: judge_offset(origins.get(p.topic), one) for p, one in stored.items()}


def may_be_copy(earlier: JudgedOffset, other: JudgedOffset) -> bool:
    """True if ``earlier`` is of an earlier topic, and the other store's offset may be a copy of it.

    1. A member commits to both stores; 2. the topic is deleted and created again; 3. both have an offset of the earlier
    one, and the mark of the other does not show it: brokers before 2.8 have no ids, and JVM members name none.
    """
    is_earlier, is_certain = earlier.written_for is WrittenFor.EARLIER, other.written_for is WrittenFor.PRESENT
    return is_earlier and usable_offset(earlier.offset) is not None and other.offset is not None and not is_certain


def without_copies(one: JudgedOffset, other: JudgedOffset) -> tuple[JudgedOffset, JudgedOffset]:
    """The offsets of two stores that a member reads both, without one that :func:`may_be_copy` of the other."""
    return NOT_STORED if may_be_copy(other, one) else one, NOT_STORED if may_be_copy(one, other) else other


def that_are(judged: Mapping[TopicPartition, JudgedOffset], written_for: WrittenFor) -> list[TopicPartition]:
    """The partitions whose stored offset was written for that, sorted."""
    return sorted(p for p, one in judged.items() if one.offset is not None and one.written_for is written_for)


def describe_before(partitions: Collection[TopicPartition]) -> tuple[str, ...]:
    """What operators should know of partitions with :attr:`WrittenFor.BEFORE`; empty without any."""
    text = (
        f"offsets of {name_some(sorted(partitions))} were stored before the topic was created, so they are of an "
        "earlier topic of that name, unless ZooKeeper was filled by copying or restored; they are used all the same, "
        "and consumers skip the records before them: where that is wrong, reset them first (`zkconsumer offsets reset`)"
    )
    return (text,) if partitions else ()


def count_as_none(group: str, outdated: Iterable[object]) -> str:
    """The sentence for operators about stored offsets of earlier topics."""
    named = name_some(sorted(outdated, key=str))
    return f"offsets of group {group} were stored for earlier topics of that name, so they count as none: {named}"


class TopicRecord(NamedTuple):
    """Content of a topic's record.

    Attributes:
        topic: identity of the topic, as :attr:`TopicIdentity.recorded` has it.
        ensemble: czxid of the record's parent. In another ensemble, which was filled by copying, it has another czxid:
            there a record proves nothing, since the topic and the offsets have other transactions, too, in any order.
        replaced: True if the group had consumed an earlier topic of this name.
    """

    topic: str | int
    ensemble: int
    replaced: bool = False

    def encode(self) -> bytes:
        """JSON."""
        return json.dumps({"version": 1, **self._asdict()}, separators=(",", ":")).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> TopicRecord:
        """The record.

        Raises:
            MalformedZnode: no member wrote it.
        """
        try:
            document = parse_json(data or b"")
            topic, ensemble, replaced = document["topic"], int(document["ensemble"]), bool(document["replaced"])
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedZnode(path, f"not the record of a topic ({error!r}); it is written again") from None
        return TopicRecord(topic if isinstance(topic, int) else str(topic), ensemble, replaced)


def next_record(record: TopicRecord | None, identity: TopicIdentity, ensemble: int) -> TopicRecord:
    """What the record has to be when a member begins to consume the topic.

    A topic that has got its id by an upgrade is recorded by the id, since brokers that describe topics do not know the
    czxid. A record that replaced another one stays: its last write shows which offsets count, see :func:`origin`.

    Args:
        record: the present one; None if there is none.
        identity: of the topic that exists now.
        ensemble: czxid of the parent.
    """
    if record is None or record.ensemble != ensemble or record.topic == "":
        return TopicRecord(identity.recorded, ensemble)
    if identity.is_recorded_as(record.topic):
        has_new_id = record.topic == identity.czxid and identity.topic_id is not None and not record.replaced
        return record._replace(topic=identity.recorded) if has_new_id else record
    return TopicRecord(identity.recorded, ensemble, replaced=True)


def origin(record: TopicRecord, identity: TopicIdentity, written_at: int | None) -> TopicOrigin:
    """The topic to consume, and since when offsets can be of it.

    A record that replaced another one shows that the topic was created while the group existed. Then every offset that
    was written before the topic was created is one of an earlier topic. Where brokers describe topics, when it was
    created is unknown; there the group's offsets count from when its record was replaced.

    Args:
        record: as it is after :func:`next_record`.
        identity: of the topic that exists now.
        written_at: mzxid of the record; None if this call of the member writes it.
    """
    if not record.replaced:
        return TopicOrigin(identity)
    if identity.czxid is not None:
        return TopicOrigin(identity, identity.czxid)
    return TopicOrigin(identity, _EVERY_ZXID if written_at is None else written_at)
