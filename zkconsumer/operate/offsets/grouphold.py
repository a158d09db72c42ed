"""GroupHold: keeps members of a group from owning partitions while a tool writes the group's offsets.

A member commits what it owns. So the tool becomes the owner of every partition, ephemerally: a member that starts
meanwhile fails to claim, and tries again until the hold is released. The hold ends with the process that has it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from zkconsumer.errors import HoldReason, WriteRefused, ZkConsumerError, ZooKeeperUnavailable, name_some
from zkconsumer.group.zookeeper.nudge import nudge_members
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.operate.offsets.groupinuse import (
    are_of_holds,
    holder_name,
    how_owners_end,
    live_members,
    registered_members,
    why_held,
    why_owned,
)
from zkconsumer.operate.offsets.patience import Patience, until_reconnected
from zkconsumer.operate.offsets.snapshot import NodeState
from zkconsumer.zookeeper.access import OPEN, Access
from zkconsumer.zookeeper.fencedtransaction import NO_FENCE, Conflict, Operation, in_transactions, lost_fence
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS, GroupPaths
from zkconsumer.zookeeper.rules.znodes import HOLD_NODE, PartitionOwnerNode
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)

LONGEST_S: Final = 4.0
"""How long a hold lasts at most. A JVM member tries to claim 0, 2, 4 and 6 s after it started, and then gives up."""


_GIVES_UP_AFTER_MS: Final = 6000

_ATTEMPT_S: Final = 1.0
"""How long a JVM member may take from reading offsets to claiming; LONGEST_S and this are less than its patience."""
_ATTEMPTS: Final = 5


def why_over(group: str) -> str:
    """Why nothing more is written once a hold has lasted :data:`LONGEST_S`, without what to do."""
    return f"the hold of group {group} lasted {LONGEST_S:g} s, after which members that started meanwhile give up"


@dataclass(frozen=True, slots=True)
class HoldEnd:
    """How a hold ended.

    Attributes:
        gave_up: members that registered so long before the release that they try no more; restart them.
        nudged: the other members that were registered at the release. They were made to rebalance, unless a step of the
            release failed, or members gave up: a JVM member without streams would own partitions then, and the others
            try again by themselves.
        problems: what could not be removed, one sentence each.
        unread: why it is unknown which members were registered; empty if it is known.
    """

    nudged: tuple[str, ...] = ()
    gave_up: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unread: str = ""


class GroupHold:
    """The hold of one group. One thread uses it.

    Args:
        session: an open session.
        group: consumer group.
        partitions: to claim; every partition that a member could own whose offset is written.
        parents: data and access of parents that the write creates; others get the access of the group's own node.
        live: hold a group that has members, whose partitions cannot be claimed; the hold then only fences the writes.
        long: the hold may last longer than :data:`LONGEST_S`.
        forceable: the command has ``--force-live``, for messages.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        session: ZkSession,
        group: str,
        partitions: Collection[TopicPartition],
        *,
        parents: Mapping[str, NodeState] = MappingProxyType({}),
        live: bool = False,
        long: bool = False,
        forceable: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._written = tuple(sorted(partitions))
        self._partitions = () if live else self._written
        self._parents = parents
        self._group_access: Access | None = None
        self._live = live
        self._long = long
        self._forceable = forceable
        self._clock = clock
        self._created: list[str] = []
        self._claimed: list[str] = []
        self._given_back: list[str] = []
        self._held = False
        self._is_to_release = False
        self._began = 0.0
        self._server_ms = 0
        self.fence = ""

    @property
    def created(self) -> frozenset[str]:
        """Parents that did not exist; the release removes those that nothing was created below."""
        return frozenset(self._created)

    @property
    def live(self) -> bool:
        """True if the group may have members meanwhile."""
        return self._live

    def keep(self, paths: Iterable[str]) -> None:
        """Let the release leave these parents where they are, since they are part of what is written."""
        kept = set(paths)
        self._created = [path for path in self._created if path not in kept]

    @property
    def age(self) -> float:
        """Seconds since the first claim was sent."""
        return self._clock() - self._began

    @property
    def is_over(self) -> bool:
        """True if nothing more may be written: members that started meanwhile are about to give up."""
        return not self._long and self.age > LONGEST_S

    def require(self) -> None:
        """Check that the group is held, right before a write that ZooKeeper cannot refuse.

        Raises:
            SessionExpired: the hold has ended with its session.
            ZooKeeperUnavailable: it is unknown whether the group is held.
            WriteRefused: the hold has lasted too long.
        """
        self._session.commit_changes(self.fence, [Operation("check", self.fence)])
        if self.is_over:
            raise WriteRefused(f"{why_over(self._paths.group)}; give --long-hold")

    def take(self) -> None:
        """Claim everything.

        Call it within the ``try`` whose ``finally`` calls :meth:`release`: an interrupt may come right after it.

        Raises:
            WriteRefused: the group has members, or another client owns a partition or holds the group.
            SessionExpired, ZooKeeperUnavailable, ZooKeeperRefused: see there. After any error nothing is held.
        """
        session_id = self._session.session_id
        self.fence = self._paths.hold(session_id)
        self._name = holder_name(self._paths.group, session_id)
        self._is_to_release = True
        try:
            self._create_fence()
            self._refuse_others()
            if not self._live:
                owner_topics = [self._paths.owner_topic(topic) for topic in self._topics()]
                if not (self._create_parents([self._paths.owners]) and self._create_parents(owner_topics)):
                    raise ZkConsumerError(
                        f"{self._paths.owners}/... cannot be created: its parent was deleted; try again"
                    )
                self._claim()
                self.refuse_members()
            elif not self.members() and (owned := why_owned(self._session, self._paths, self._written)):
                raise WriteRefused(owned)
        except BaseException:
            self._give_back()
            raise

    def _create_fence(self) -> None:
        """Create the hold's own node. Another hold that ends meanwhile removes the parents that it has created."""
        self._group_access = self._session.access([self._paths.root]).get(self._paths.root)
        change = Operation("create-ephemeral", self.fence, HOLD_NODE, access=OPEN)
        for _ in range(_ATTEMPTS):
            if not all(self._create_parents([path]) for path in (CONSUMERS, self._paths.root, self._paths.ours)):
                continue
            self._held = True  # the node may exist, though its answer is lost or an interrupt comes
            conflict = self._session.commit_changes(NO_FENCE, [change])
            if conflict is None:
                return
            self._held = False
            if conflict.refusal is not None:
                raise conflict.refusal
            if conflict.outcome == "exists":
                raise WriteRefused(
                    HoldReason(f"{self.fence} exists: this session holds group {self._paths.group} already")
                )
        raise ZkConsumerError(f"{self.fence} cannot be created: other clients keep deleting its parent; stop them")

    def _topics(self) -> list[str]:
        return sorted({partition.topic for partition in self._partitions})

    def _create_parents(self, paths: Sequence[str]) -> bool:
        """Create those that are missing, and note them for the release; False if the parent of one is missing."""
        nodes = self._session.get_many(paths)
        for part in in_transactions(self._parent(path) for path in paths if nodes[path] is None):
            left = list(part)
            while left:
                conflict = self._session.commit_changes(NO_FENCE, left)
                if conflict is None:
                    self._created += [change.path for change in left]
                    break
                if self._session.get(conflict.operation.path) is None:
                    if conflict.outcome == "missing":
                        return False
                    raise ZkConsumerError(f"{conflict.operation.path} cannot be created: {conflict.reason}")
                left.remove(conflict.operation)  # another client has created it since it was read
        return True

    def _parent(self, path: str) -> Operation:
        """Members of the group must be able to write below it, should it stay; so its access is the group's."""
        planned = self._parents.get(path)
        if planned is not None:
            return Operation("create", path, planned.data, access=planned.access)
        access = OPEN if path in (CONSUMERS, self._paths.ours) else self._group_access
        return Operation("create", path, None, access=access)

    def _refuse_others(self) -> None:
        node = self._session.get(self.fence)
        self._server_ms = 0 if node is None else node.modified_ms
        self._began = self._clock()
        if held := why_held(self._session, self._paths, mine=self.fence.rpartition("/")[2]):
            raise WriteRefused(held)

    def _claim(self) -> None:
        data = PartitionOwnerNode.encode(ConsumerThreadId(self._name, 0))
        claims = [Operation("create-ephemeral", self._paths.owner(p), data) for p in self._partitions]
        self._claimed = [change.path for change in claims]  # after a failure those are released that this session owns
        for conflict in self._session.commit_independent(self.fence, in_transactions(claims)):
            if conflict is not None:
                raise WriteRefused(self._why(conflict))

    def _why(self, conflict: Conflict) -> str:
        path = conflict.operation.path
        node = self._session.get(path)
        if node is None:
            return f"{path} cannot be claimed: {conflict.reason}"
        owner = PartitionOwnerNode.decode(path, node.data)
        reason = f"{path} is owned by {owner} of group {self._paths.group}; {how_owners_end({path: node})}"
        return HoldReason(reason) if are_of_holds(self._paths, {path: node}) else reason

    def members(self) -> list[str]:
        """Ids of the members that are registered now."""
        return registered_members(self._session, self._paths)

    def refuse_members(self) -> None:
        """Raise WriteRefused if the group has members."""
        if members := self.members():
            raise WriteRefused(live_members(self._paths.group, members, forceable=self._forceable))

    def outlast_attempts(self) -> None:
        """After the last write: wait until members that read the offsets before it have failed to claim.

        A JVM member reads offsets before it claims. 1. It registers, and reads; 2. offsets are written; 3. the hold is
        released; 4. it claims, and continues at the offsets of before. A member that registers after the last write
        reads what was written, so nothing has to be waited for unless one is registered by now.
        """
        if not self._live and self.members():
            time.sleep(_ATTEMPT_S)

    # -- release ------------------------------------------------------------------------------------------------------

    def release(self, closing: Sequence[Operation] = ()) -> HoldEnd:
        """Give everything back, remove the parents that were created, and make members that wait try again.

        What was not taken, or was released, is left alone. An interrupted release is completed by another one.

        Args:
            closing: deletions that are only possible now, parents of what is held, in their order. They are done
                together with the removal of the hold, unless a member has registered although the group was to have
                none. What is left of them is for the caller to read.

        Returns:
            How it ended. Each step is repeated while ZooKeeper is away for a moment. After that an error is in
            ``problems``: what is ephemeral ends with the session, parents stay.
        """
        if not self._is_to_release:
            return HoldEnd()
        problems: list[str] = []
        members: list[str] = []
        gave_up: list[str] = []
        unread = ""
        patience = until_reconnected()
        failure = _failure_of(patience, lambda: self._release_claims(problems))
        try:
            members, gave_up = patience.ask(self._waiting)  # also if the session has ended, by the next one
        except ZkConsumerError as error:
            unread = str(error)
            failure = failure or error
        if failure is None:
            if members and not gave_up:
                self._nudge()
            may_close = self._live or not members
            if closing and not may_close:
                problems.append(f"{self._paths.root} stays: {name_some(members)} registered meanwhile")
            failure = _failure_of(patience, lambda: self._release_node(closing if may_close else (), problems))
        if failure is not None:
            problems.append(f"the hold of group {self._paths.group} ends with its session: {failure}")
            self._remove_parents()
        self._is_to_release = False
        nudged = tuple(member for member in members if member not in gave_up)
        return HoldEnd(nudged, tuple(gave_up), tuple(problems), unread)

    def _release_claims(self, problems: list[str]) -> None:
        """Delete only what this session owns: a member whose session expired may delete owner znodes blindly.

        The read is synced: after a claim without an answer, the next server may not have that claim yet.
        """
        paths = [self.fence, *self._claimed, *self._given_back]
        nodes, session_id = self._session.get_many_synced(paths), self._session.session_id
        if nodes.pop(self.fence) is None and self._held:
            raise lost_fence(self.fence)
        own_paths = [path for path, node in nodes.items() if node is not None and node.owner_session == session_id]
        if lost := sorted(set(self._claimed) - set(own_paths)):
            problems.append(f"{name_some(lost)} was deleted by another client; check who owns the partition")
        self._given_back, self._claimed = own_paths, []  # their deletion may be done although its answer is lost
        parts = list(in_transactions(Operation("delete", path) for path in own_paths))
        for part, conflict in zip(parts, self._session.commit_independent(self.fence, parts), strict=True):
            if conflict is not None:
                problems += self._delete(self.fence, part)
        owners = [path for path in reversed(self._created) if path.startswith(self._paths.owners)]
        problems += self._delete(self.fence, [Operation("delete", path) for path in owners])
        self._created = [path for path in self._created if path not in set(owners)]

    def _release_node(self, closing: Sequence[Operation], problems: list[str]) -> None:
        """The hold's own node, its parents, and what could not be deleted before."""
        kept = {change.path for change in closing}
        created = list(self._created)
        if self._paths.root in kept:  # a hold that was killed has left its parents, empty
            created += [self._paths.ours, self._paths.owners, *map(self._paths.owner_topic, self._topics())]
        parents = [Operation("delete", path) for path in dict.fromkeys(created) if path not in kept]
        if self._held:
            problems += self._delete(NO_FENCE, [Operation("delete", self.fence)])  # again, if its answer was lost
            self._held = False
        deepest_first = sorted([*closing, *parents], key=lambda change: change.path.count("/"), reverse=True)
        problems += self._delete(NO_FENCE, deepest_first)

    def _delete(self, fence: str, deletions: Sequence[Operation]) -> list[str]:
        """Delete what can be deleted; returns what is still there, except parents that others use."""
        for part in in_transactions(deletions):
            left = list(part)
            while left:
                conflict = self._session.commit_changes(fence, left)
                if conflict is None:
                    break
                left.remove(conflict.operation)
                _log.info("%s stays: %s", conflict.operation.path, conflict.reason)
        nodes = self._session.get_many(deletion.path for deletion in deletions if deletion.version >= 0)
        return [f"{path} stays: another client uses it" for path, node in nodes.items() if node is not None]

    def _nudge(self) -> None:
        """Make the members rebalance, or log why that was not done."""
        try:
            nudge_members(self._session, self._paths, self.fence, self._name, self._server_now())
        except ZkConsumerError as error:
            _log.warning("group %s: its members were not made to rebalance: %s", self._paths.group, error)

    def _server_now(self) -> int:
        return self._server_ms + int(self.age * 1000)

    def _waiting(self) -> tuple[list[str], list[str]]:
        """The members that are registered now, and those of them that gave up."""
        members = self.members()
        return members, self._gave_up(members)

    def _gave_up(self, members: Sequence[str]) -> list[str]:
        """Members that tried for as long as they do; a short hold lasts so long, too, if an answer was late."""
        if self._live:
            return []  # nothing was claimed, so no attempt of theirs failed
        nodes = self._session.get_many(self._paths.consumer_id(member) for member in members)
        limit = self._server_now() - _GIVES_UP_AFTER_MS
        return [
            member
            for member in members
            if (node := nodes[self._paths.consumer_id(member)]) is not None and node.modified_ms < limit
        ]

    def _give_back(self) -> None:
        """After a failure or an interrupt: as :meth:`release`, without what is for members."""
        problems: list[str] = []
        patience = until_reconnected()
        failure = _failure_of(patience, lambda: self._release_claims(problems))
        failure = failure or _failure_of(patience, lambda: self._release_node((), problems))
        if failure is not None:
            _log.warning("group %s: the hold ends with this session: %s", self._paths.group, failure)
            self._remove_parents()
        self._is_to_release = False

    def _remove_parents(self) -> None:
        """The session has ended, and with it everything that was ephemeral."""
        parents = [Operation("delete", path) for path in reversed(self._created)]
        try:
            self._delete(NO_FENCE, parents)
        except ZkConsumerError as error:
            _log.warning("group %s: %s may be left empty: %s", self._paths.group, name_some(self._created), error)


def _failure_of(patience: Patience, step: Callable[[], None]) -> ZkConsumerError | None:
    """Why a step of a release fails, if it does: the session has ended, for example, which waiting does not cure."""
    try:
        patience.ask(step, (ZooKeeperUnavailable,))
    except ZkConsumerError as error:
        return error
    return None


class NoHold:
    """Stands for the hold where no group in ZooKeeper takes part: offsets move between Kafka and another store."""

    created: Final[frozenset[str]] = frozenset()
    live: Final = False
    is_over: Final = False
    fence: Final = NO_FENCE

    def members(self) -> list[str]:
        """None."""
        return []

    def take(self) -> None:
        """Nothing."""

    def keep(self, paths: Iterable[str]) -> None:
        """Nothing: there are no parents."""

    def require(self) -> None:
        """Nothing: Kafka's coordinator refuses the commit if its group has members."""

    def outlast_attempts(self) -> None:
        """Nothing: no member claims partitions."""

    def release(self, closing: Sequence[Operation] = ()) -> HoldEnd:  # noqa: ARG002 - as that of a hold
        """Nothing: no znode was created."""
        return HoldEnd()
