"""PartitionOwnership: claims and releases the owner znodes of one member, and checks that they are still its own.

A member *releases* partitions to the group: it deletes their owner znodes. It *loses* partitions if their owner znodes
have disappeared, or belong to another session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from zkconsumer.errors import OwnershipConflict
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.fencedtransaction import Operation
from zkconsumer.zookeeper.kazooadapter import Watch
from zkconsumer.zookeeper.partialtransactions import Outcomes
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)


NOTHING: Final[Mapping[TopicPartition, ConsumerThreadId]] = {}
"""Default of what a release retains."""


class PartitionOwnership:
    """The owner znodes of one member. Used by the rebalance thread only.

    Args:
        session: an open session.
        group: consumer group.
        fence: returns the path of the member's current session node.
        registered_session: returns the id of the session that the member is registered in. The id of the connection's
            session is unknown at the moment at which the connection breaks.
        wake: called on kazoo's thread when a former owner has released an awaited partition.

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
        self._awaits_claim = False
        self.releases = 0

    @property
    def held(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """Partitions that were claimed and not released or lost; replaced, never changed, so any thread may read it."""
        return self._held

    def claim(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Create the owner znode of every partition of ``share``, all or none; retained ones exist already.

        Raises:
            OwnershipConflict: another member holds one; created znodes are deleted again.
            ZooKeeperRefused: an owner znode may not be created; created ones are deleted again.
            SessionExpired, ZooKeeperUnavailable: created znodes disappear with the session or at the next release.
        """
        if any(share.get(partition) != thread for partition, thread in self._retained.items()):
            self.release(retain=share)  # the group has changed since the last release
        retained, self._retained = self._retained, {}
        # Recorded before the attempt: if the answer is lost, release() still deletes what the server may have created.
        self._tried = dict(share)
        left = {partition: thread for partition, thread in share.items() if retained.get(partition) != thread}
        self._create(left, share, self.release)
        self._held = self._tried

    def claim_more(self, share: Mapping[TopicPartition, ConsumerThreadId], condition: Operation) -> None:
        """Create the owner znodes of what is not held of ``share``, all or none; what is held stays.

        Args:
            share: contains all that is held, each partition under the same thread.
            condition: checked by each transaction: the command that has this share.

        Raises:
            OwnershipConflict, ZooKeeperRefused: as of :meth:`claim`.
            ShareChanged: the condition does not hold.
            SessionExpired, ZooKeeperUnavailable: created znodes disappear with the session or at the next release.
        """
        gained = {partition: thread for partition, thread in share.items() if partition not in self._held}
        self._tried = {**self._tried, **gained}  # before the attempt, as in claim()
        self._create(gained, gained, lambda: self.release_some(gained), condition)
        self._held = {**self._held, **gained}

    @property
    def is_certain(self) -> bool:
        """False if owner znodes may exist that are not held, since the answer to a claim or a release was lost."""
        return self._tried.keys() == self._held.keys()

    def _create(
        self,
        left: Mapping[TopicPartition, ConsumerThreadId],
        share: Mapping[TopicPartition, ConsumerThreadId],
        undo: Callable[[], None],
        condition: Operation | None = None,
    ) -> None:
        """Create the owner znodes of ``left``, which is a part of ``share``, or undo it and raise."""
        self._awaits_claim = True
        creations = [
            Operation("create-ephemeral", self._paths.owner(partition), PartitionOwnerNode.encode(thread))
            for partition, thread in left.items()
        ]
        outcomes = self._session.try_transact(self._fence(), creations, insist=False, condition=condition)
        if "missing" in outcomes.values():
            without = [creation for creation in creations if outcomes.get(creation.path) != "done"]
            outcomes.add(self._create_with_parents(without, condition))
        if any(outcomes.get(creation.path) != "done" for creation in creations):
            holders = self._holders(share)
            if not holders and not outcomes.refused:
                # The conflicting node is our own, since an answer was lost, or its owner has just released it.
                outcomes = self._session.try_transact(self._fence(), creations, condition=condition)
                missed = [p for p in share if outcomes.get(self._paths.owner(p), "done") != "done"]
                holders = self._holders(missed, gone="a member that has just released it")
            self._awaits_claim = False
            self._expect_done(holders, outcomes, undo)
        self._awaits_claim = False

    def _create_with_parents(self, creations: Sequence[Operation], condition: Operation | None) -> Outcomes:
        """Parents are missing only if the group never owned a partition of the topic, so they are created on demand."""
        for reason in self._session.ensure_paths(
            {creation.path.rpartition("/")[0] for creation in creations}, None
        ).values():
            raise reason
        return self._session.try_transact(self._fence(), creations, insist=False, condition=condition)

    def _expect_done(self, holders: Mapping[TopicPartition, str], outcomes: Outcomes, undo: Callable[[], None]) -> None:
        """If there was a conflict or a refusal, delete the created znodes and raise."""
        if not holders and not outcomes.refused:
            return
        undo()
        for reason in outcomes.refused.values():
            raise reason
        raise OwnershipConflict(holders)

    def _holders(self, partitions: Collection[TopicPartition], gone: str | None = None) -> dict[TopicPartition, str]:
        """Owners of partitions other than this session; ``gone``, if given, stands for the owner of one without."""
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

        Unlike in the JVM, owner znodes of other members stay.

        Args:
            retain: what the next claim will probably contain. An owner znode with exactly this thread stays: no other
                member claims it, and to delete and create all of them again would be work at each change of one.

        Raises:
            SessionExpired: the session has ended and all its nodes with it; nothing is held any more.
            ZooKeeperUnavailable: try again.
        """
        # From here on nothing may be committed, whether or not the deletion succeeds.
        self._hold_nothing()
        own_nodes = self._data_of_ours(self._tried)
        retained = {
            partition: thread
            for partition, thread in self._tried.items()
            if retain.get(partition) == thread and own_nodes.get(partition) == PartitionOwnerNode.encode(thread)
        }
        # Between this read and the deletion no other member can become the owner: the node exists until we delete it.
        gone = sorted(own_nodes.keys() - retained.keys())
        self._session.transact(self._fence(), [Operation("delete", self._paths.owner(partition)) for partition in gone])
        self._tried, self._retained, self._awaits_claim = dict(retained), retained, False

    def release_some(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up some partitions, and delete their owner znodes that this session holds; the others stay held.

        What an attempt may have created although its answer was lost is deleted, too.

        Raises:
            SessionExpired, ZooKeeperUnavailable: as of :meth:`release`.
        """
        given_up = set(partitions)
        self._held = {partition: thread for partition, thread in self._held.items() if partition not in given_up}
        gone = sorted(self._data_of_ours(self._tried.keys() - self._held.keys()))
        self._session.transact(self._fence(), [Operation("delete", self._paths.owner(partition)) for partition in gone])
        self._tried, self._awaits_claim = dict(self._held), False

    def _data_of_ours(
        self, partitions: Iterable[TopicPartition], *, synced: bool = False
    ) -> dict[TopicPartition, bytes | None]:
        """The partitions whose owner znode belongs to the session of this member, and the data of the znode.

        The read is synced after a claim without an answer, too. The next server may answer before it has that claim:
        its znode would be taken for none, would stay when the partition is given up, and would block other members.
        """
        paths = {partition: self._paths.owner(partition) for partition in partitions}
        read = self._session.get_many_synced if synced or self._awaits_claim else self._session.get_many
        nodes, session_id = read(paths.values()), self._session_id()
        return {p: node.data for p, path in paths.items() if (node := nodes[path]) and node.owner_session == session_id}

    def lose_all(self) -> None:
        """Record that the session node is gone: nothing may be committed any more.

        If the session has ended, the owner znodes are gone, too. If only that node was deleted, they still exist; the
        next :meth:`release` checks that, or they would block all other members for as long as this session lives.
        """
        self._hold_nothing()
        self._retained = {}

    def _hold_nothing(self) -> None:
        self._held = {}
        self.releases += 1

    def lose_taken(self) -> list[TopicPartition]:
        """Stop holding partitions whose owner znode is not this session's any more, and return them.

        JVM members delete owner znodes blindly. A lost partition must not be committed: another member consumes it.
        What the read finds decides about a commit to Kafka, which no transaction guards: a server that lags, or has
        lost its leader, would return former owners (adr/0024).
        """
        if not self._held:  # a consumer without a group owns nothing, and can commit to Kafka without ZooKeeper
            return []
        own_nodes = self._data_of_ours(self._held, synced=True)
        kept = {partition: thread for partition, thread in self._held.items() if partition in own_nodes}
        lost = sorted(self._held.keys() - kept.keys())
        if lost:
            self._held = kept
        return lost

    def awaited_release(self, partitions: Iterable[TopicPartition]) -> Callable[[], bool]:
        """A function to call at each wake-up of the signal: True when none of the partitions has an owner.

        The disappearance of an owner wakes the signal and does not raise its flag: it does not change the assignment.
        """
        return self._awaited.begin(self._paths.owner(partition) for partition in partitions)


class _AwaitedRelease:
    """Waits for znodes to disappear; they are read only if a watch has fired since the last time.

    Args:
        session: an open session.
        wake: called on kazoo's thread when the function may return True.
    """

    def __init__(self, session: ZkSession, wake: Watch) -> None:
        self._session = session
        self._wake = wake
        self._fired = threading.Event()
        self._paths: list[str] = []

    def begin(self, paths: Iterable[str]) -> Callable[[], bool]:
        """Wait for these znodes from now on; returns the function to call."""
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
