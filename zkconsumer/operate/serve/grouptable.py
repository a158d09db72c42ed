"""GroupQuery: which groups ``/api/groups`` answers, in which order. The page shows thousands of groups by parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from zkconsumer.errors import UsageError
from zkconsumer.operate.groups.rules.lagstatus import worst_first

WORST: Final = "worst"
"""See :func:`~zkconsumer.operate.groups.rules.lagstatus.worst_first`."""

MOST: Final = 1000
"""Groups in an answer, if it is to be a part."""


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """What is asked for.

    Attributes:
        search: text that a name contains, in any case.
        statuses: values of :class:`~zkconsumer.operate.groups.rules.lagstatus.LagStatus`; none for all.
        sort: :data:`WORST`, or a field of the lines.
        descending: largest first; for :data:`WORST` it turns the order around.
        first: how many groups precede the first one that is wanted.
        count: how many are wanted; None for all.
    """

    search: str = ""
    statuses: frozenset[str] = frozenset()
    sort: str = "group"
    descending: bool = False
    first: int = 0
    count: int | None = None


class GroupPart(NamedTuple):
    """The groups that answer a query.

    Attributes:
        lines: those that are wanted, in order.
        total: how many there are without ``first`` and ``count``.
        counts: how many groups there are of each status, whatever statuses are asked for.
    """

    lines: list[Mapping[str, Any]]
    total: int
    counts: dict[str, int]


_SORTED_BY: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    WORST: lambda line: worst_first(line["severity"], line["lag"]),
    "group": lambda line: line["group"],
    "status": lambda line: line["severity"],
    **{
        field: lambda line, field=field: line[field]  # type: ignore[misc]
        for field in (
            "lag",
            "lag_s",
            "unknown",
            "members",
            "owned",
            "partitions",
            "consumed_per_s",
            "produced_per_s",
            "rebalances",
        )
    },
}


def parse_query(parameters: Mapping[str, str]) -> GroupQuery:
    """The query of a URL: ``search``, ``status`` (several with commas), ``sort``, ``first``, ``count``.

    A minus before the field of ``sort`` turns the order around.

    Raises:
        UsageError: a value has no meaning.
    """
    sort = parameters.get("sort", "group")
    if sort.removeprefix("-") not in _SORTED_BY:
        raise UsageError(f"sort is one of {', '.join(_SORTED_BY)}, with a minus before it for the other order")
    count = parameters.get("count")
    return GroupQuery(
        search=parameters.get("search", ""),
        statuses=frozenset(filter(None, parameters.get("status", "").split(","))),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        first=parse_number("first", parameters.get("first", "0")),
        count=None if count is None else min(MOST, parse_number("count", count)),
    )


def parse_number(name: str, text: str) -> int:
    """A number of a URL, at most 18 digits of it.

    Raises:
        UsageError: it is none.
    """
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} is a number")
    return int(text[:18])


def choose_part(lines: Sequence[Mapping[str, Any]], query: GroupQuery) -> GroupPart:
    """The lines that answer a query. What is unknown (None) comes last in both orders; equal lines are sorted by name.

    Args:
        lines: of all groups, see :attr:`zkconsumer.operate.serve.groupsnapshots.GroupSnapshot.line`.
        query: what is asked for.
    """
    wanted = query.search.casefold()
    matching = [line for line in lines if wanted in line["group"].casefold()]
    counts = Counter(line["status"] for line in matching)
    chosen = [line for line in matching if not query.statuses or line["status"] in query.statuses]
    chosen.sort(key=lambda line: line["group"])
    sorted_by = _SORTED_BY[query.sort]
    known = [line for line in chosen if sorted_by(line) is not None]
    known.sort(key=sorted_by, reverse=query.descending)
    ordered = [*known, *(line for line in chosen if sorted_by(line) is None)]
    last = None if query.count is None else query.first + query.count
    return GroupPart(ordered[query.first : last], len(ordered), dict(counts))
