"""The ZooKeeper servers of the sandbox as one: a single server, or an ensemble with a quorum."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

_POLL_S: Final = 0.05
_READY_TIMEOUT_S: Final = 120.0
_CONNECT_AND_SYNC_S: Final = 20.0
"""How long a member may take to join its leader, or to follow it; a busy machine needs more than the usual 5 s."""


class EnsembleMember(ZooKeeperServer):
    """One server of an ensemble; see `LocalServer` for its life. It serves once a quorum of members runs.

    Args:
        directory: of the sandbox.
        number: from 1, unique in the ensemble.
        quorum: configuration that all members share, one ``server.N`` for each.
        port: for clients; None for a free one.
        tick_time_ms: unit of ZooKeeper's timeouts.
        max_session_timeout_ms: the longest session that it grants; None for 20 ticks.
        properties: further settings of its configuration file.
    """

    _main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def __init__(
        self,
        directory: Path,
        number: int,
        quorum: Mapping[str, str],
        *,
        port: int | None,
        tick_time_ms: int,
        max_session_timeout_ms: int | None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        ticks = str(max(2, int(_CONNECT_AND_SYNC_S * 1000 / tick_time_ms)))
        super().__init__(
            directory,
            name=f"ZooKeeper {number}",
            port=port,
            tick_time_ms=tick_time_ms,
            max_session_timeout_ms=max_session_timeout_ms,
            properties={"initLimit": ticks, "syncLimit": ticks, **quorum, **(properties or {})},
            ready_timeout_s=_READY_TIMEOUT_S,
        )
        self.number = number

    def launch(self) -> None:
        """Start the server without waiting. Raises SandboxError."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "myid").write_text(f"{self.number}\n", encoding="ascii")
        super().launch()


class ZooKeeperEnsemble:
    """All ZooKeeper servers of a sandbox. Used by one thread at a time.

    Args:
        directory: of the sandbox.
        size: number of servers; one is a standalone server, and there may be none.
        port: of the first server, for clients; None for a free one.
        tick_time_ms: unit of ZooKeeper's timeouts; sessions last at least 2 times as long.
        max_session_timeout_ms: the longest session that the servers grant; None for 20 ticks.
        properties: further settings of their configuration files.

    Attributes:
        members: the servers, each of which can be killed, paused and started by itself.
    """

    def __init__(
        self,
        directory: Path,
        size: int,
        *,
        port: int | None = None,
        tick_time_ms: int = 500,
        max_session_timeout_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.members: list[ZooKeeperServer]
        if size == 1:
            self.members = [
                ZooKeeperServer(
                    directory,
                    port=port,
                    tick_time_ms=tick_time_ms,
                    max_session_timeout_ms=max_session_timeout_ms,
                    properties=properties,
                )
            ]
            return
        quorum = {f"server.{n}": f"{HOST}:{free_port()}:{free_port()}" for n in range(1, size + 1)}
        self.members = [
            EnsembleMember(
                directory,
                number,
                quorum,
                port=port if number == 1 else None,
                tick_time_ms=tick_time_ms,
                max_session_timeout_ms=max_session_timeout_ms,
                properties=properties,
            )
            for number in range(1, size + 1)
        ]

    @property
    def address(self) -> str:
        """The value for ``zookeeper.connect``: every server, running or not."""
        return ",".join(member.address for member in self.members)

    @property
    def max_session_timeout_ms(self) -> int:
        """The longest session that is granted."""
        return self.members[0].max_session_timeout_ms

    @property
    def log(self) -> Path:
        """Where the logs of the servers are: the log of the first one."""
        return self.members[0].log

    def start(self) -> None:
        """Start the servers that do not run, together, and wait until all serve. Raises SandboxError."""
        started = [member for member in self.members if not member.running]
        for member in started:
            member.launch()
        for member in started:
            member.wait_until_serving()

    def stop(self) -> None:
        """Stop all servers; their data stay."""
        for member in self.members:
            member.stop()

    def restart(self) -> None:
        """Stop all servers, start them on the same ports and data, and wait until they serve. Raises SandboxError."""
        self.stop()
        self.start()

    def leader(self) -> ZooKeeperServer:
        """The server that leads; of a single one itself.

        Raises SandboxError when there is none, for example while one is elected.
        """
        for member in self.members:
            if member.mode() in ("leader", "standalone"):
                return member
        raise SandboxError("no ZooKeeper server leads; start() more than half of them, or wait for the election")

    def followers(self) -> list[ZooKeeperServer]:
        """The servers that follow a leader now."""
        return [member for member in self.members if member.mode() == "follower"]

    def await_leader(self, timeout_s: float = _READY_TIMEOUT_S) -> ZooKeeperServer:
        """Wait until a server leads, and return it. Raises SandboxError."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.leader()
            except SandboxError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)  # a server only answers questions: there is nothing to wait on

    def ephemerals(self) -> set[str] | None:
        """Return the paths of all ephemeral nodes; None if no server answers."""
        for member in self.members:
            if member.running and (paths := member.ephemerals()) is not None:
                return paths
        return None
