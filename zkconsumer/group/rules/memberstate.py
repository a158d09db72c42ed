"""The states of a group member, which of them may follow each other, and the history of one member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

_HISTORY: Final = 64
"""How many states a member remembers: about five rebalances."""


class MemberState(Enum):
    """What a member is doing, and what is true meanwhile.

    Attributes:
        LATENT: Constructed. The group does not know it.
        REGISTERING: Registers in the group; it may have to wait for its former session to expire.
        SETTLING: Registered. Waits until other members have stopped joining and leaving.
        READING_GROUP: Reads members, topics and brokers, and decides whether a rebalance is needed. Ownership does not
            change.
        STOPPING: Step 1 of a rebalance: nothing more is handed out; what was released by the user is committed.
        RELEASING: Step 2: the listener is called, and partitions are given up.
        ASSIGNING: Step 3: the group is read again, and every member's partitions are computed from it.
        CLAIMING: Step 4: all partitions of its share become its own, or none.
        STARTING: Step 5: offsets are read, the listener is called, fetching starts.
        FETCHING: Owns its share, which may be empty, and hands out records while its lease holds.
        WAITING_FOR_BROKERS: No broker that it can use is registered; nothing is changed until one is.
        WAITING_TO_RETRY: An attempt failed. Waits for a former owner's release, for a change of the group, or for the
            backoff.
        SESSION_LOST: The session expired, or the registration was deleted: it owns nothing, and keeps its positions.
        LEAVING: Stops fetching, commits for the last time and leaves the group.
        CLOSED: Not in the group any more, or never joined. Final.
    """

    LATENT = "latent"
    REGISTERING = "registering"
    SETTLING = "settling"
    READING_GROUP = "reading the group"
    STOPPING = "stopping fetchers"
    RELEASING = "releasing partitions"
    ASSIGNING = "assigning partitions"
    CLAIMING = "claiming partitions"
    STARTING = "starting fetchers"
    FETCHING = "fetching"
    WAITING_FOR_BROKERS = "waiting for brokers"
    WAITING_TO_RETRY = "waiting to retry"
    SESSION_LOST = "session lost"
    LEAVING = "leaving"
    CLOSED = "closed"


STEPS: Final[Mapping[MemberState, str]] = MappingProxyType(
    {
        MemberState.STOPPING: "1 stop fetchers",
        MemberState.RELEASING: "2 release ownership",
        MemberState.ASSIGNING: "3 reassign partitions",
        MemberState.CLAIMING: "4 claim ownership",
        MemberState.STARTING: "5 restart fetchers",
    }
)
"""The states that are steps of a rebalance, with number and name; each step relies on the one before."""


def step_name(state: MemberState | None) -> str:
    """The step's number and name; None stands for registering and reading the group, before the first step."""
    return "0 read the group" if state is None else STEPS[state]


_FAILURE: Final = {MemberState.WAITING_TO_RETRY, MemberState.SESSION_LOST}
_END: Final = {MemberState.LEAVING, MemberState.CLOSED}
_ATTEMPT: Final = {MemberState.REGISTERING, MemberState.SETTLING, MemberState.READING_GROUP}

TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = MappingProxyType(
    {
        state: frozenset(following)
        for state, following in {
            MemberState.LATENT: {MemberState.REGISTERING, MemberState.STARTING, MemberState.WAITING_TO_RETRY} | _END,
            MemberState.REGISTERING: {MemberState.SETTLING} | _FAILURE | _END,
            MemberState.SETTLING: {MemberState.REGISTERING, MemberState.READING_GROUP} | _FAILURE | _END,
            MemberState.READING_GROUP: {
                MemberState.STOPPING,
                MemberState.FETCHING,
                MemberState.WAITING_FOR_BROKERS,
            }
            | _FAILURE
            | _END,
            MemberState.STOPPING: {MemberState.RELEASING} | _FAILURE | _END,
            MemberState.RELEASING: {MemberState.ASSIGNING} | _FAILURE | _END,
            MemberState.ASSIGNING: {MemberState.CLAIMING} | _FAILURE | _END,
            MemberState.CLAIMING: {MemberState.STARTING} | _FAILURE | _END,
            MemberState.STARTING: {MemberState.FETCHING} | _FAILURE | _END,
            MemberState.FETCHING: _ATTEMPT | _FAILURE | _END,
            MemberState.WAITING_FOR_BROKERS: _ATTEMPT | _FAILURE | _END,
            MemberState.WAITING_TO_RETRY: _ATTEMPT | _FAILURE | _END,
            MemberState.SESSION_LOST: _ATTEMPT | _FAILURE | _END,
            MemberState.LEAVING: {MemberState.CLOSED},
            MemberState.CLOSED: set(),
        }.items()
    }
)
"""Which states may follow a state. :class:`StateHistory` keeps what did follow, and tests compare the two."""


class Entered(NamedTuple):
    """A state, and when it was entered, on a monotonic clock in seconds."""

    state: MemberState
    at: float


class StateHistory:
    """The state of one member and those before it.

    Written by one thread at a time; the value is replaced, so that any thread may read it.

    Args:
        now: reading of a monotonic clock, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._entered: tuple[Entered, ...] = (Entered(MemberState.LATENT, now),)

    @property
    def entered(self) -> tuple[Entered, ...]:
        """The newest states, the present one last."""
        return self._entered

    @property
    def current(self) -> MemberState:
        """The present state."""
        return self._entered[-1].state

    def enter(self, state: MemberState, now: float) -> None:
        """Change the state. Entering the present one changes nothing, and CLOSED is final."""
        if self.current not in (state, MemberState.CLOSED):
            self._entered = (*self._entered[1 - _HISTORY :], Entered(state, now))


def illegal_transitions(entered: Sequence[Entered]) -> list[tuple[MemberState, MemberState]]:
    """The transitions between successive states that are not in :data:`TRANSITIONS`."""
    pairs = pairwise(entered)
    return [(before.state, after.state) for before, after in pairs if after.state not in TRANSITIONS[before.state]]
