"""Which znodes of a group are locked for its members, from the ACLs of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Entries: TypeAlias = tuple[tuple[int, str, str], ...]
"""An ACL: permission bits, scheme and id of each entry."""

_BITS: Final = {"write": 2, "create": 4}
_ALL_BITS: Final = 31
_ANYONE: Final = "world:anyone"


class LockedOut(NamedTuple):
    """Why a znode is locked: who may use it, and who should be able to."""

    allowed: tuple[str, ...]
    expected: str


def principals(owners: Iterable[Entries]) -> frozenset[str]:
    """The principals of members, from the ACLs of owner znodes; empty where these are open to all."""
    names = {f"{scheme}:{name}" for entries in owners for bits, scheme, name in entries if bits == _ALL_BITS}
    return frozenset(names - {_ANYONE})


def locked_out(
    siblings: Mapping[str, Entries], permission: Literal["write", "create"], members: Collection[str] = ()
) -> dict[str, LockedOut]:
    """Those of similar znodes that lack a permission for the members of the group, by path.

    Where the principals of the members are unknown, it is that of most of the nodes; a node that is open to all is
    never locked. So a group whose nodes all belong to one principal is in order.

    Args:
        siblings: ACL of each node, by path; nodes of one kind.
        permission: that the members need.
        members: their principals, if known.

    >>> open_to_all, admins = ((31, "world", "anyone"),), ((31, "sasl", "admin"), (1, "world", "anyone"))
    >>> locked_out({"/a": open_to_all, "/b": admins}, "write")
    {'/b': LockedOut(allowed=('sasl:admin',), expected='world:anyone')}
    >>> locked_out({"/a": admins, "/b": admins}, "write"), locked_out({"/a": admins}, "write", ["sasl:admin"])
    ({}, {})
    """
    allowed = {path: _allowed(entries, _BITS[permission]) for path, entries in siblings.items()}
    counts = Counter(principal for allowed_principals in allowed.values() for principal in allowed_principals)
    if not counts and not members:
        return {path: LockedOut((), "no principal") for path in allowed}
    expected = set(members) or {max(counts, key=lambda who: (counts[who], who == _ANYONE, who))}
    named = " or ".join(sorted(expected))
    return {path: LockedOut(who, named) for path, who in allowed.items() if not {*who} & {*expected, _ANYONE}}


def _allowed(entries: Entries, bit: int) -> tuple[str, ...]:
    return tuple(sorted({f"{scheme}:{name}" for bits, scheme, name in entries if bits & bit}))
