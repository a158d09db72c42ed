"""Strings, arrays and numbers, as encoded in requests and responses.

Kafka made its messages "flexible" by new lengths and tagged fields (KIP-482). Fetch needs such a version, and Metadata
for the ids of topics; the other requests had all needed fields before.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.response import WINDOW_BYTES, ResponseStream

_BYTE: Final = struct.Struct(">B")
_LAST_SHIFT: Final = 28  # shift of the last byte of a varint of five bytes, the longest for 32 bits
_STRING_LENGTH: Final = struct.Struct(">h")
_LONGEST_STRING: Final = (1 << 15) - 1
_ARRAY_LENGTH: Final = struct.Struct(">i")
_NULL: Final = -1  # length of a null value


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Topic to its partitions, in the given order, as most requests are structured."""
    grouped: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        grouped[partition.topic].append(partition)
    return grouped


def is_encodable(name: str) -> bool:
    """True if a request can carry a name: at most 32,767 bytes of UTF-8.

    A znode's name can be longer, and a name in a registration can hold a lone surrogate.
    """
    try:
        return len(name.encode()) <= _LONGEST_STRING
    except UnicodeEncodeError:
        return False


def encode_string(text: str) -> bytes:
    """A string for which :func:`is_encodable` holds, preceded by its length."""
    encoded = text.encode()
    return _STRING_LENGTH.pack(len(encoded)) + encoded


def encode_array(items: Sequence[bytes]) -> bytes:
    """An array of encoded items, preceded by their number."""
    return _ARRAY_LENGTH.pack(len(items)) + b"".join(items)


def encode_varint(number: int) -> bytes:
    """A number of at least 0 in groups of 7 bits, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_compact_string(text: str) -> bytes:
    """A string, preceded by its length as flexible versions encode it."""
    encoded = text.encode()
    return encode_varint(len(encoded) + 1) + encoded


def encode_compact_array(items: Sequence[bytes] | None) -> bytes:
    """An array of encoded items, preceded by their number as flexible versions encode it; None for a null array."""
    return b"\0" if items is None else encode_varint(len(items) + 1) + b"".join(items)


def encode_topics(topics: Mapping[str, Sequence[bytes]]) -> bytes:
    """An array of topics, each with its array of encoded partitions."""
    return encode_array([encode_string(topic) + encode_array(partitions) for topic, partitions in topics.items()])


class Fields:
    """Parses a response from front to back; the only parser of brokers' responses.

    Reading past the end raises ProtocolError. A count or length is compared with the remaining bytes before it is used,
    so that an invalid one costs neither time nor memory.

    Args:
        source: the response, whole or while it arrives.
        flexible: True for a version with compact lengths and tagged fields (KIP-482).

    Attributes:
        take: returns the next numbers; its argument is their layout.
    """

    def __init__(self, source: ResponseStream | memoryview, *, flexible: bool = False) -> None:
        self._source = ResponseStream(None, source) if isinstance(source, memoryview) else source
        self._flexible = flexible
        self.take: Final = self._source.unpack

    def text(self) -> str:
        """The next string; null counts as empty."""
        return str(self._source.take(self._length(_STRING_LENGTH)), "utf-8")

    def count(self) -> int:
        """Length of the array that begins here, whose items take at least one byte each; null counts as 0."""
        return self._length(_ARRAY_LENGTH)

    def data(self) -> memoryview:
        """The next byte field, valid until the next call; null counts as empty."""
        return self._source.take(self._length(_ARRAY_LENGTH))

    def data_to_keep(self) -> memoryview:
        """The next byte field, in memory that is not reused while it is referenced."""
        return self._source.take_to_keep(self._length(_ARRAY_LENGTH))

    def rows(self, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """The next array, whose items are numbers of one layout, without tagged fields; valid until the next call."""
        return layout.iter_unpack(self._source.take(self.count() * layout.size))

    def skip(self, layout: struct.Struct) -> None:
        """Skip an array as :meth:`rows` returns it."""
        self._source.skip(self.count() * layout.size)

    def packed(self, layout: struct.Struct, *, wanted: bool) -> bytes:
        """The next array, whose items are numbers of one layout and, in a flexible version, tagged fields.

        Args:
            layout: layout of one item.
            wanted: False to skip the array.

        Returns:
            The items one after the other, without their tagged fields; empty if they are not wanted.
        """
        count = self.count()
        if not count:
            return b""
        stride = layout.size + self._flexible  # without tagged fields, an item has one byte for their number
        if count * stride > self._source.left:
            raise ProtocolError(
                f"{count} items of {stride} bytes are announced, but {self._source.left} bytes are left"
            )
        kept = bytearray()
        while count:
            items = self._source.peek(min(count, WINDOW_BYTES // stride) * stride)
            untagged = len(items) // stride
            if self._flexible:
                untagged -= len(bytes(items[layout.size :: stride]).lstrip(b"\0"))
            if untagged:
                some = bytearray(items[: untagged * stride]) if wanted else bytearray()
                if self._flexible:
                    del some[layout.size :: stride]
                kept += some
                self._source.skip(untagged * stride)
            else:
                some = bytearray(self._source.take(layout.size))
                kept += some if wanted else b""
                self.tags()
            count -= max(1, untagged)
        return bytes(kept)

    def tags(self) -> None:
        """Skip the tagged fields of a flexible structure."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._source.skip(self._varint())

    def end(self) -> None:
        """Check that no bytes follow: this version has no further fields."""
        if self._source.left:
            raise ProtocolError(f"{self._source.left} bytes follow its end")

    def _length(self, layout: struct.Struct) -> int:
        count: int = self._varint() - 1 if self._flexible else self.take(layout)[0]
        if not _NULL <= count <= self._source.left:
            raise ProtocolError(f"{count} items are announced, but {self._source.left} bytes are left")
        return max(count, 0)

    def _varint(self) -> int:
        byte: int = self.take(_BYTE)[0]
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            if shift > _LAST_SHIFT:
                raise ProtocolError("a varint is longer than five bytes")
            byte = self.take(_BYTE)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
        return value


@contextmanager
def reporting_malformed(message: str, version: int) -> Iterator[None]:
    """Turn exceptions from malformed bytes into ProtocolError; its text continues after the name of a broker."""
    try:
        yield
    except (UnicodeDecodeError, ProtocolError) as error:
        raise ProtocolError(f"sent a malformed {message} response (version {version}): {error}") from error
