"""Translates regexes of ``java.util.regex`` into Python's, for filters of topics.

Members of a group must agree on which topics a filter matches, so all of them use Java's interpretation
(jvm-consumer.md#subscriptions). A regex that is translated matches the same names of topics in all Java releases from 6
on. What Java rejects, and what its releases interpret differently, is rejected here.
"""

from __future__ import annotations

import re
from typing import Final

from zkconsumer.java.javaclasses import (
    CASED,
    NOT_A_LINE_END,
    NOTHING,
    PREDEFINED,
    CharSet,
    char_range,
    charset,
    property_class,
)

_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_LINE_END: Final = r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
# Names of topics have no line ends, so it does not matter where lines begin and end.
_ANCHORS: Final = {"b": r"(?:\b)", "B": r"(?:\B)", "A": r"(?:\A)", "G": r"(?:\A)", "Z": r"(?:\Z)", "z": r"(?:\Z)"}
_GROUPS: Final = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_QUANTIFIER: Final = re.compile(r"(?:[?*+]|\{\d+(?:,\d*)?\})[?+]?")
_UNBOUNDED: Final = re.compile(r"[*+]|\{\d+,\}")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME: Final = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_PROPERTY: Final = re.compile(r"[pP](?:\{(\w+)\}|([A-Z]))")
_CODE: Final = re.compile(r"0([0-3]?[0-7]{1,2})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]{1,6})\}")
_NOT_IN_RE2J: Final = re.compile(r"\(\?[^:]|[?*+}]\+|\\u|\{\d*,?\d{4}")
"""Of a translated regex without other escapes: lookarounds, atomic and possessive parts, and counts above 1000."""
_ALLOWED_FLAGS: Final = frozenset("idmsu")
"""All but ``i`` only affect line ends and characters outside of ASCII, which names of topics do not have."""


class UnsupportedRegex(ValueError):
    """Java rejects the regex, or members may interpret it differently."""


def to_python(regex: str) -> str:
    r"""The Python regex that matches the same names of topics, to be compiled with ``re.ASCII``.

    Raises:
        UnsupportedRegex: there is none.

    >>> to_python("[a-c&&[^b]]++"), to_python(r"\Qa.b\E-\p{Digit}{2}")
    ('[ac]++', 'a\\.b\\-[0123456789]{2}')
    """
    translation = _Translation(_without_quotes(regex))
    pattern = translation.alternatives()
    if translation.rest:
        raise UnsupportedRegex("a closing parenthesis has no opening one")
    return pattern


def to_re2j(regex: str) -> str | None:
    r"""The regex of RE2/J, which brokers of Kafka 4 have, that matches the same names of topics; None if there is none.

    RE2/J does not backtrack: where the whole name has to match, what it has in common with Java means the same.

    Raises:
        UnsupportedRegex: see :func:`to_python`.

    >>> to_re2j(r"(?i:a)\d{2}|b$"), to_re2j("a(?!b).*")
    ('(?:[Aa])[0123456789]{2}|b(?:\\z)', None)
    """
    pattern = to_python(regex)
    if not pattern.isascii() or _NOT_IN_RE2J.search(re.sub(r"\\[^u]", "", pattern, flags=re.DOTALL)):
        return None
    return pattern.replace(_ANCHORS["Z"], r"(?:\z)").replace(NOT_A_LINE_END.to_regex(), ".")


def _without_quotes(regex: str) -> str:
    r"""Replace ``\Q...\E`` by escapes, as Java does before it reads anything else."""

    def escaped(match: re.Match[str]) -> str:
        quoted = match["quoted"]
        return match[0] if quoted is None else "".join(char if char.isalpha() else _as_escape(char) for char in quoted)

    return re.sub(r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\.", escaped, regex, flags=re.DOTALL)


def _as_escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() else char


class _Translation:
    """A parser by recursive descent that writes the translation as it reads."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignore_case = False
        self._behind = 0  # how many lookbehinds enclose the present position
        self._names: set[str] = set()

    @property
    def rest(self) -> str:
        """The part of the regex that is not read yet."""
        return self._text[self._at :]

    def _accept(self, token: str) -> bool:
        is_next = self._text.startswith(token, self._at)
        if is_next:
            self._at += len(token)
        return is_next

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _take(self) -> str:
        if self._at == len(self._text):
            raise UnsupportedRegex("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    # -- structure ------------------------------------------------------------------------------------------------

    def alternatives(self) -> str:
        """Read to the end, or to a closing parenthesis, which is left."""
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        return "|".join(branches)

    def _sequence(self) -> str:
        parts = []
        while self.rest and self.rest[0] not in "|)":
            atom = self._atom()
            quantifier = self._match(_QUANTIFIER) if atom is not None else None
            if self._behind and quantifier is not None and _UNBOUNDED.match(quantifier[0]):
                raise UnsupportedRegex("a lookbehind must not contain *, + or {n,}")
            parts.append((atom or "") + (quantifier[0] if quantifier else ""))
        return "".join(parts)

    def _atom(self) -> str | None:
        """The next thing that a quantifier may follow; None where flags were switched."""
        if self.rest.startswith("("):
            return self._group()
        char = self._take()
        if char == "[":
            return self._class().to_regex()
        if char == "\\":
            return self._escape()
        if char == ".":
            return NOT_A_LINE_END.to_regex()
        if char in "^$":
            return _ANCHORS["A" if char == "^" else "Z"]
        if char in "*+?{":
            raise UnsupportedRegex(
                f"{char!r} repeats nothing, or repeats a repetition; escape it to match the character"
            )
        return self._literal(char)

    def _literal(self, char: str) -> str:
        if not self._ignore_case:
            return re.escape(char)
        if not char.isascii():
            raise UnsupportedRegex(f"the case of {char!r} cannot be ignored")
        return charset(char).in_either_case().to_regex()

    def _group(self) -> str | None:
        ignored_outside = self._ignore_case
        opening = next(filter(self._accept, _GROUPS), None)
        if opening is None and (flags := self._match(_FLAGS)) is not None:
            self._switch(flags[1], flags[2] or "")
            if flags[3] == ")":
                return None  # the flags apply until the enclosing group ends
        elif opening is None:
            self._open_capture()
        looks_behind = opening in ("(?<=", "(?<!")
        self._behind += looks_behind
        inside = self.alternatives()
        self._behind -= looks_behind
        if not self._accept(")"):
            raise UnsupportedRegex("an opening parenthesis has no closing one")
        self._ignore_case = ignored_outside
        return f"{opening or '(?:'}{inside})"

    def _open_capture(self) -> None:
        """Accept a capturing group. What it captures does not matter; but Java rejects two groups of one name."""
        name = self._match(_NAME)
        if name is None and self._accept("(?"):
            raise UnsupportedRegex(f"'(?{self.rest[:2]}' opens no group that Java knows")
        if name is None:
            self._take()
        elif name[1] in self._names:
            raise UnsupportedRegex(f"two groups have the name {name[1]}")
        else:
            self._names.add(name[1])

    def _switch(self, on: str, off: str) -> None:
        unknown = set(on + off) - _ALLOWED_FLAGS
        if unknown:
            raise UnsupportedRegex(f"the flags {', '.join(sorted(unknown))} cannot be translated")
        self._ignore_case = (self._ignore_case or "i" in on) and "i" not in off

    # -- after a backslash ----------------------------------------------------------------------------------------

    def _escape(self) -> str:
        if self.rest[:1] in tuple("k123456789"):
            # Java keeps what a group matched in a branch that it has left, Python does not.
            raise UnsupportedRegex("references to groups cannot be translated")
        if self.rest[:2] == "b{":
            raise UnsupportedRegex(r"\b{ is not supported by every Java release")
        for letter, anchor in _ANCHORS.items():
            if self._accept(letter):
                return anchor
        if self._accept("R"):
            return _LINE_END
        char_or_class = self._class_escape()
        return self._literal(char_or_class) if isinstance(char_or_class, str) else char_or_class.to_regex()

    def _class_escape(self) -> str | CharSet:
        """The character or class after a backslash that was read; it may also be between brackets."""
        if (code := self._match(_CODE)) is not None:
            octal, *hexadecimal = code.groups()
            value = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
            if value > 0x10FFFF:
                raise UnsupportedRegex(f"there is no character {code[0]}")
            return chr(value)
        if (named := self._match(_PROPERTY)) is not None:
            return self._property(named[1] or named[2], negated=named[0][0] == "P")
        char = self._take()
        if char == "c":
            return chr(ord(self._take()) ^ 64)
        if char in PREDEFINED:
            return PREDEFINED[char]
        if char in _CONTROL:
            return _CONTROL[char]
        if char.isascii() and char.isalnum():
            raise UnsupportedRegex(f"'\\{char}' is not supported by every Java release, or cannot be translated")
        return char

    def _property(self, name: str, *, negated: bool) -> CharSet:
        char_class = property_class(name)
        if char_class is None or (self._ignore_case and CASED.fullmatch(name)):
            raise UnsupportedRegex(f"the class {name} cannot be translated, or is not supported by every Java release")
        return char_class.complement() if negated else char_class

    # -- between brackets -----------------------------------------------------------------------------------------

    def _class(self) -> CharSet:
        """The rest of a class whose opening bracket was read."""
        negated = self._accept("^")
        start = self._at
        if self.rest.startswith("&&"):
            raise UnsupportedRegex("nothing is before '&&'")
        result, plain = self._operand()
        while self._accept("&&"):
            if self.rest.startswith(("]", "&")):
                raise UnsupportedRegex("nothing follows '&&'")
            right, right_plain = self._operand()
            plain = False
            if not right_plain and self._text[self._at - 1] != "]":
                raise UnsupportedRegex("Java interprets '&&' in an unusual way if a class and something else follow it")
            result = result.intersection(right)
        if not self._accept("]"):
            raise UnsupportedRegex("an opening bracket has no closing one")
        if negated and not plain:
            raise UnsupportedRegex(
                f"Java's releases differ on '[^...]' with classes or '&&' inside: {self._text[start - 2 : self._at]!r}"
            )
        return result.complement() if negated else result

    def _operand(self) -> tuple[CharSet, bool]:
        """The union of what stands before the next ``&&`` or ``]``, and whether there was no class in brackets."""
        result, plain, first = NOTHING, True, True
        while first or not self.rest.startswith(("]", "&&")):
            if self._accept("["):
                result, plain = result.union(self._class()), False
            else:
                result = result.union(self._class_item())
            first = False
        return result, plain

    def _class_item(self) -> CharSet:
        item = self._class_atom()
        if isinstance(item, CharSet):
            return item
        chars = charset(item)
        if self.rest.startswith("-") and self.rest[1:2] not in ("]", "["):
            self._take()
            last = self._class_atom()
            if isinstance(last, CharSet) or last < item:
                raise UnsupportedRegex(f"the range that begins with {item!r} has no end after its beginning")
            chars = char_range(item, last)
        return chars.in_either_case() if self._ignore_case else chars

    def _class_atom(self) -> str | CharSet:
        char = self._take()
        return self._class_escape() if char == "\\" else char
