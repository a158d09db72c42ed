"""The grammar of Kafka's ``sasl.jaas.config``: ``module flag name=value ... ;``, with Java's quotes and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<between> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<word> [\w.$-]+ )
    | (?P<sign> [=;] )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_SIGN: Final = "sign"
_EQUALS: Final = (_SIGN, "=")
_END: Final = (_SIGN, ";")


class LoginModule(NamedTuple):
    """One login module: the name of its class without the package, and its options."""

    name: str
    options: Mapping[str, str]


def parse_login_module(text: str) -> LoginModule:
    """Parse the value of ``sasl.jaas.config``.

    Raises:
        ValueError: it is not one login module. The message follows the property's name, and has no value, which may be
            secret.
    """
    tokens = list(_tokens(text))
    if not tokens or tokens.pop() != _END:
        raise ValueError("must end with a semicolon")
    if _END in tokens:
        raise ValueError("must have one login module only")
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise ValueError(f"must begin with a login module and {_FLAGS[0]}")
    options = {}
    for start in range(2, len(tokens), 3):
        name, *assigned = tokens[start : start + 3]
        if len(assigned) < 2 or assigned[0] != _EQUALS or _SIGN in (name[0], assigned[1][0]):
            raise ValueError(f"must have name=value as its option {start // 3 + 1}")
        options[name[1]] = assigned[1][1]
    return LoginModule(tokens[0][1].rpartition(".")[2], options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each token."""
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or token.lastgroup is None:
            raise ValueError(f"has a character at position {position + 1} that has to be in quotes, or an open quote")
        position = token.end()
        if token.lastgroup == "quoted":
            yield "quoted", _ESCAPE.sub(_unescape, token[0][1:-1])
        elif token.lastgroup != "between":
            yield token.lastgroup, token[0]


def _unescape(escape: re.Match[str]) -> str:
    escaped = escape[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)
