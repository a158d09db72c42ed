"""The values that all parts of zkconsumer exchange. They are immutable and know no I/O."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then numerically by partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ConsumerThreadId(NamedTuple):
    """Identity of one consumer thread, that is one stream, inside its group (SPEC 2).

    Its text is what an owner znode holds. Order among thread ids is that of the *text*, see
    :func:`zkconsumer.core.javastring.java_order`; do not rely on the tuple order.
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


class Broker(NamedTuple):
    """A live broker and the endpoint that this consumer may use."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"broker {self.id} ({self.host}:{self.port})"


class Message(NamedTuple):
    """One record as a stream hands it out.

    ``timestamp`` is in milliseconds since the epoch, or None where the record has none (message format 0);
    ``timestamp_type`` is 0 for create time, 1 for log-append time, or None. ``headers`` keeps order and duplicates.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
