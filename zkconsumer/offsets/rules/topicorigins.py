"""Which topic an offset was written for: a topic that is deleted and created again has the name, not the records.

A group has one znode for each topic that its zkconsumer members have consumed, its *record* (adr/0025).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from zkconsumer.errors import MalformedZnode, name_some
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import Mark, topic_id_of
from zkconsumer.zookeeper.rules.znodes import parse_json

_EVERY_ZXID: Final = 1 << 63


class TopicOrigin(NamedTuple):
    """A topic that a member begins to consume.

    Attributes:
        identity: of the topic that exists now.
        after: ZooKeeper transaction before which no offset of this topic was written; None if that is unknown.
    """

    identity: TopicIdentity
    after: int | None = None

    def is_older(self, mark: Mark | None) -> bool:
        """True if the offset with this mark was written for an earlier topic of the same name.

        Args:
            mark: mzxid of the offset's znode, or the metadata of its commit to Kafka.
        """
        if isinstance(mark, int):
            return self.after is not None and mark < self.after
        written_for = topic_id_of(mark)
        return written_for is not None and not self.identity.is_recorded_as(written_for)

    def is_certain(self, mark: Mark | None) -> bool:
        """True if the offset with this mark was certainly written for this topic; ``mark`` as of :meth:`is_older`."""
        if isinstance(mark, int):
            return self.after is not None and mark >= self.after
        return self.identity.topic_id is not None and topic_id_of(mark) == self.identity.topic_id


def of_earlier_topics(
    origins: Mapping[str, TopicOrigin], marks: Mapping[TopicPartition, Mark | None]
) -> frozenset[TopicPartition]:
    """The partitions whose stored offset members ignore: it was written for an earlier topic of the same name.

    Args:
        origins: by name, as far as the topics exist.
        marks: of the stored offsets.
    """
    return frozenset(p for p, mark in marks.items() if p.topic in origins and origins[p.topic].is_older(mark))


def of_present_topics(
    origins: Mapping[str, TopicOrigin], marks: Mapping[TopicPartition, Mark | None]
) -> frozenset[TopicPartition]:
    """The partitions whose stored offset was certainly written for the topic that exists; see above."""
    return frozenset(p for p, mark in marks.items() if p.topic in origins and origins[p.topic].is_certain(mark))


def before_their_topics(
    identities: Mapping[str, TopicIdentity], marks: Mapping[TopicPartition, Mark | None]
) -> frozenset[TopicPartition]:
    """The partitions whose offset znode was written before the znode of the topic that exists was created.

    Where the group has no record of the topic, that is a sign of an earlier topic, and no proof: an ensemble that was
    filled by copying has both in any order.
    """
    created = {topic: TopicOrigin(identity, identity.czxid) for topic, identity in identities.items()}
    return of_earlier_topics(created, marks)


def describe_before(partitions: Collection[TopicPartition]) -> tuple[str, ...]:
    """What operators should know of :func:`before_their_topics`; empty without any."""
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

    Args:
        record: the present one; None if there is none.
        identity: of the topic that exists now.
        ensemble: czxid of the parent.
    """
    if record is None or record.ensemble != ensemble or record.topic == "":
        return TopicRecord(identity.recorded, ensemble)
    if identity.is_recorded_as(record.topic):
        return record
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
