"""The values that all parts of zkconsumer exchange. They are immutable and know no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then numerically by partition.

    Attributes:
        topic: name of the topic.
        partition: number of the partition, from 0 on.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ConsumerThreadId(NamedTuple):
    """Identity of one consumer thread, that is one stream, inside its group.

    Its text is what an owner znode holds. Order among thread ids is that of the *text*, as Java compares
    strings; do not rely on the tuple order.

    Attributes:
        consumer_id: id of the consumer in its group.
        number: of the thread in its consumer, from 0 on.
    """

    consumer_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> ConsumerThreadId:
        """Read the text of an owner znode by cutting at the last hyphen, as the JVM's tools do.

        Raises:
            ValueError: there is no hyphen followed by a decimal number.
        """
        consumer_id, hyphen, number = text.rpartition("-")
        if not hyphen or not (number.isascii() and number.isdigit()):
            raise ValueError(f"not a consumer thread id: {text!r}")
        return cls(consumer_id, int(number))


LEGAL_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,255}\Z")
"""Names that brokers accept or accepted; since 0.10 the limit is 249 characters, and longer ones stay usable."""


class TopicIdentity(NamedTuple):
    """Distinguishes topics that had the same name: a topic that is deleted and created again gets another identity.

    Attributes:
        topic_id: assigned by the controller since Kafka 2.8 (KIP-516); None before, and until a cluster is upgraded.
        czxid: the ZooKeeper transaction that created the znode ``/brokers/topics/T``; None if brokers described the
            topic, which do not know it.
    """

    topic_id: str | None
    czxid: int | None

    @property
    def recorded(self) -> str | int:
        """What to store in order to recognise the topic later: its topic id, or the czxid if it has none; else ""."""
        if self.topic_id is not None:
            return self.topic_id
        return "" if self.czxid is None else self.czxid

    def is_recorded_as(self, recorded: str | int) -> bool:
        """False if ``recorded`` belongs to another topic.

        A topic that got its id by an upgrade is still the same topic. What cannot be compared, such as the czxid that
        was recorded before the brokers left ZooKeeper, or an id where the topic is described without one, counts as the
        same topic, too.
        """
        present = self.topic_id if isinstance(recorded, str) else self.czxid
        return recorded == "" or present in (None, recorded)

    def is_same_topic(self, other: TopicIdentity) -> bool:
        """True if both identify the same topic, or cannot be compared; also if only one of them has a topic id."""
        if self.topic_id is None or other.topic_id is None:
            return self.czxid is None or other.czxid is None or self.czxid == other.czxid
        return self.topic_id == other.topic_id


def recreated_topics(recorded: Mapping[str, str | int | None], now: Mapping[str, TopicIdentity]) -> set[str]:
    """The topics that exist, and were created, or created again, since their identities were recorded.

    Args:
        recorded: by name of topic; see :attr:`TopicIdentity.recorded`. None if the topic did not exist then.
        now: identities of the topics that exist.
    """
    return {
        topic
        for topic, identity in now.items()
        if topic in recorded and ((then := recorded[topic]) is None or not identity.is_recorded_as(then))
    }


def replaced_topics(before: Mapping[str, TopicIdentity], now: Mapping[str, TopicIdentity]) -> set[str]:
    """The topics that exist, and are not the ones that existed before under the same names.

    Args:
        before: identities of the topics that existed.
        now: identities of the topics that exist.
    """
    return {topic for topic, identity in now.items() if topic in before and not identity.is_same_topic(before[topic])}


class Topic(NamedTuple):
    """A topic as ZooKeeper describes it: its partition numbers, ascending, and its identity."""

    partitions: tuple[int, ...]
    identity: TopicIdentity


class Stamp(NamedTuple):
    """The plan of a Spark query whose end a commit stores.

    Attributes:
        query: random id of the query.
        plan: number of the plan.
    """

    query: str
    plan: int


class Broker(NamedTuple):
    """A live broker and the endpoint that this consumer may use."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        address = f"{self.host}:{self.port}"
        return f"broker {address}" if self.id < 0 else f"broker {self.id} ({address})"  # as of bootstrap_brokers


class Message(NamedTuple):
    """One record as a stream hands it out.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        offset: of the record in its partition.
        timestamp: in ms since the epoch; None if the record has none (message format 0).
        timestamp_type: 0 for create time, 1 for log-append time; None without a timestamp.
        key: bytes of the key; None if the record has none.
        value: bytes of the value; None if it is null, as in a tombstone.
        headers: names and values, in their order and with duplicates; empty in message formats before 2.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
