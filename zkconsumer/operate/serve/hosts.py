"""Which addresses ``serve`` may bind, and which names a request may address it by."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from zkconsumer.config.serveraddresses import server_address

_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]/]+)):(?P<port>[0-9]{1,5})")
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]/]+))(?::[0-9]*)?")


class Address(NamedTuple):
    """Where to listen; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return server_address(*self)


def parse_address(text: str) -> Address:
    """``host:port``, an IPv6 address in brackets.

    Raises:
        ValueError: it is written otherwise.
    """
    parts = _ADDRESS.fullmatch(text)
    if parts is None or int(parts["port"]) >= 1 << 16:
        raise ValueError(f"{text}: write it as HOST:PORT")
    return Address(parts["v6"] or parts["name"], int(parts["port"]))


def is_loopback(resolved: Collection[str]) -> bool:
    """True if all addresses that a name resolves to are loopback addresses."""
    return bool(resolved) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in resolved)


def is_allowed_host(header: str, names: Collection[str]) -> bool:
    """True if a ``Host`` header names this server by an IP address or by one of ``names``, in lower case.

    A page of another site can make its own name resolve to this server's address (DNS rebinding), and its scripts could
    then read the answers. The browser sends that name, never an address.
    """
    parts = _HOST.fullmatch(header.lower())
    if parts is None:
        return False
    if parts["v6"] is not None:
        return _is_address(parts["v6"])
    return parts["name"] in names or _is_address(parts["name"])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
