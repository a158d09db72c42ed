"""PythonMembers: members of one Python client in child processes, for ``zkconsumer bench brokergroup``."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import Any, Final, Protocol

from zkconsumer.bench.contest import OURS
from zkconsumer.bench.groupclient import Client, Log, Settings
from zkconsumer.bench.groupclients import CLIENTS
from zkconsumer.bench.groupevents import Kind, Row
from zkconsumer.bench.machine import peak_memory_mib
from zkconsumer.errors import SandboxError

_ANSWER_S: Final = 120.0
_END_S: Final = 5.0


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
        contestant: a key of :data:`~zkconsumer.bench.groupclients.CLIENTS`.
        processes: number of processes.
    """

    def __init__(self, contestant: str, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._hosts = [_Host(context, contestant) for _ in range(processes)]
        self._home: dict[str, _Host] = {}
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
        homes: dict[_Host, list[str]] = {}
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


class _Host:
    """A child process with some members, and the connection to it."""

    def __init__(self, context: SpawnContext, contestant: str) -> None:
        self._contestant = contestant
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, contestant), name=f"members of {contestant}", daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, name: str, *arguments: Any) -> None:
        try:
            self._connection.send((name, arguments))
        except OSError as error:
            raise SandboxError(f"a process with members of {self._contestant} has ended: {error!r}") from error

    def answer(self) -> Any:
        try:
            if not self._connection.poll(_ANSWER_S):
                raise SandboxError(f"a process with members of {self._contestant} did not answer for {_ANSWER_S:g} s")
            failure, result = self._connection.recv()
        except (OSError, EOFError) as error:
            raise SandboxError(f"a process with members of {self._contestant} has ended: {error!r}") from error
        if failure is not None:
            raise SandboxError(f"members of {self._contestant} failed: {failure}")
        return result

    def close(self) -> None:
        self._connection.close()  # the child sees it and ends
        self._process.join(_END_S)
        self._process.kill()


def _serve(connection: Connection, contestant: str) -> None:
    """Serve one host, in the child process, until it closes the connection."""
    logging.getLogger().addHandler(logging.NullHandler())  # otherwise warnings of clients go to the standard error
    hosted = _Hosted(CLIENTS[contestant])
    if contestant == OURS:
        _warm()
    connection.send((None, None))
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((None, getattr(hosted, name)(*arguments)))
        except Exception:  # noqa: BLE001 - reported to the parent
            connection.send((traceback.format_exc(), None))


def _warm() -> None:
    """Joining is measured, and not loading the decode kernel."""
    from zkconsumer.decode.batchdecoder import warm

    warm()


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
