"""Decoders: keys and values as objects instead of bytes, made when somebody asks for them (SPEC 7.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from zkconsumer.model import Message

Decoder = Callable[[bytes], Any]
"""Turns the bytes of a key or value into an object; may raise. ``bytes.decode`` and ``json.loads`` are such."""

_KEY: Final = Message._fields.index("key")
_VALUE: Final = Message._fields.index("value")


class DecodedMessage(Message):
    """A message of a stream that has decoders.

    Each use of ``key`` or ``value`` calls the decoder, in the thread that uses it; keep the result where it is needed
    twice. Null is None, and no decoder is asked. What a decoder raises comes out right there: the stream is not harmed,
    and the record counts as handed out (SPEC 7.3). The bytes are where they are in every message: in the tuple, which
    is also what is compared and pickled.
    """

    __slots__ = ()
    decoders: ClassVar[tuple[Decoder | None, Decoder | None]] = (None, None)  # a bare function would become a method

    @property
    def key(self) -> Any:
        """The decoded key, or None."""
        return _decode(self.decoders[0], self[_KEY])

    @property
    def value(self) -> Any:
        """The decoded value, or None."""
        return _decode(self.decoders[1], self[_VALUE])

    def __reduce__(self) -> tuple[type[Message], tuple[Any, ...]]:
        return Message, tuple(self)


def decoded_message(key_decoder: Decoder | None, value_decoder: Decoder | None) -> type[DecodedMessage]:
    """The class of the messages of a stream with these decoders; None leaves the bytes as they are.

    A class for each pair of decoders, because a message is a tuple: an instance has no room for them, and so it takes
    no longer to build than one without decoders.
    """
    attributes = {"__slots__": (), "decoders": (key_decoder, value_decoder)}
    return type(DecodedMessage.__name__, (DecodedMessage,), attributes)


def _decode(decoder: Decoder | None, data: Any) -> Any:
    return data if decoder is None or data is None else decoder(data)
