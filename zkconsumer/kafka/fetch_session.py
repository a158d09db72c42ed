"""FetchSession: what a fetch request has to name when the broker remembers the last one (KIP-227).

From Fetch version 7 on a broker keeps, per session, the partitions, offsets and sizes that it was asked for. A request
then names only what changed: partitions that are new or moved on, and those to be *forgotten*. The answer has only
partitions with something to say. Two consequences for a consumer:

* A partition that is not to be fetched now, because its queue is full, must be forgotten; merely not to name it would
  mean to go on with it. It costs a few bytes to forget it, and some more to name it again.
* Fairness is the broker's: it moves each partition that it gave data of to the end of its list.

This is bookkeeping only: no I/O, no clock. One thread uses a session. One request of a session may be in flight at a
time, which the epoch enforces: it counts requests, and a broker refuses any but the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from zkconsumer.errors import ProtocolError
from zkconsumer.kafka.errorcodes import ErrorCode, error_name
from zkconsumer.model import TopicPartition

FIRST_VERSION: Final = 7
"""The oldest version of Fetch that has sessions."""

_NO_SESSION: Final = 0
_FULL: Final = 0
_LAST_EPOCH: Final = 2**31 - 1

SESSION_ERRORS: Final = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
"""Errors after which a full request begins a new session."""


class PartitionFetch(NamedTuple):
    """What to fetch of one partition: from ``offset`` on, about ``max_bytes`` bytes."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class SessionStep(NamedTuple):
    """The part of a request that a session decides; ``epoch`` -1 means that there is no session and shall be none."""

    session_id: int
    epoch: int
    partitions: Sequence[PartitionFetch]
    forgotten: Sequence[TopicPartition] = ()


def without_session(partitions: Iterable[PartitionFetch]) -> SessionStep:
    """A request that stands for itself: it names all partitions, and the broker shall remember nothing."""
    return SessionStep(_NO_SESSION, -1, tuple(partitions))


class FetchSession:
    """One session of one connection; see the module's description."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FULL
        self._held: dict[tuple[str, int], PartitionFetch] = {}

    def next_step(self, wanted: Sequence[PartitionFetch]) -> SessionStep:
        """What to send so that the broker fetches exactly ``wanted``, the first of which come first in a full request.

        Each step must be followed by :meth:`answered` or :meth:`refused`.
        """
        held, self._held = (
            self._held,
            {fetch[:2]: fetch for fetch in wanted},
        )  # plain tuples: made in a tenth of the time
        if self._epoch == _FULL:
            return SessionStep(self._id, _FULL, wanted)
        changed = [fetch for partition, fetch in self._held.items() if held.get(partition) != fetch]
        return SessionStep(self._id, self._epoch, changed, [TopicPartition(*p) for p in held if p not in self._held])

    def answered(self, session_id: int) -> None:
        """The step was answered, with the id of the session; 0 where the broker keeps none (it has too many)."""
        if session_id == _NO_SESSION or (self._epoch != _FULL and session_id != self._id):
            self._id, self._epoch = _NO_SESSION, _FULL
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def refused(self, code: int) -> None:
        """The step was refused with one of :data:`SESSION_ERRORS`: the next is a full request.

        A broker drops sessions that are idle for long, or that others need the room of; a broker that was restarted
        has none.

        Raises:
            ProtocolError: a full request was refused, so to try again at once would be in vain.
        """
        if self._epoch == _FULL:
            raise ProtocolError(f"the broker refuses to begin a fetch session: {error_name(code)}")
        self._epoch = _FULL
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NO_SESSION  # otherwise the full request names the old one, which ends it
