"""Text from znodes and brokers as a terminal may show it: nothing in it moves the cursor or hides other text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_LONGEST: Final = 1024
"""Characters of one name that are shown. The names that Kafka and its consumers make are shorter."""


def escaped(text: str) -> str:
    r"""The text with every character that a terminal would act on, or not show, replaced by its escape.

    Those are control characters, line ends, directions of writing and other characters without a shape of their own.

    >>> escaped("clicks \x1b[2J")
    'clicks \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def printable(text: str) -> str:
    """As :func:`escaped`; a text that is longer than any name in use is cut, and its length is given."""
    shown = escaped(text[:_LONGEST])
    return shown if len(text) <= _LONGEST else f"{shown}... ({len(text)} characters)"


def step_lines(to_do: str, command: str = "", *, indent: str = "") -> Iterator[str]:
    """What is next, in lines: what people do, in words, and the command that is run then; each may be empty.

    Only a command is printed as ``next:``, and in full: the line can be pasted.

    >>> list(step_lines("stop its members", "zkconsumer groups verify --group g"))
    ['to do: stop its members', 'next: zkconsumer groups verify --group g']
    """
    if to_do:
        yield f"{indent}to do: {printable(to_do)}"
    if command:
        yield f"{indent}next: {escaped(command)}"
