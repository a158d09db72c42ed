"""Quotas of clients (KIP-13, KIP-55): where they are in ZooKeeper, and which of them applies to a group's members."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote

CLIENT_QUOTAS: Final = "/config/clients"
"""Parent of the quotas by client id; the child ``<default>`` is for all others."""

USER_QUOTAS: Final = "/config/users"
"""Parent of the quotas by user; each may have a child ``clients`` with quotas of that user's clients."""

CONSUMER_RATE: Final = "consumer_byte_rate"
"""Name of the quota of fetches, in bytes per second and broker."""

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a client that does not log in."""

_DEFAULT: Final = "<default>"

_USER, _CLIENT_ID = "user", "client-id"


def clients_of(user_path: str) -> str:
    """Parent of the quotas of one user's clients."""
    return f"{user_path}/clients"


def quota_path(entity: Mapping[str, str | None]) -> str | None:
    """The path that a quota has in ZooKeeper, which names it also where brokers report it.

    Args:
        entity: names by type, as in KIP-546; a name of None is the default.

    Returns:
        None for other types than users and client ids, such as ``ip``.

    >>> quota_path({"user": "al ice", "client-id": None})
    '/config/users/al%20ice/clients/<default>'
    """
    if not entity or not entity.keys() <= {_USER, _CLIENT_ID}:
        return None
    names = {kind: _DEFAULT if name is None else _encoded(name) for kind, name in entity.items()}
    if _USER not in names:
        return f"{CLIENT_QUOTAS}/{names[_CLIENT_ID]}"
    user = f"{USER_QUOTAS}/{names[_USER]}"
    return f"{clients_of(user)}/{names[_CLIENT_ID]}" if _CLIENT_ID in names else user


def quota_title(path: str) -> str:
    """The name of a quota for readers.

    >>> quota_title("/config/users/al%20ice/clients/<default>")
    'user al ice, client-id <default>'
    """
    of_user, _, client = path.removeprefix(f"{USER_QUOTAS}/").partition("/clients/")
    if path.startswith(f"{CLIENT_QUOTAS}/"):
        of_user, client = "", path.removeprefix(f"{CLIENT_QUOTAS}/")
    parts = [f"{kind} {unquote(name)}" for kind, name in ((_USER, of_user), (_CLIENT_ID, client)) if name]
    return ", ".join(parts)


def quotas_that_apply(existing: Collection[str], user: str | None, client: str) -> list[str]:
    """The paths of the quotas that limit a client id, by the brokers' order of precedence.

    Args:
        existing: paths of the znodes that have such a quota.
        user: that the client logs in as; None if unknown, and then each user that has a quota may be the one.
        client: the client id.

    >>> quotas_that_apply({"/config/clients/g", "/config/users/<default>"}, "alice", "g")
    ['/config/users/<default>']
    >>> quotas_that_apply({"/config/clients/g", "/config/users/alice"}, None, "g")
    ['/config/clients/g', '/config/users/alice']
    """
    users = _users(existing) if user is None else {user}
    paths = {next((path for path in _precedence(name, client) if path in existing), None) for name in users}
    return sorted(path for path in paths if path is not None)


def _users(existing: Collection[str]) -> set[str]:
    named = {path.removeprefix(f"{USER_QUOTAS}/").split("/")[0] for path in existing if path.startswith(USER_QUOTAS)}
    return {unquote(name) for name in named - {_DEFAULT}} | {""}  # and one that has no quota of its own


def _precedence(user: str, client: str) -> Iterator[str]:
    for parent in (f"{USER_QUOTAS}/{_encoded(user)}", f"{USER_QUOTAS}/{_DEFAULT}"):
        yield f"{clients_of(parent)}/{_encoded(client)}"
        yield f"{clients_of(parent)}/{_DEFAULT}"
        yield parent
    yield f"{CLIENT_QUOTAS}/{_encoded(client)}"
    yield f"{CLIENT_QUOTAS}/{_DEFAULT}"


def _encoded(name: str) -> str:
    """As the brokers name the znode of a user or client id."""
    return quote(name, safe="").replace("~", "%7E")
