"""Property: one row of the table of properties, and the parsing of the value that a user gives for it."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, dataclass, field, replace
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin

REQUIRED = object()
"""Stands for the default of a property that must be given."""

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")

_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")

INT_MAX = 2**31 - 1
"""Largest value of the JVM's 32-bit properties."""


@dataclass(frozen=True, slots=True)
class Property:
    """One row of the reference: how a property is spelled, read, checked and explained.

    Attributes:
        name: the JVM's spelling, with dots.
        doc: one sentence for the reference, with the unit.
        kind: ``int``, ``bool``, ``str`` or a tuple of the allowed texts.
        minimum: smallest legal integer; None where the JVM accepts any.
        maximum: largest legal integer.
        ours: True for a property that the JVM consumer does not have.
        secret: True if its value must never be shown; it is kept out of ``repr`` and messages.
        default_text: what the reference shows where the default is computed; None shows the default.
        many: True if the value may be several of the allowed texts, divided by commas.
        objects: True if ``module:object`` is allowed in place of one of the allowed texts.
    """

    name: str
    doc: str
    kind: type[int] | type[bool] | type[str] | tuple[str, ...]
    minimum: int | None = None
    maximum: int = INT_MAX
    ours: bool = False
    secret: bool = False
    default_text: str | None = None
    many: bool = False
    objects: bool = False

    @classmethod
    def of(cls, declared: Field[Any]) -> Self:
        """The row that :func:`declare` made of a field, in a module whose annotations are not postponed."""
        kind = declared.metadata["kind"] or _kind_of(declared.type)
        return cls(name=declared.name.replace("_", "."), **{**declared.metadata, "kind": kind})

    @property
    def meaning(self) -> str:
        """The sentence for the reference, with the values that are allowed."""
        choices = self.kind if isinstance(self.kind, tuple) else ()
        limits = {
            f"One of {', '.join(f'`{value}`' for value in choices)}.": choices,
            f"At least {self.minimum}.": self.minimum is not None,
            f"At most {self.maximum}.": self.maximum != INT_MAX,
            "Never shown.": self.secret,
        }
        return " ".join([self.doc, *(text for text, applies in limits.items() if applies)])


class DescribedAttribute(property):
    """The attribute of a configuration for one property: :func:`help` shows meaning, type and default.

    The value is in the dictionary of the instance. An access on the class returns the default.
    """

    def __init__(self, row: Property, declared: Field[Any]) -> None:
        self._row = row
        self._attribute = declared.name
        self._default = declared.default

    def __get__(self, config: object, owner: type | None = None) -> Any:
        if config is not None:
            return vars(config)[self._attribute]
        if self._default is MISSING:
            raise AttributeError(f"{self._row.name} has no default")
        return self._default

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # made when it is read, which is seldom
        import textwrap

        row = self._row
        kind = "str" if isinstance(row.kind, tuple) else row.kind.__name__
        default = row.default_text or ("required" if self._default is MISSING else repr(self._default))
        meaning = re.sub(r"docs/(\w+)\.md", r'page "\1" of the documentation', row.meaning)
        return f"{textwrap.fill(meaning, 100, break_on_hyphens=False)}\n{kind}; default: {default.strip('*')}"


def _kind_of(annotation: Any) -> Any:
    """The type that an annotation names, or the texts of a ``Literal``; without "or None"."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = get_args(annotation)[0]
    return get_args(annotation) or annotation


def names_object(text: str) -> bool:
    """True for a text of the form ``module:object``.

    >>> names_object("racks:NEAREST"), names_object("range"), names_object("racks:")
    (True, False, False)
    """
    return _OBJECT.match(text) is not None


def declare(default: object, doc: str, choices: tuple[str, ...] | None = None, **details: Any) -> Any:
    """A dataclass field for a property, whose name and type those of the field are; see :class:`Property`.

    ``choices`` are the allowed texts where a ``Literal`` cannot list them, since several at a time are allowed.
    """
    metadata = {"doc": doc, "kind": choices, **details}
    if default is REQUIRED:
        return field(metadata=metadata)
    return field(default=default, repr=not details.get("secret", False), metadata=metadata)


def parse(row: Property, value: object) -> Any:
    """Convert a user's value to the property's type, as strictly as the JVM does.

    Raises:
        ValueError: with the reason, to be prefixed by the property's name.
    """
    if isinstance(value, str):
        value = value.strip()
    if row.kind is bool:
        return _parse_bool(value)
    if row.kind is int:
        return _parse_int(row, value)
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    if isinstance(row.kind, tuple):
        if row.many:
            return ",".join(parse(replace(row, many=False), part) for part in value.split(","))
        if row.objects and names_object(value):
            return value
        if row.name == "offsets.storage":
            value = value.lower()
        if value not in row.kind:
            raise ValueError(f"must be one of {', '.join(row.kind)}, not {value!r}{_older_name(row.kind, value)}")
    return value


def _older_name(choices: tuple[str, ...], value: str) -> str:
    """The name that this consumer has for a value of Kafka's newer consumer, as the end of a message."""
    older = {"earliest": "smallest", "latest": "largest"}.get(value.lower())
    return f"; newer consumers' {value} is {older} here" if older in choices else ""


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"must be exactly true or false, not {value!r}")


def _parse_int(row: Property, value: object) -> int:
    if isinstance(value, str) and _INTEGER.match(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be an integer, not {value!r}")
    if row.minimum is not None and value < row.minimum:
        raise ValueError(f"must be at least {row.minimum}, not {value}")
    if row.maximum < value <= INT_MAX:
        raise ValueError(f"must be at most {row.maximum}, not {value}")
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise ValueError(f"must fit 32 bits, not {value}")
    return value
