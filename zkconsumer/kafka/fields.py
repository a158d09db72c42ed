"""Strings, arrays and numbers, as requests hold them in the versions before KIP-482.

Kafka made its messages "flexible" by new lengths and tagged fields; what is asked here had all its fields before that.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition

_STRING_LENGTH: Final = struct.Struct(">h")
_ARRAY_LENGTH: Final = struct.Struct(">i")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Topic to its partitions, in the order given: the shape of most requests."""
    grouped: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        grouped[partition.topic].append(partition)
    return grouped


def encode_string(text: str) -> bytes:
    """A string behind its length."""
    encoded = text.encode()
    return _STRING_LENGTH.pack(len(encoded)) + encoded


def encode_array(items: Sequence[bytes]) -> bytes:
    """An array of items that are encoded already, behind their number."""
    return _ARRAY_LENGTH.pack(len(items)) + b"".join(items)


def encode_topics(topics: Mapping[str, Sequence[bytes]]) -> bytes:
    """An array of topics, each with its array of partitions, which are encoded already."""
    return encode_array([encode_string(topic) + encode_array(partitions) for topic, partitions in topics.items()])


class Fields:
    """Takes a response apart from front to back; reading past its end raises ``struct.error``."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next numbers."""
        start = self._at
        self._at += layout.size
        return layout.unpack_from(self._body, start)

    def text(self) -> str:
        """The next string; null counts as empty."""
        (length,) = self.take(_STRING_LENGTH)
        return bytes(self._bytes(max(0, length))).decode()

    def count(self) -> int:
        """Length of the array that begins here; null counts as 0."""
        (length,) = self.take(_ARRAY_LENGTH)
        return max(0, int(length))

    def rows(self, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """The next array, whose items are numbers of one layout."""
        return layout.iter_unpack(self._bytes(self.count() * layout.size))

    def skip(self, layout: struct.Struct) -> None:
        """Leave an array out that :meth:`rows` would return."""
        self._bytes(self.count() * layout.size)

    def end(self) -> None:
        """Nothing may follow: it would belong to something that this version has not."""
        if self._at != len(self._body):
            raise ProtocolError(f"{len(self._body) - self._at} bytes follow its end")

    def _bytes(self, count: int) -> memoryview:
        start = self._at
        self._at += count
        if self._at > len(self._body):
            raise struct.error(f"{self._at - len(self._body)} bytes are missing at its end")
        return self._body[start : self._at]


@contextmanager
def told_malformed(message: str, version: int) -> Iterator[None]:
    """Turn what malformed bytes lead to into ProtocolError, in words that go on after the name of a broker."""
    try:
        yield
    except (struct.error, UnicodeDecodeError, ProtocolError) as error:
        raise ProtocolError(f"sent a malformed {message} response (version {version}): {error}") from error
