"""FetchSession: the partitions that a fetch request must name if the broker keeps a session (KIP-227).

From Fetch version 7 on a broker keeps, per session, the requested partitions, offsets and sizes. A request then names
only changes: partitions that are new or have a new offset, and those to be *forgotten*. The response contains only
partitions with data or changes. Two consequences for a consumer:

* A partition that must not be fetched now, because its queue is full, must be forgotten: if the request just does not
  name it, the broker continues to send it. Forgetting it costs a few bytes, naming it again some more.
* The broker is responsible for fairness: it moves each partition of which it sent data to the end of its list.

This module keeps the state only: no I/O, no clock. One thread uses a session. One request of a session may be in flight
at a time, which the epoch enforces: it counts requests, and a broker refuses any but the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH

FIRST_VERSION: Final = 7
"""The oldest version of Fetch that has sessions."""

_NO_SESSION: Final = 0
_FULL: Final = 0
_LAST_EPOCH: Final = 2**31 - 1

SESSION_ERRORS: Final = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
"""Errors after which a full request begins a new session."""


class PartitionFetch(NamedTuple):
    """The request for one partition: from ``offset`` on, about ``max_bytes`` bytes, of the leader of an epoch."""

    topic: str
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = UNKNOWN_EPOCH


class SessionStep(NamedTuple):
    """The part of a request that depends on the session; ``epoch`` -1: there is no session and none is requested."""

    session_id: int
    epoch: int
    partitions: Sequence[PartitionFetch]
    forgotten: Sequence[TopicPartition] = ()


def without_session(partitions: Iterable[PartitionFetch]) -> SessionStep:
    """A request without session: it names all partitions, and the broker keeps nothing."""
    return SessionStep(_NO_SESSION, -1, tuple(partitions))


class FetchSession:
    """One session of one connection; see the module's description.

    Args:
        last_epoch: epoch after which epochs begin with 1 again, by default that of the protocol.
    """

    def __init__(self, last_epoch: int = _LAST_EPOCH) -> None:
        self._last_epoch = last_epoch
        self._id = _NO_SESSION
        self._epoch = _FULL
        self._held: dict[tuple[str, int], PartitionFetch] = {}

    def next_step(self, wanted: Sequence[PartitionFetch]) -> SessionStep:
        """The request with which the broker fetches exactly ``wanted``; a full request keeps their order.

        Each step must be followed by :meth:`answered` or :meth:`refused`.
        """
        held, self._held = (
            self._held,
            {fetch[:2]: fetch for fetch in wanted},
        )  # plain tuples are created in a tenth of the time
        if self._epoch == _FULL:
            return SessionStep(self._id, _FULL, wanted)
        changed = [fetch for partition, fetch in self._held.items() if held.get(partition) != fetch]
        return SessionStep(self._id, self._epoch, changed, [TopicPartition(*p) for p in held if p not in self._held])

    def answered(self, session_id: int) -> None:
        """Record the answer to a step, with the id of the session; 0 if the broker keeps none (it has too many)."""
        if session_id == _NO_SESSION or (self._epoch != _FULL and session_id != self._id):
            self._id, self._epoch = _NO_SESSION, _FULL
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == self._last_epoch else self._epoch + 1

    def refused(self, code: int) -> None:
        """Record that a step was refused with one of :data:`SESSION_ERRORS`: the next is a full request.

        A broker drops sessions that are idle for long, or whose slots other clients need; a restarted broker has none.

        Raises:
            ProtocolError: a full request was refused, so an immediate retry would fail too.
        """
        if self._epoch == _FULL:
            raise ProtocolError(f"the broker refused to begin a fetch session: {error_name(code)}")
        self._epoch = _FULL
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NO_SESSION  # otherwise the full request names the old one, which ends it
