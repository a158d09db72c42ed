"""Election: makes one member of a group its leader, and finds out whether it still is (adr/0017)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from zkconsumer.errors import MalformedZnode
from zkconsumer.group.coordinator.rules.candidacy import (
    LeaderProgress,
    free_slot,
    is_candidate,
    is_hung,
    progress,
    runs,
)
from zkconsumer.group.coordinator.rules.coordinatorznodes import LeaderNode, StatusNode
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.coordinatorpaths import LEADER, CoordinatorPaths, candidate_name
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads

_log: Final = logging.getLogger("zkconsumer.events")


class Election:
    """One member's part in the elections of its group. Used by the coordinator's thread only.

    Args:
        session: an open session.
        group: name of the consumer group.
        consumer_id: id of this member.
        fence: returns the path of the member's session node; raises SessionExpired while it is not registered.
        registered_session: returns the id of the session that it is registered in.
        changed: called on kazoo's thread when the leader of a candidate appears or disappears.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        session: ZkSession,
        group: str,
        consumer_id: str,
        fence: Callable[[], str],
        registered_session: Callable[[], int],
        changed: Watch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._group = group
        self._paths = CoordinatorPaths(group)
        self._ids = GroupPaths(group).ids
        self._consumer_id = consumer_id
        self._fence = fence
        self._registered_session = registered_session
        self._reads = WatchedReads(session, changed)
        self._clock = clock
        self._registration = ""
        self._slot: int | None = None
        self._asked_for: int | None = None
        self._may_lead = False
        self._missing_since: float | None = None
        self._progress = LeaderProgress(None, None)

    def look(self) -> int | None:
        """Stand for election if that is due; returns the epoch in which this member leads, None if it does not.

        Raises:
            SessionExpired: this member is not registered.
            ZooKeeperUnavailable: unknown who leads.
            ZooKeeperRefused: the same, or this member may not become a candidate or the leader.
        """
        fence = self._fence()
        if fence != self._registration:  # its candidature ended with the former one
            self._registration, self._slot, self._may_lead = fence, None, False
        names = self._names()
        if not is_candidate(names, self._slot):
            self._stand(fence, names)
        if runs(names, self._slot, self._missing_seconds(names), self._session.negotiated_timeout):
            epoch = self._run(fence)
            if epoch is not None:
                return epoch
        if not (is_candidate(names, self._slot) or self._may_lead):
            return None  # other members do not watch the leader: its end would wake all of them
        leader = self._read_leader()
        if leader is None:
            return None
        try:
            epoch = LeaderNode.decode(self._paths.leader, leader.data)[1]
        except MalformedZnode as error:
            _log.error("group %s: %s", self._group, error)
            return self._replace_unreadable(fence)
        return epoch if self._may_lead else self._replace_if_hung(fence, epoch, leader.czxid)

    def resign(self) -> None:
        """Leave the office, so that another election follows.

        Raises:
            SessionExpired, ZooKeeperUnavailable, ZooKeeperRefused: see :meth:`look`.
        """
        epoch, leader = self._session.get_many([self._paths.epoch, self._paths.leader]).values()
        if leader is None or leader.owner_session != self._registered_session():
            return
        # Another member may replace this one meanwhile, and its node must stay: each election sets the epoch.
        same_epoch = [] if epoch is None else [Operation("check", self._paths.epoch, version=epoch.version)]
        self._changed(self._fence(), [*same_epoch, Operation("delete", self._paths.leader)])

    def _names(self) -> set[str]:
        names = self._session.children(self._paths.root)
        if names is None:  # another client has deleted it
            self._session.ensure_path(self._paths.commands, b"", open_to_all=True)
        return set(names or ())

    def _missing_seconds(self, names: set[str]) -> float:
        """For how long this member has seen no leader."""
        if LEADER in names:
            self._missing_since = None
            return 0.0
        if self._missing_since is None:
            self._missing_since = self._clock()
        return self._clock() - self._missing_since

    def _stand(self, fence: str, names: set[str]) -> None:
        """Become a candidate where there is a free place, if this member is not one already."""
        self._slot = None
        if is_candidate(names, self._asked_for) and self._is_ours(self._paths.candidate(self._asked_for or 0)):
            self._slot = self._asked_for  # only the answer was lost
            return
        slot = free_slot(names, self._consumer_id)
        if slot is None:
            return
        self._asked_for = slot
        node = Operation("create-ephemeral", self._paths.candidate(slot), self._consumer_id.encode())
        names.add(candidate_name(slot))
        if self._changed(fence, [node]):
            self._slot = slot
        else:
            # Another member was faster. Members that join together look together, and most places are taken by now;
            # where one is not, the next look finds it.
            self._asked_for = None

    def _changed(self, fence: str, changes: Sequence[Operation]) -> bool:
        """Make all of the changes or none; False if another member was faster.

        Raises:
            ZooKeeperRefused: the servers do not allow it, so that this member can never lead.
        """
        conflict = self._session.commit_changes(fence, changes)
        if conflict is not None and conflict.refusal is not None:
            raise conflict.refusal
        return conflict is None

    def _is_ours(self, path: str) -> bool:
        node = self._session.exists(path)
        return node is not None and node.owner_session == self._registered_session()

    def _run(self, fence: str) -> int | None:
        """Try to become the leader; returns the epoch won."""
        epoch = self._session.exists(self._paths.epoch)
        if epoch is None:
            self._session.ensure_path(self._paths.epoch, b"", open_to_all=True)
            epoch = self._session.exists(self._paths.epoch)
        if epoch is None:
            return None  # another client deletes the group
        return self._begin_epoch(fence, epoch.version, [])

    def _begin_epoch(self, fence: str, former: int, before: Sequence[Operation]) -> int | None:
        """End an epoch and begin the next one as its leader, in one transaction; None if another member did."""
        won = former + 1
        leader = Operation("create-ephemeral", self._paths.leader, LeaderNode.encode(self._consumer_id, won))
        self._may_lead = True  # also if the answer is lost
        if not self._changed(fence, [Operation("set", self._paths.epoch, b"", former), *before, leader]):
            return None  # another candidate was faster, or the answer to a former attempt was lost
        self._missing_since = None
        _log.info("group %s: %s is the coordinator of epoch %d", self._group, self._consumer_id, won)
        return won

    def _read_leader(self) -> Znode | None:
        """The leader's node; records whether it is this member's. A watch on it remains."""
        reads = self._reads.nodes([self._paths.leader])
        for reason in reads.refused.values():
            raise reason
        node = reads.nodes[self._paths.leader]
        self._may_lead = node is not None and node.owner_session == self._registered_session()
        return node

    def _replace_unreadable(self, fence: str) -> int | None:
        """Leave the office, or take over from another member, whose node has garbage; returns the epoch won.

        Its owner may not lead either: it is unknown in which epoch. All candidates watch the node, so more than one may
        try; ``epoch`` is read before the node, so an election in between lets the transaction fail.
        """
        if self._may_lead:
            self.resign()
            return None
        self._session.ensure_path(self._paths.epoch, b"", open_to_all=True)
        epoch, leader = self._session.get_many([self._paths.epoch, self._paths.leader]).values()
        if epoch is None or leader is None or _is_leader(self._paths.leader, leader):
            return None
        return self._begin_epoch(
            fence, epoch.version, [Operation("delete", self._paths.leader, version=leader.version)]
        )

    def _replace_if_hung(self, fence: str, epoch: int, czxid: int) -> int | None:
        """Take over from a leader whose session lives and who does not plan; returns the epoch won.

        The znode of the epoch may have been deleted and created again since the leader's election.
        """
        paths = [self._paths.epoch, self._paths.leader, self._paths.status, self._ids]
        current, leader, status, members = self._session.get_many(paths).values()
        present = 0 if members is None else members.cversion
        self._progress = progress(self._progress, _planned(self._paths.status, status, epoch), present, self._clock())
        if not is_hung(self._progress, self._clock(), self._session.negotiated_timeout):
            return None
        if current is None:
            self._session.ensure_path(self._paths.epoch, b"", open_to_all=True)
            return None
        if leader is None or leader.czxid != czxid:
            return None  # another candidate was faster
        _log.warning(
            "group %s: the coordinator of epoch %d does not react to a change of the members; %s replaces it. Check "
            "its log, and whether its process is stuck",
            self._group,
            epoch,
            self._consumer_id,
        )
        self._progress = LeaderProgress(None, None)
        return self._begin_epoch(fence, current.version, [Operation("delete", self._paths.leader)])


def _is_leader(path: str, node: Znode) -> bool:
    try:
        LeaderNode.decode(path, node.data)
    except MalformedZnode:
        return False
    return True


def _planned(path: str, node: Znode | None, epoch: int) -> int | None:
    """The version of the members that the leader of an epoch last planned from."""
    try:
        status = None if node is None else StatusNode.decode(path, node.data)
    except MalformedZnode as error:
        _log.error("%s", error)
        return None
    return status.members_version if status is not None and status.epoch == epoch else None
