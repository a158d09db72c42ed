"""Servers and chroot that ``zookeeper.connect`` names, in the one form by which two values can be compared."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

ZOOKEEPER_PORT: Final = 2181

_PORT = re.compile(r":\d+\Z")


class ServerAddresses(NamedTuple):
    """Where an ensemble, or a cluster of brokers, is found.

    Attributes:
        servers: ``host:port`` of each, in lower case and in the order given; IPv6 addresses have brackets.
        chroot: without a slash at its end; empty if there is none.
    """

    servers: tuple[str, ...]
    chroot: str = ""


def server_addresses(connect: str) -> ServerAddresses:
    """The addresses in a valid ``zookeeper.connect`` or ``bootstrap.servers``.

    >>> server_addresses("ZK1, zk2:2182,[::1]/kafka/")
    ServerAddresses(servers=('zk1:2181', 'zk2:2182', '[::1]:2181'), chroot='/kafka')
    """
    hosts, slash, chroot = connect.partition("/")
    servers = [host.strip().lower() for host in hosts.split(",")]
    return ServerAddresses(
        tuple(server if _PORT.search(server) else f"{server}:{ZOOKEEPER_PORT}" for server in servers),
        (slash + chroot).rstrip("/"),
    )


def server_address(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets.

    >>> server_address("b0", 9092), server_address("::1", 9092)
    ('b0:9092', '[::1]:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
