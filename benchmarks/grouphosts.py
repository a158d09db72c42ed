"""PythonMembers: members of one Python client in child processes, for ``python -m benchmarks brokergroup``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, Final, Protocol

from benchmarks.contest import OURS
from benchmarks.groupclient import Client, Log, Settings
from benchmarks.groupclients import CLIENTS
from benchmarks.groupevents import Kind, Row
from benchmarks.hostprocess import HostProcess
from benchmarks.machine import peak_memory_mib
from zkconsumer.decode.kernelloader import kernels

_ANSWER_S: Final = 120.0


class GroupMembers(Protocol):
    """The members of one contestant. Every method raises SandboxError if it fails there."""

    def make(self, settings: Settings, ids: Sequence[str]) -> None:
        """Construct members of a new group, which do not join yet."""

    def join(self, ids: Sequence[str], at: float) -> None:
        """Let them join at this time of ``time.monotonic()``; returns before that."""

    def commit(self) -> None:
        """Let all members commit from now on."""

    def leave(self, ids: Sequence[str]) -> None:
        """Let them begin to leave at once, and return."""

    def await_left(self) -> None:
        """Wait until all members that were to leave have ended."""

    def take(self) -> list[Row]:
        """What the members did since the last call."""

    def peak_memory_mib(self) -> float:
        """The largest peak of resident memory of a process, in MiB."""

    def close(self) -> None:
        """End the processes, whatever the members do."""


class PythonMembers:
    """Members of a Python client, which some processes take in turn.

    Args:
        contestant: a key of :data:`~benchmarks.groupclients.CLIENTS`.
        processes: number of processes.
    """

    def __init__(self, contestant: str, processes: int) -> None:
        hosted = f"members of {contestant}"
        self._hosts = [HostProcess(hosted, _host, contestant, answer_s=_ANSWER_S) for _ in range(processes)]
        self._home: dict[str, HostProcess] = {}
        try:
            for host in self._hosts:
                host.answer()
        except BaseException:
            self.close()
            raise

    def make(self, settings: Settings, ids: Sequence[str]) -> None:
        """See :class:`GroupMembers`."""
        self._home = dict(zip(ids, cycle(self._hosts), strict=False))
        self._everywhere("make", ids, settings)

    def join(self, ids: Sequence[str], at: float) -> None:
        """See :class:`GroupMembers`."""
        self._everywhere("join", ids, at)

    def commit(self) -> None:
        """See :class:`GroupMembers`."""
        self._all("commit")

    def leave(self, ids: Sequence[str]) -> None:
        """See :class:`GroupMembers`."""
        self._everywhere("leave", ids)

    def await_left(self) -> None:
        """See :class:`GroupMembers`."""
        self._all("await_left")

    def take(self) -> list[Row]:
        """See :class:`GroupMembers`."""
        return [row for rows in self._all("take") for row in rows]

    def peak_memory_mib(self) -> float:
        """See :class:`GroupMembers`."""
        return max(peak_memory_mib(host.pid) for host in self._hosts)

    def close(self) -> None:
        """See :class:`GroupMembers`."""
        for host in self._hosts:
            host.close()

    def _everywhere(self, name: str, ids: Iterable[str], *arguments: Any) -> None:
        """Call a method of every host with its own members, all at the same time."""
        homes: dict[HostProcess, list[str]] = {}
        for member in ids:
            homes.setdefault(self._home[member], []).append(member)
        for host, theirs in homes.items():
            host.ask(name, theirs, *arguments)
        for host in homes:
            host.answer()

    def _all(self, name: str) -> list[Any]:
        for host in self._hosts:
            host.ask(name)
        return [host.answer() for host in self._hosts]


def _host(contestant: str) -> _Hosted:
    """What a child process of a contestant has."""
    logging.getLogger().addHandler(logging.NullHandler())  # otherwise warnings of clients go to the standard error
    if contestant == OURS:
        kernels()  # joining is measured, and not loading the decoder
    return _Hosted(CLIENTS[contestant])


class _Hosted:
    """The members in a child process."""

    def __init__(self, client: type[Client]) -> None:
        self._client = client
        self._log = Log()
        self._members: dict[str, Client] = {}
        self._leaving: list[threading.Thread] = []

    def make(self, ids: list[str], settings: Settings) -> None:
        self._log.take()
        self._members = {member: self._client(member, settings, self._log) for member in ids}

    def join(self, ids: list[str], at: float) -> None:
        def join() -> None:
            time.sleep(max(0.0, at - time.monotonic()))
            for member in ids:
                self._members[member].join()

        threading.Thread(target=join, daemon=True).start()

    def commit(self) -> None:
        for member in self._members.values():
            member.commits = True

    def leave(self, ids: list[str]) -> None:
        for member in ids:
            self._log.add(member, Kind.LEAVING)
            thread = threading.Thread(target=self._members[member].leave, daemon=True)
            thread.start()
            self._leaving.append(thread)

    def await_left(self) -> None:
        for thread in self._leaving:
            thread.join(_ANSWER_S / 2)
            if thread.is_alive():
                raise TimeoutError("a member has not left")
        self._leaving = []

    def take(self) -> list[Row]:
        return self._log.take()
