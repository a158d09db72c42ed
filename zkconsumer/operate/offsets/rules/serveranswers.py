"""ServerAnswers: which servers of a kind answer, and since when and why others do not."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

ServerKind = Literal["zookeeper", "broker"]

FORGOTTEN_MS: Final = 3_600_000
"""For how long a server is listed that did not answer and is not asked any more, as after it left its cluster."""


class ServerAnswer(NamedTuple):
    """What is known of one server.

    Attributes:
        kind: what it is.
        id: of a broker; None for ZooKeeper, and while only its address is known.
        address: host and port; of ZooKeeper the connection string.
        answers: False if it did not answer when it was asked last, or refused the login. None if that was in an earlier
            round, and it was not asked in the newest one.
        silent_since_ms: time of the first question without an answer, in ms since the epoch; None if it answers.
        reason: of the last question without an answer; empty if it answers.
    """

    kind: ServerKind
    id: int | None
    address: str
    answers: bool | None
    silent_since_ms: int | None
    reason: str


class _Note(NamedTuple):
    """The outcome of the last question to a server."""

    at_ms: int
    id: int | None
    silent_since_ms: int | None
    reason: str


class ServerAnswers:
    """Notes the outcome of each question to a server, in rounds.

    One thread begins rounds and reads. In a round several threads may note, each for other addresses.

    Args:
        kind: of all these servers.
    """

    def __init__(self, kind: ServerKind) -> None:
        self._kind: Final[ServerKind] = kind
        self._asked: set[str] = set()  # in this round
        self._notes: dict[str, _Note] = {}

    def begin_round(self) -> None:
        """From now on a server that has answered is listed only once it has answered again."""
        self._asked = set()

    def note(self, address: str, at_ms: int, reason: str = "", server_id: int | None = None) -> None:
        """A server was asked.

        Args:
            address: see :class:`ServerAnswer`.
            at_ms: the time, in ms since the epoch.
            reason: why it did not answer; empty if it did.
            server_id: id of a broker; None if it is not known from this question.
        """
        former = self._notes.get(address)
        known_id = former.id if server_id is None and former is not None else server_id
        since_ms = None
        if reason:
            since_ms = at_ms if former is None or former.silent_since_ms is None else former.silent_since_ms
        self._notes[address] = _Note(at_ms, known_id, since_ms, reason)
        self._asked.add(address)

    def newest(self, now_ms: int) -> tuple[ServerAnswer, ...]:
        """Servers that were asked in this round, and those that have not answered since; brokers in order of ids.

        Args:
            now_ms: the time, in ms since the epoch. A server that was asked last an hour ago is forgotten.
        """
        self._notes = {
            address: note
            for address, note in self._notes.items()
            if address in self._asked or (note.reason and now_ms - note.at_ms < FORGOTTEN_MS)
        }
        answers = [
            ServerAnswer(
                self._kind,
                note.id,
                address,
                (not note.reason) if address in self._asked else None,
                note.silent_since_ms,
                note.reason,
            )
            for address, note in self._notes.items()
        ]
        return tuple(sorted(answers, key=lambda one: (math.inf if one.id is None else one.id, one.address)))
