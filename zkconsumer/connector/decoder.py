"""Decoders: keys and values as objects instead of bytes, decoded when they are accessed (jvm-consumer.md#messages)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from zkconsumer.model import Message

Decoder = Callable[[bytes], object]
"""Turns the bytes of a key or value into an object; may raise. Examples: ``bytes.decode``, ``json.loads``."""

_KEY: Final = Message._fields.index("key")
_VALUE: Final = Message._fields.index("value")


class DecodedMessage(Message):
    """A message of a stream that has decoders.

    Each access to ``key`` or ``value`` calls the decoder, in the accessing thread; keep the result if it is needed
    twice. A null is None, without a call of the decoder. An exception of a decoder is raised by the access: it does not
    affect the stream, and the record counts as handed out. The tuple holds the bytes, as in every message; they are
    compared and pickled.
    """

    __slots__ = ()
    _decoders: ClassVar[tuple[Decoder | None, Decoder | None]] = (None, None)  # a bare function would become a method

    @property
    def key(self) -> Any:
        """The decoded key, or None."""
        return _decode(self._decoders[0], self[_KEY])

    @property
    def value(self) -> Any:
        """The decoded value, or None."""
        return _decode(self._decoders[1], self[_VALUE])

    def __reduce__(self) -> tuple[type[Message], tuple[object, ...]]:
        return Message, tuple(self)


def decoded_message(key_decoder: Decoder | None, value_decoder: Decoder | None) -> type[DecodedMessage]:
    """The class of the messages of a stream with these decoders; None leaves the bytes as they are.

    A class for each pair of decoders, because a message is a tuple: an instance has no room for them. The garbage
    collector tracks these messages, unlike those without decoders, since they can be part of a cycle.
    """
    attributes = {"__slots__": (), "_decoders": (key_decoder, value_decoder)}
    return type(DecodedMessage.__name__, (DecodedMessage,), attributes)


def _decode(decoder: Decoder | None, data: Any) -> Any:
    return data if decoder is None or data is None else decoder(data)
