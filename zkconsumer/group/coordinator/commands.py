"""CommandNodes: what a leader knows of the commands of its group, and its writing of them (adr/0017)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from zkconsumer.errors import MalformedZnode, ZooKeeperRefused, name_some
from zkconsumer.group.coordinator.rules.coordinatorplan import brokers_for
from zkconsumer.group.coordinator.rules.coordinatorznodes import (
    MOST_BYTES,
    Command,
    CommandNode,
    Status,
    StatusNode,
    newest_commands,
    session_node_of,
)
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.zookeeper.access import OPEN
from zkconsumer.zookeeper.fencedtransaction import Conflict, Operation, in_transactions
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession

_log: Final = logging.getLogger(__name__)


_NONE_REFUSED: Final[Mapping[str, str]] = MappingProxyType({})


class EpochEnded(Exception):
    """Nothing was written, since this member does not lead any more."""


class _KnownCommand(NamedTuple):
    """A command node as it was last read or written; ``command`` is None if there is none that can be obeyed."""

    version: int
    czxid: int
    command: Command | None


class CommandNodes:
    """The command nodes of a group in one epoch. Used by the coordinator's thread only.

    Only the leader writes them, so a node is read once, when it is listed for the first time.

    Args:
        session: an open session.
        group: name of the consumer group.
        fence: returns the path of the leader's session node.
        epoch: that this member leads in.
        security_protocol: of the endpoints of the brokers that commands name.
    """

    def __init__(
        self, session: ZkSession, group: str, fence: Callable[[], str], epoch: int, security_protocol: str = "PLAINTEXT"
    ) -> None:
        self._session = session
        self._group = group
        self._paths = CoordinatorPaths(group)
        self._fence = fence
        self._epoch = epoch
        self._security_protocol = security_protocol
        self._generation = 0
        self._published: Status | None = None
        self._known: dict[str, _KnownCommand] = {}
        self._listed: Set[str] = frozenset()
        self._newest: dict[str, str] = {}
        self._refusal: ZooKeeperRefused | None = None

    def refresh(self, names: Collection[str]) -> None:
        """Read the nodes that are new among the listed names, and forget those that are gone.

        Raises:
            ZooKeeperUnavailable, SessionExpired, ZooKeeperRefused: they cannot be read.
        """
        known = {name: self._known[name] for name in names if name in self._known}
        paths = {f"{self._paths.commands}/{name}": name for name in names if name not in known}
        for path, node in self._session.get_many(paths).items():
            if node is not None:
                known[paths[path]] = _KnownCommand(node.version, node.czxid, _decoded(path, node.data))
        self._known = known
        self._listed = frozenset(known)
        self._newest = newest_commands({name: node.czxid for name, node in known.items()})

    @property
    def generation(self) -> int:
        """Number of the last plan that was written."""
        return self._generation

    def publish(self, status: Status) -> None:
        """Write the leader's status, if it differs from what was written before.

        Raises:
            EpochEnded, SessionExpired, ZooKeeperUnavailable: as of :meth:`write`.
            ZooKeeperRefused: it may not be written; candidates will replace this leader.
        """
        if status == self._published:
            return
        self._published = None
        data = StatusNode.encode(status)
        if len(data) > MOST_BYTES:
            data = StatusNode.encode(replace(status, awaited=frozenset()))
        node = Operation("set", self._paths.status, data)
        conflict = self._session.commit_changes(self._fence(), [self._epoch_check, node])
        if conflict is not None:
            self._require_epoch(conflict)
        if conflict is not None and conflict.refusal is None:  # the first leader of the group
            create = Operation("create", self._paths.status, data, access=OPEN)
            conflict = self._session.commit_changes(self._fence(), [self._epoch_check, create])
        if conflict is not None:
            if conflict.refusal is not None:
                raise conflict.refusal
            return
        self._published = status

    @property
    def is_complete(self) -> bool:
        """False if :meth:`refresh` has to be called, since it is unknown what a node has."""
        return self._listed <= self._known.keys()

    @property
    def nodes(self) -> Mapping[str, str]:
        """By consumer id, the name of the command node of each member that has one: of its newest registration."""
        return self._newest

    def commanded(self, consumer_ids: Iterable[str]) -> dict[str, Share]:
        """The present command of each of these members; empty for one that has none."""
        commands = {name: self._known[self._newest[name]].command for name in consumer_ids}
        return {name: {} if command is None else command.share for name, command in commands.items()}

    def write(
        self,
        followers: Collection[str],
        shares: Mapping[str, Share],
        damaged: Collection[str],
        refused: Mapping[str, str] = _NONE_REFUSED,
        brokers: Sequence[Broker] = (),
    ) -> bool:
        """Write new shares, and a first command for each follower without one; delete nodes that no member obeys.

        Args:
            followers: consumer ids of the members that obey commands.
            shares: of those whose share changes.
            damaged: consumer ids whose registration is gone although the command node exists.
            refused: why some followers must not own anything.
            brokers: that live; each command names some of them.

        Returns:
            True if anything was written, or is to be read again: more may be possible now. What the servers do not
            allow to write stays as it is, see :meth:`raise_refusal`.

        Raises:
            EpochEnded: another member leads, or ``epoch`` was deleted.
            SessionExpired: this member's registration is gone.
            ZooKeeperUnavailable: it is unknown what was written; all is read again.
            ZooKeeperRefused: ``epoch`` may not be checked.
        """
        generation = self._generation
        written = self._new_commands(followers, shares, refused, brokers)
        changes = [
            Operation("set", self._path(name), CommandNode.encode(node.command), node.version - 1)
            for name, node in written.items()
            if node.command is not None
        ]
        for name in self._superfluous(damaged):
            changes.append(Operation("delete", self._path(name), version=self._known[name].version))
        refusal = _too_long(changes)
        changes = [change for change in changes if len(change.data or b"") <= MOST_BYTES]
        known, self._known, self._refusal = self._known, {}, refusal  # nothing is known if this fails
        answers = self._send(changes)
        self._known = known
        moved = [self._note(part, written, conflict) for part, conflict in answers]
        if not any(moved):
            self._generation = generation
        return any(moved)

    def raise_refusal(self) -> None:
        """To be called when nothing more can be written.

        Raises:
            ZooKeeperRefused: a node that the servers did not allow to write in the last :meth:`write`.
        """
        if self._refusal is not None:
            raise self._refusal

    def _send(self, changes: Sequence[Operation]) -> list[tuple[Sequence[Operation], Conflict | None]]:
        """Send changes in few transactions; where one of a transaction is refused, all of that one by one."""
        parts = list(in_transactions(changes))
        answers: list[tuple[Sequence[Operation], Conflict | None]] = []
        alone: list[Sequence[Operation]] = []
        for part, conflict in zip(parts, self._commit(parts), strict=True):
            if conflict is not None and conflict.refusal is not None and len(part) > 1:
                alone += [[change] for change in part]
            else:
                answers.append((part, conflict))
        return [*answers, *zip(alone, self._commit(alone), strict=True)]

    def _commit(self, parts: Iterable[Sequence[Operation]]) -> list[Conflict | None]:
        conflicts = self._session.commit_independent(self._fence(), [[self._epoch_check, *part] for part in parts])
        for conflict in conflicts:
            if conflict is not None:
                self._require_epoch(conflict)
        return conflicts

    # -- members that are evicted -------------------------------------------------------------------------------------

    def evicted(self) -> dict[str, tuple[str, Command]]:
        """Members whose session node a leader has deleted: by consumer id the name and content of their command."""
        evicted = {}
        for consumer_id, name in self._newest.items():
            command = self._known[name].command if name in self._known else None
            if command is not None and command.evicted_ms:
                evicted[consumer_id] = name, command
        return evicted

    def evict(self, consumer_id: str, reason: str, session_ms: int, *, itself: bool) -> None:
        """Delete the session node of a member, and withdraw all its partitions.

        From then on it can claim, release and commit nothing, its lease is not prolonged, and it can register again.

        Args:
            consumer_id: of a member that has a command.
            reason: written into its command.
            session_ms: session timeout of that member, in ms.
            itself: True for the member that leads: it leaves the office as well, since it can write nothing any more.

        Raises:
            EpochEnded: also if the leader has evicted itself.
            SessionExpired, ZooKeeperUnavailable, ZooKeeperRefused: as of :meth:`write`.
        """
        name = self._newest[consumer_id]
        session_node = session_node_of(self._group, name)
        node = self._known.pop(name)  # if this fails, it is read again
        command = Command({}, self._epoch, self._generation + 1, reason, session_ms)
        changes = [
            self._epoch_check,
            *([] if self._session.exists(session_node) else [Operation("create-ephemeral", session_node, b"")]),
            Operation("delete", session_node),
            Operation("set", self._path(name), CommandNode.encode(command), node.version),
        ]
        if itself:
            changes.append(Operation("delete", self._paths.leader))
        conflict = self._session.commit_changes(self._fence(), changes)
        if conflict is None:
            self._generation += 1
            self._known[name] = node._replace(version=node.version + 1, command=command)
            if itself:
                raise EpochEnded(f"epoch {self._epoch} has ended: the member that led is evicted, since {reason}")
        else:
            self._require_epoch(conflict)
            if conflict.refusal is not None:
                raise conflict.refusal
            _log.info("%s is not evicted now: %s", consumer_id, conflict.reason)

    def free(self, consumer_id: str, partitions: Collection[TopicPartition]) -> bool:
        """Delete owner znodes of an evicted member; False if it has left, or registers again.

        Each transaction checks that the session of the member lives, by its command, and that its session node is still
        missing, by creating and deleting that node. So the owner znodes are those of this session, and the member has
        not released or claimed any since the eviction.

        Args:
            consumer_id: of the member; its lease has to have lapsed.
            partitions: that it owns.

        Raises:
            EpochEnded, SessionExpired, ZooKeeperUnavailable, ZooKeeperRefused: as of :meth:`write`.
        """
        name, paths = self._newest[consumer_id], GroupPaths(self._group)
        session_node = session_node_of(self._group, name)
        checks = [
            self._epoch_check,
            Operation("check", self._path(name), version=self._known[name].version),
            Operation("create-ephemeral", session_node, b""),
            Operation("delete", session_node),
        ]
        deletions = [Operation("delete", paths.owner(partition)) for partition in sorted(partitions)]
        parts = [[*checks, *part] for part in in_transactions(deletions)]
        for conflict in self._session.commit_independent(self._fence(), parts):
            if conflict is not None:
                self._require_epoch(conflict)
                if conflict.refusal is not None:
                    raise conflict.refusal
                _log.info("partitions of %s are not freed now: %s", consumer_id, conflict.reason)
                return False
        return True

    def _require_epoch(self, conflict: Conflict) -> None:
        if conflict.operation == self._epoch_check:
            raise conflict.refusal or EpochEnded(f"epoch {self._epoch} has ended: {conflict.reason}")

    def _new_commands(
        self,
        followers: Collection[str],
        shares: Mapping[str, Share],
        refused: Mapping[str, str],
        brokers: Sequence[Broker],
    ) -> dict[str, _KnownCommand]:
        """The nodes to be written, as they will be afterwards."""
        written: dict[str, _KnownCommand] = {}
        generation = self._generation + 1
        for consumer_id in sorted(followers):
            node = self._known[self._newest[consumer_id]]
            present = Command({}, 0, 0) if node.command is None else node.command
            share, reason = shares.get(consumer_id, present.share), refused.get(consumer_id, "")
            if node.command is None or consumer_id in shares or reason != present.refused:
                command = Command(
                    share,
                    self._epoch,
                    generation,
                    reason,
                    present.evicted_ms,
                    brokers_for(consumer_id, brokers),
                    self._security_protocol,
                )
                written[self._newest[consumer_id]] = node._replace(version=node.version + 1, command=command)
        self._generation += bool(written)
        return written

    def _superfluous(self, damaged: Collection[str]) -> list[str]:
        """Nodes of former registrations in a session that lives, and of registrations that another client deleted."""
        obeyed = {name for consumer_id, name in self._newest.items() if consumer_id not in damaged}
        return sorted(self._known.keys() - obeyed)

    def _note(self, part: Sequence[Operation], written: Mapping[str, _KnownCommand], conflict: Conflict | None) -> bool:
        """Record what a transaction has written; nodes that are not as they were read are read again.

        Returns:
            False if the servers do not allow it: the same would be refused again.
        """
        if conflict is not None and conflict.refusal is not None:
            self._refusal = conflict.refusal
            return False
        if conflict is not None:
            _log.info("%s is not commanded now: %s", conflict.operation.path, conflict.reason)
        for change in part:
            name = change.path.rpartition("/")[2]
            if conflict is None and change.kind == "set":
                self._known[name] = written[name]
            else:
                del self._known[name]
        return True

    @property
    def _epoch_check(self) -> Operation:
        return Operation("check", self._paths.epoch, version=self._epoch)

    def _path(self, name: str) -> str:
        return f"{self._paths.commands}/{name}"


def _too_long(changes: Iterable[Operation]) -> ZooKeeperRefused | None:
    """Why commands are not sent: the leader would lose its connection, and so would each of its successors."""
    long = {change.path: len(change.data) for change in changes if change.data and len(change.data) > MOST_BYTES}
    if not long:
        return None
    named = name_some([f"{path} of {size} bytes" for path, size in long.items()])
    return ZooKeeperRefused(
        f"commands that exceed what servers accept are not written: {named}; their members keep what they have. Let "
        "more members share the topics, or subscribe to fewer"
    )


def _decoded(path: str, data: bytes | None) -> Command | None:
    try:
        return CommandNode.decode(path, data)
    except MalformedZnode as error:
        _log.error("a command is written again: %s", error)
        return None
