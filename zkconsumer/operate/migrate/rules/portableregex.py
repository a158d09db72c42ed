"""Regexes of topic filters for the next client: the Java consumer, Python, librdkafka.

A filter of the ZooKeeper consumer is a Java regex that matches whole names. The Java consumer's ``subscribe(Pattern)``
takes it as it is. librdkafka takes a POSIX extended regex that begins with ``^`` and that may match a part of the name,
so it has to be anchored at both ends. Topic names are ASCII, so most Java regexes have a translation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

from zkconsumer.java.javaregex import UnsupportedRegex, to_python

_LEGAL: Final = "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters of topic names."""

_NAMED: Final = (
    (r"\\Q", r"\Q...\E", "Python librdkafka"),
    (r"&&", "class intersection &&", "Python librdkafka"),
    (r"\[\^?[^\]\\]*\[", "a class inside a class", "Python librdkafka"),
    (r"\\[pP]", r"\p{...}", "Python librdkafka"),
    (r"\(\?<[A-Za-z]", "a named group", "Python librdkafka"),
    (r"\\[hHvVGzZR]", "an escape of Java's own", "Python librdkafka"),
    (r"\\[dDsSwW]", r"\d, \s or \w", "librdkafka"),
    (r"\\[bB]", r"\b", "librdkafka"),
    (r"\\[1-9]", "a back-reference", "librdkafka"),
    (r"\(\?[idmsux-]+[:)]", "an inline flag", "librdkafka"),
    (r"\(\?<?[=!]", "a lookaround", "librdkafka"),
    (r"\(\?>|[?*+}]\+", "atomic or possessive", "librdkafka"),
    (r"\(\?:", "(?:", "librdkafka"),
    (r"[?*+}]\?", "a lazy quantifier", "librdkafka"),
)
"""Features of Java's regexes: how they are found, their name, and the engines that do not have them."""

_ESCAPED_BACKSLASH: Final = re.compile(r"\\\\")
_TOKEN: Final = re.compile(
    r"(?P<anchor>\(\?:\\[AZ]\))|(?P<boundary>\(\?:\\[bB]\))|(?P<any>\[\\s\\S\])|(?P<cls>\[\^?(?:\\.|[^\]\\])*\])|(?P<open>\(\?:|\((?!\?))|(?P<look>\(\?)"
    r"|(?P<escape>\\.)"
    r"|(?P<quantifier>(?:[?*+]|\{\d+(?:,\d*)?\})[?+]?)|(?P<plain>.)",
    re.DOTALL,
)


class PortableRegex(NamedTuple):
    """A filter's regex for other engines.

    Attributes:
        java: as it is registered; it has to match a whole name.
        python: for ``re.fullmatch``; None if there is no translation.
        librdkafka: begins with ``^``; None if there is no translation, so that topics have to be listed by name.
        features: what the regex uses that another engine does not have, one phrase each.
    """

    java: str
    python: str | None
    librdkafka: str | None
    features: tuple[str, ...]

    @property
    def is_unchanged(self) -> bool:
        """True if librdkafka needs no more than anchors."""
        return self.librdkafka in (f"^{self.java}$", f"^({self.java})$")


def portable_regex(regex: str) -> PortableRegex:
    r"""The forms of a filter's regex.

    Args:
        regex: as registered; of a black list the regex that topics must not match.

    >>> portable_regex("clicks.*").librdkafka, portable_regex(r"a|\d+").librdkafka
    ('^clicks.*$', '^(a|[0-9]+)$')
    """
    features = tuple(_features(regex))
    try:
        python = to_python(regex)
        re.compile(python, re.ASCII)
    except (UnsupportedRegex, re.error, RecursionError, OverflowError) as error:
        return PortableRegex(regex, None, None, (*features, f"not translatable: {error}"))
    try:
        posix = _to_posix(python)
    except UnsupportedRegex as error:
        return PortableRegex(regex, python, None, (*features, f"not translatable to librdkafka's regex: {error}"))
    return PortableRegex(regex, python, _anchored(posix), features)


def _anchored(posix: str) -> str:
    """At both ends; anchors that an alternative has do not count."""
    if "|" in posix:
        return f"^({posix})$"
    return f"^{posix.removeprefix('^')}" + ("" if posix.endswith("$") and not posix.endswith("\\$") else "$")


def _features(regex: str) -> Iterable[str]:
    without = _ESCAPED_BACKSLASH.sub("", regex)
    for pattern, name, engines in _NAMED:
        if re.search(pattern, without):
            yield f"{name} (not in {' and '.join(engines.split())})"


def _to_posix(python: str) -> str:
    """The extended regex of POSIX that matches the same names of topics as a translated one."""
    out: list[str] = []
    for match in _TOKEN.finditer(python):
        text, kind = match[0], str(match.lastgroup)
        match kind:
            case "look":
                raise UnsupportedRegex("it has lookarounds or atomic groups, or matches nothing")
            case "boundary":
                raise UnsupportedRegex("it has word boundaries")
            case "quantifier":
                out.append(_quantifier(text))
            case "anchor":
                out.append("^" if "A" in text else "$")
            case "open":
                out.append("(")
            case "any":
                out.append(".")
            case "cls":
                out.append(_bracket(text))
            case _:
                out.append(_character(text))
    return "".join(out)


def _quantifier(text: str) -> str:
    """Without laziness, which makes no difference where the whole name has to match."""
    if len(text) > 1 and text.endswith("+"):
        raise UnsupportedRegex("it has possessive quantifiers")
    return text[:-1] if len(text) > 1 and text.endswith("?") else text


def _character(text: str) -> str:
    char = text.removeprefix("\\")
    if text.startswith("\\") and char.isalnum():  # what the translation writes for a line end, such as \r
        raise UnsupportedRegex("it has line ends, which no name of a topic has")
    return f"\\{char}" if text.startswith("\\") and not char.isalnum() and char not in "-_" else char


def _bracket(text: str) -> str:
    """A bracket expression with the characters of topic names only; POSIX has no escapes in it."""
    negated = text.startswith("[^")
    members = set(re.sub(r"\\(.)", r"\1", text[2 if negated else 1 : -1], flags=re.DOTALL))
    legal = [char for char in _LEGAL if (char in members) != negated]
    if len(legal) == len(_LEGAL):
        return "."
    if not legal:
        raise UnsupportedRegex("a class in it matches no character of a topic name")
    hyphen = "-" if "-" in legal else ""
    return f"[{''.join(_runs(char for char in legal if char != '-'))}{hyphen}]"


def _runs(chars: Iterable[str]) -> Iterable[str]:
    """Ascending characters, with three or more neighbours as a range."""
    for _, neighbours in groupby(enumerate(chars), key=lambda pair: ord(pair[1]) - pair[0]):
        run = [char for _, char in neighbours]
        yield f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(run)
