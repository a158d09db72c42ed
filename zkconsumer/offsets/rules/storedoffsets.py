"""Decisions about stored offsets: what wrote them, what to commit, and which of two to use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from zkconsumer.model import Stamp, TopicPartition

OffsetStorage = Literal["auto", "zookeeper", "kafka", "both"]
"""Whose committed offset counts: Kafka's where there is one, else ZooKeeper's, as the JVM's tools have it; one store's
alone; or the greater one, which a member with offsets.storage=kafka and dual.commit.enabled takes."""

Store = Literal["zookeeper", "kafka"]
"""Where an offset is stored."""

Mark = int | str
"""Identifies one write of a stored offset: the mzxid of its znode, or the metadata of its commit to Kafka."""

OUR_METADATA = "zkconsumer:"
"""Prefix of the metadata of commits that this package sends to Kafka; a unique text follows, and the topic's id."""

MIGRATED: Final = "migrate-"
"""Begins the unique text of an offset that `migrate run` copied to Kafka; 16 digits of its plan follow."""

NO_NODE = -1
"""Stands for the version of an offset node that does not exist; the version of a created node is one more."""


class StoredOffset(NamedTuple):
    """What a store holds for one partition.

    Attributes:
        offset: the next offset to consume; None if there is none.
        mark: identifies the write that stored it; None if there is none, or if it is unknown.
        stamp: of the commit that stored it; None if another client than a Spark query did, or if it is unknown.
    """

    offset: int | None
    mark: Mark | None = None
    stamp: Stamp | None = None


NO_OFFSET: Final = StoredOffset(None)
"""What a store holds of a partition without an offset, or of one of which that is unknown."""


def unmarked(
    offsets: Mapping[TopicPartition, int] | Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, StoredOffset]:
    """Offsets to store without a mark."""
    return {partition: StoredOffset(offset) for partition, offset in offsets.items()}


def offsets_of(stored: Mapping[TopicPartition, StoredOffset]) -> dict[TopicPartition, int]:
    """The offsets that there are, without their marks."""
    return {partition: offset.offset for partition, offset in stored.items() if offset.offset is not None}


def usable_offset(offset: int | None) -> int | None:
    """Where a consumer continues by a stored offset; None if it has to reset.

    A negative offset stands for no offset, as the JVM's consumer reads one that is missing
    (jvm-consumer.md#offsets-in-zookeeper).

    >>> usable_offset(0), usable_offset(-1), usable_offset(None)
    (0, None, None)
    """
    return None if offset is None or offset < 0 else offset


def is_unique(mark: Mark | None) -> bool:
    """True if no two writes have this mark; other clients send the same metadata with every commit."""
    return isinstance(mark, int) or (mark is not None and mark.startswith(OUR_METADATA))


def is_same_write(stored: StoredOffset, before: StoredOffset) -> bool:
    """True if a store holds what it held before, so that no client has stored anything since.

    Marks that are not unique do not show that by themselves: the offsets have to be equal, too. Where they are, another
    client may still have moved the offset away and back; nothing shows that.

    >>> is_same_write(StoredOffset(9, ""), StoredOffset(9, "")), is_same_write(StoredOffset(9, ""), StoredOffset(5, ""))
    (True, False)
    """
    return stored.mark == before.mark and (is_unique(stored.mark) or stored.offset == before.offset)


def is_migrated(stored: StoredOffset, before: StoredOffset) -> bool:
    """True if a migration has copied to Kafka the offset that another store held before.

    >>> is_migrated(StoredOffset(9, "zkconsumer:migrate-12ab"), StoredOffset(9, 1234))
    True
    """
    copied = isinstance(stored.mark, str) and stored.mark.startswith(OUR_METADATA + MIGRATED)
    return copied and stored.offset == before.offset


def our_metadata(unique: str, topic_id: str | None, stamp: Stamp | None = None) -> str:
    """Metadata of one commit.

    Args:
        unique: a text that no other commit has, without a dot or a colon.
        topic_id: of the topic that the offset belongs to; None if it has none.
        stamp: of the commit; before ``unique``, since earlier releases take all that follows it for a topic id.
    """
    of_query = "" if stamp is None else f"{stamp.query}.{stamp.plan}."
    return f"{OUR_METADATA}{of_query}{unique}" + ("" if topic_id is None else f":{topic_id}")


def fresh_metadata(mark: Mark | None, unique: str, topic: str | int | None = None) -> str:
    """Metadata for an offset that takes the place of one with this mark.

    That of other clients is kept. A mark of ours is unique, so it is not used again: to a query that has read it, the
    new offset would look like the one that it read. ``unique`` takes its place, see :func:`our_metadata`.

    ``topic`` is what the identity of the topic that the new offset belongs to is recorded as; None if it is that of the
    mark. Members ignore an offset with the id of an earlier topic.
    """
    if isinstance(mark, str) and is_unique(mark):
        return our_metadata(unique, topic if isinstance(topic, str) and topic else topic_id_of(mark))
    return str(mark or "")


def stamp_of(mark: Mark | None) -> Stamp | None:
    """The stamp in the metadata of a commit to Kafka; None if there is none.

    >>> stamp_of("zkconsumer:1f.17.12ab:XnPq"), stamp_of("zkconsumer:12ab:XnPq"), stamp_of("another:1f.17.12ab")
    (Stamp(query='1f', plan=17), None, None)
    """
    if not isinstance(mark, str) or not mark.startswith(OUR_METADATA):
        return None
    match mark.removeprefix(OUR_METADATA).partition(":")[0].split("."):
        case [query, plan, _] if plan.isascii() and plan.isdigit():
            return Stamp(query, int(plan))
    return None


def topic_id_of(mark: Mark | None) -> str | None:
    """The id of the topic that an offset was written for; None if its mark does not name one.

    >>> topic_id_of("zkconsumer:12ab:XnPq"), topic_id_of("zkconsumer:12ab"), topic_id_of("another:12ab:XnPq")
    ('XnPq', None, None)
    """
    if not isinstance(mark, str) or not mark.startswith(OUR_METADATA):
        return None
    return mark.removeprefix(OUR_METADATA).partition(":")[2] or None


@dataclass(frozen=True, slots=True)
class KnownOffset:
    """The state of an offset node as this member last read or wrote it.

    Attributes:
        offset: None if there was no node.
        version: version of the node, which every write increments; :data:`NO_NODE` if there was no node; None if the
            answer to a write was lost.
        mzxid: mzxid of the node; None if there was no node, or if it is unknown.
        stamp: see :class:`StoredOffset`.
    """

    offset: int | None
    version: int | None
    mzxid: int | None = None
    stamp: Stamp | None = None

    @property
    def stored(self) -> StoredOffset:
        """The offset with its mark, as every store reports it."""
        return StoredOffset(self.offset, self.mzxid, self.stamp)


def written_by_others(known: KnownOffset, version: int) -> bool:
    """True if another client wrote, created or deleted an offset node since this member last knew it.

    See architecture.md#fencing.

    Args:
        known: the node before this member's own write.
        version: version of the node after this member's own write; one more if no other client wrote.
    """
    return known.version is not None and version != known.version + 1


def changed_offsets(
    positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """The positions that differ from what is known to be stored; only these are written (KAFKA-987).

    Unlike in the JVM, the offset of a partition that was never committed is not assumed to be 0
    (jvm-consumer.md#defects).
    """
    return {partition: offset for partition, offset in positions.items() if committed.get(partition) != offset}


class ChosenOffset(NamedTuple):
    """The one of two stored offsets that counts.

    Attributes:
        offset: None if there is none, or if it is unknown; a negative one if there is only that.
        in_kafka: True if it is Kafka's, with Kafka's mark; both stores may have the same offset.
        is_known: False if a store that may have it does not report its own.
    """

    offset: int | None
    in_kafka: bool = False
    is_known: bool = True


def choose_stored(in_zookeeper: int | None, in_kafka: int | None, rule: str) -> ChosenOffset:
    """Which of two stored offsets counts. One of an earlier topic is not passed, if there is another (adr/0025).

    Args:
        in_zookeeper: offset in ZooKeeper, None if there is none.
        in_kafka: offset in Kafka, None if there is none.
        rule: ``max``, the JVM's rule, under which a rewind must lower both stores, and ZooKeeper's counts if both are
            equal; or ``zookeeper`` or ``kafka``, whose offset is used, or the other store's if it has none.
    """
    if in_kafka is None or (usable_offset(in_kafka) is None and in_zookeeper is not None):
        return ChosenOffset(in_zookeeper)
    if in_zookeeper is None or usable_offset(in_zookeeper) is None:
        return ChosenOffset(in_kafka, in_kafka=True)
    is_kafka = in_kafka > in_zookeeper if rule == "max" else rule == "kafka"
    return ChosenOffset(in_kafka if is_kafka else in_zookeeper, is_kafka)


def counting_offset(
    in_zookeeper: int | None, in_kafka: int | None, storage: OffsetStorage, unknown_in: Collection[Store] = ()
) -> ChosenOffset:
    """Which of two stored offsets counts for a tool.

    Args:
        in_zookeeper: offset in ZooKeeper, None if there is none.
        in_kafka: offset in Kafka, None if there is none.
        storage: whose counts.
        unknown_in: stores that may have another offset, which cannot be read.
    """
    # One of the other store may be years old, so it does not take the place of one that is unknown.
    if "kafka" in unknown_in and storage != "zookeeper":
        return ChosenOffset(None, is_known=False)
    by_kafka_alone = storage == "kafka" or (storage == "auto" and usable_offset(in_kafka) is not None)
    if "zookeeper" in unknown_in and not by_kafka_alone:
        return ChosenOffset(None, is_known=False)
    return choose_stored(
        None if storage == "kafka" else in_zookeeper,
        None if storage == "zookeeper" else in_kafka,
        "max" if storage == "both" else "kafka",
    )


def counts_in_kafka(storage: OffsetStorage) -> bool:
    """True if an offset that only Kafka has counts, also of a partition that ZooKeeper does not have for the group."""
    return storage in ("kafka", "both")
