"""PartitionOwnership: claims and releases the owner znodes of one member, and checks that they are still its own.

A member *releases* partitions to the group: it deletes their owner znodes. It *loses* partitions that are taken from
it: their owner znodes disappeared, or belong to another session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from zkconsumer.core.znodes import GroupPaths, PartitionOwnerNode
from zkconsumer.errors import OwnershipConflict
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.transaction import Operation, Outcomes

_log = logging.getLogger(__name__)


NOTHING: Final[Mapping[TopicPartition, ConsumerThreadId]] = {}
"""No partitions."""


class PartitionOwnership:
    """The owner znodes of one member. Used by the rebalance thread only.

    Args:
        session: an open session.
        group: consumer group.
        fence: gives the path of the member's current session node.
        registered_session: gives the id of the session that the member is registered in. The connection's own would be
            unknown in the moment in which it breaks.
        wake: called on kazoo's thread when a former owner has released something that is waited for.

    Attributes:
        releases: how often everything that was held has been given up so far.
    """

    def __init__(
        self,
        session: ZkSession,
        group: str,
        fence: Callable[[], str],
        registered_session: Callable[[], int],
        wake: Watch,
    ) -> None:
        self._session = session
        self._awaited = _AwaitedRelease(session, wake)
        self._paths = GroupPaths(group)
        self._fence = fence
        self._session_id = registered_session
        self._tried: dict[TopicPartition, ConsumerThreadId] = {}
        self._held: dict[TopicPartition, ConsumerThreadId] = {}
        self._retained: dict[TopicPartition, ConsumerThreadId] = {}
        self.releases = 0

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """What was claimed entirely and not released since; replaced, never changed, so any thread may read it."""
        return self._held

    def claim(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Create the owner znode of every partition of ``share``, all or nothing; what was retained is there.

        Raises:
            OwnershipConflict: somebody else holds one; what was created is deleted again.
            ZooKeeperRefused: an owner znode may not be created; the same.
            SessionExpired, ZooKeeperUnavailable: what was created goes with the session or with the next release.
        """
        if any(share.get(partition) != thread for partition, thread in self._retained.items()):
            self.release(retain=share)  # the group has changed since the last release
        retained, self._retained = self._retained, {}
        # Noted before it is tried: if the answer is lost, release() still deletes what the server may have created.
        self._tried = dict(share)
        creations = [
            Operation("create-ephemeral", self._paths.owner(partition), PartitionOwnerNode.encode(thread))
            for partition, thread in share.items()
            if retained.get(partition) != thread
        ]
        outcomes = self._session.try_transact(self._fence(), creations, insist=False)
        if "missing" in outcomes.values():
            outcomes.add(self._create_with_parents([one for one in creations if outcomes.get(one.path) != "done"]))
        if any(outcomes.get(creation.path) != "done" for creation in creations):
            holders = self._holders(share)
            if not holders and not outcomes.refused:
                # The node in the way is our own, since an answer was lost, or its owner let go just now.
                outcomes = self._session.try_transact(self._fence(), creations)
                left = [p for p in share if outcomes.get(self._paths.owner(p), "done") != "done"]
                holders = self._holders(left, gone="a member that has just released it")
            self._expect_done(holders, outcomes)
        self._held = self._tried

    def _create_with_parents(self, creations: Sequence[Operation]) -> Outcomes:
        """Parents are there unless the group has never owned a partition of their topic, so they are not looked for."""
        for reason in self._session.ensure_paths({one.path.rpartition("/")[0] for one in creations}, None).values():
            raise reason
        return self._session.try_transact(self._fence(), creations, insist=False)

    def _expect_done(self, holders: Mapping[TopicPartition, str], outcomes: Outcomes) -> None:
        """Unless nothing stood in the way, take back what was created and raise."""
        if not holders and not outcomes.refused:
            return
        self.release()
        for reason in outcomes.refused.values():
            raise reason
        raise OwnershipConflict(holders)

    def _holders(self, partitions: Collection[TopicPartition], gone: str | None = None) -> dict[TopicPartition, str]:
        """Who holds partitions; this session itself does not count. ``gone`` stands for the owner of one without."""
        holders = {}
        nodes = self._session.get_many(self._paths.owner(partition) for partition in partitions)
        for partition in partitions:
            path = self._paths.owner(partition)
            node = nodes[path]
            if node is None:
                if gone is not None:
                    holders[partition] = gone
            elif node.owner_session != self._session_id():
                holders[partition] = PartitionOwnerNode.decode(path, node.data)
            elif node.data != PartitionOwnerNode.encode(self._tried[partition]):
                holders[partition] = "this consumer under another thread"
        return holders

    def release(self, retain: Mapping[TopicPartition, ConsumerThreadId] = NOTHING) -> None:
        """Give up everything, and delete the owner znodes that this session holds.

        Those of other members are left alone, unlike in the JVM.

        Args:
            retain: what the next claim will want. An owner znode with this very thread stays where it is: other members
                do not want it, and deleting and creating it again is work for every change of one partition.

        Raises:
            SessionExpired: the session is gone and all its nodes with it; nothing is held any more.
            ZooKeeperUnavailable: try again.
        """
        # From here on nothing may be committed, whatever becomes of the deletion.
        self._hold_nothing()
        ours = self._data_of_ours(self._tried)
        retained = {
            partition: thread
            for partition, thread in self._tried.items()
            if retain.get(partition) == thread and ours.get(partition) == PartitionOwnerNode.encode(thread)
        }
        # Between this read and the deletion no other member can become the owner: the node exists until we delete it.
        gone = sorted(ours.keys() - retained.keys())
        self._session.transact(self._fence(), [Operation("delete", self._paths.owner(partition)) for partition in gone])
        self._tried, self._retained = dict(retained), retained

    def _data_of_ours(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bytes | None]:
        """Of these partitions, those whose owner znode belongs to the session of this member, and the znode's data."""
        paths = {partition: self._paths.owner(partition) for partition in partitions}
        nodes, mine = self._session.get_many(paths.values()), self._session_id()
        return {p: node.data for p, path in paths.items() if (node := nodes[path]) and node.owner_session == mine}

    def lose_all(self) -> None:
        """The session node is gone: nothing may be committed any more.

        The owner znodes went with it if the session did. If only that node was deleted, they are still there; the next
        :meth:`release` looks, or they would block all other members for as long as this session lives.
        """
        self._hold_nothing()
        self._retained = {}

    def _hold_nothing(self) -> None:
        self._held = {}
        self.releases += 1

    def lose_taken(self) -> list[TopicPartition]:
        """Stop holding partitions whose owner znode is not this session's any more, and return them.

        JVM members delete owner znodes blindly. What is lost may not be committed: another member consumes it.
        """
        ours = self._data_of_ours(self._held)
        kept = {partition: thread for partition, thread in self._held.items() if partition in ours}
        lost = sorted(self._held.keys() - kept.keys())
        if lost:
            self._held = kept
        return lost

    def awaited_release(self, partitions: Iterable[TopicPartition]) -> Callable[[], bool]:
        """A question to ask at each wake-up of the signal: have all of the partitions lost their owner?

        That an owner is gone wakes the signal and does not raise its flag: who should own what has not changed by it.
        """
        return self._awaited.begin(self._paths.owner(partition) for partition in partitions)


class _AwaitedRelease:
    """Waits for znodes to disappear; they are read only if a watch has fired since the last time.

    Args:
        session: an open session.
        wake: called on kazoo's thread when it is worth asking again.
    """

    def __init__(self, session: ZkSession, wake: Watch) -> None:
        self._session = session
        self._wake = wake
        self._fired = threading.Event()
        self._paths: list[str] = []

    def begin(self, paths: Iterable[str]) -> Callable[[], bool]:
        """Wait for these from now on."""
        self._paths = list(paths)
        self._fired.set()
        return self._all_gone

    def _all_gone(self) -> bool:
        while self._paths and self._fired.is_set():
            self._fired.clear()
            # A member releases all its partitions at once, so a watch on one is enough, and a read of all after it.
            nodes = self._session.get_many(self._paths)
            self._paths = [path for path in self._paths if nodes[path] is not None]
            if self._paths and self._session.exists(self._paths[0], self._note) is None:
                self._fired.set()
        return not self._paths

    def _note(self) -> None:
        self._fired.set()
        self._wake()
