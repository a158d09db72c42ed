"""The character classes of ``java.util.regex``, as sets.

Names of topics consist of ASCII letters, digits, ``.``, ``_`` and ``-``. So the ASCII members of a class define it, and
unions, intersections and complements of classes are those of sets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple

_ASCII: Final = frozenset(map(chr, range(128)))


class CharSet(NamedTuple):
    """The ASCII members of a class, and whether it has other characters, too (which ones does not matter)."""

    members: frozenset[str]
    others: bool = False

    def union(self, other: CharSet) -> CharSet:
        """The characters that are in at least one of the two sets."""
        return CharSet(self.members | other.members, self.others or other.others)

    def intersection(self, other: CharSet) -> CharSet:
        """The characters that are in both sets."""
        return CharSet(self.members & other.members, self.others and other.others)

    def complement(self) -> CharSet:
        """The characters that are not in this set."""
        return CharSet(_ASCII - self.members, not self.others)

    def in_either_case(self) -> CharSet:
        """Its members and the same letters in the other case."""
        return CharSet(self.members | {char.swapcase() for char in self.members}, self.others)

    def to_regex(self) -> str:
        """A Python regex for one character of the set."""
        if self == NOTHING:
            return "(?!)"
        if self == ANYTHING:
            return r"[\s\S]"
        listed = sorted(_ASCII - self.members if self.others else self.members)
        return f"[{'^' if self.others else ''}{''.join(re.escape(char) for char in listed)}]"


NOTHING: Final = CharSet(frozenset())
ANYTHING: Final = CharSet(_ASCII, others=True)


def charset(members: Iterable[str]) -> CharSet:
    """The set of the given characters."""
    return CharSet(frozenset(members) & _ASCII)


def char_range(first: str, last: str) -> CharSet:
    """The set of all characters from the first to the last."""
    return charset(char for char in _ASCII if first <= char <= last)


_LOWER: Final = char_range("a", "z")
_UPPER: Final = char_range("A", "Z")
_ALPHA: Final = _LOWER.union(_UPPER)
_DIGIT: Final = char_range("0", "9")
_ALNUM: Final = _ALPHA.union(_DIGIT)
_GRAPH: Final = char_range("!", "~")
_SPACE: Final = charset(" \t\n\x0b\f\r")
_WORD: Final = _ALNUM.union(charset("_"))
_VERTICAL: Final = charset("\n\x0b\f\r")
NOT_A_LINE_END: Final = charset("\n\r").complement()

PREDEFINED: Final = {
    "d": _DIGIT,
    "D": _DIGIT.complement(),
    "h": charset(" \t"),
    "H": charset(" \t").complement(),
    "s": _SPACE,
    "S": _SPACE.complement(),
    "v": _VERTICAL,
    "V": _VERTICAL.complement(),
    "w": _WORD,
    "W": _WORD.complement(),
}
"""Classes that are written as a backslash and this letter."""

_NAMED: Final = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": CharSet(_ASCII),
    "Alpha": _ALPHA,
    "Digit": _DIGIT,
    "Alnum": _ALNUM,
    "Graph": _GRAPH,
    "Punct": _GRAPH.intersection(_ALNUM.complement()),
    "Print": char_range(" ", "~"),
    "Blank": charset(" \t"),
    "Cntrl": char_range("\0", "\x1f").union(charset("\x7f")),
    "XDigit": _DIGIT.union(char_range("a", "f")).union(char_range("A", "F")),
    "Space": _SPACE,
    "IsAlphabetic": _ALPHA,
    "IsLetter": _ALPHA,
    "IsDigit": _DIGIT,
    "IsUppercase": _UPPER,
    "IsLowercase": _LOWER,
    "IsLatin": _ALPHA,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaLetter": _ALPHA,
    "javaDigit": _DIGIT,
    "javaLetterOrDigit": _ALNUM,
}
_CATEGORIES: Final = re.compile("L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfos]?")
CASED: Final = re.compile("(?:Is)?L[ult]|Lower|Upper|Is(?:Upper|Lower)case|java(?:Upper|Lower)Case")
"""Properties that Java's releases interpret differently where case is ignored (JDK-8214245)."""


def property_class(name: str) -> CharSet | None:
    r"""The class ``\p{name}``, None if it is unknown here."""
    category = name.removeprefix("Is")
    if _CATEGORIES.fullmatch(category):
        return charset(char for char in _ASCII if unicodedata.category(char).startswith(category))
    return _NAMED.get(name)
