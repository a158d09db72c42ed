"""EpochMember: the state of one member of a group in which the broker assigns (KIP-848, adr/0022).

A pure state machine. Two threads report events to it: the rebalance thread acquires and releases partitions, the
session thread sends heartbeats and receives their answers.

The coordinator sends a member its target, and gives a partition to another member as soon as a heartbeat of its present
owner reports *owned* partitions without it. So two rules keep two members from owning a partition:

- A heartbeat reports what the rebalance thread holds, until it has released it and committed its position.
- What a heartbeat reported limits what may be acquired until it is answered: the target may have changed meanwhile, and
  the coordinator counts what was not reported as released.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.kafka.rules.groupmembership import GroupMembership, MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity

JOINING: Final = 0
"""Member epoch of a heartbeat that joins."""
LEAVING: Final = -1
"""Member epoch of a heartbeat that leaves."""
LEAVING_FOR_A_WHILE: Final = -2
"""Member epoch of a heartbeat with which a static member leaves, whose partitions wait for its return."""


class IdPartition(NamedTuple):
    """A partition of the topic with this id; a topic that is created again has another id."""

    topic_id: str
    partition: int


class EpochBeat(NamedTuple):
    """What a heartbeat reports. Fields that have not changed since the last answered one are None.

    Attributes:
        member: member id, member epoch and ``group.instance.id``.
        full: True if the coordinator may not know any of the fields, or not the newest.
        topics: names of the subscribed topics.
        owned: what the member holds.
        regex: by which the coordinator selects further topics; empty if it selects none.
    """

    member: CommitIdentity
    full: bool
    topics: tuple[str, ...] | None
    owned: frozenset[IdPartition] | None
    regex: str | None = None


class _Reported(NamedTuple):
    topics: tuple[str, ...]
    owned: frozenset[IdPartition]
    regex: str


@dataclass
class EpochMember(GroupMembership):
    """One member's state, which is REBALANCING until the first answer; for more see :class:`GroupMembership`.

    Attributes:
        epoch: member epoch of the last answer; 0 before.
        target: what the last assignment gives to this member; None before the first.
    """

    epoch: int = JOINING
    target: frozenset[IdPartition] | None = None
    _held_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    _names: Mapping[str, str] = field(default_factory=dict)
    _known: _Reported | None = None
    _sent: _Reported | None = None  # by the newest heartbeat; None if that one was of a former membership
    _limit: frozenset[IdPartition] | None = None
    _revoked: bool = False

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def lose(self) -> None:
        """The rebalance thread has stopped using everything: join again, with the same id."""
        super().lose()
        self._held_ids = {}
        self.epoch, self.target = JOINING, None
        self._known = self._limit = self._sent = None
        self._revoked = False

    def release(self, partitions: Collection[TopicPartition]) -> bool:
        """The rebalance thread does not use these any more; returns True if it holds nothing now."""
        empty = super().release(partitions)
        self._held_ids = {
            partition: topic_id for partition, topic_id in self._held_ids.items() if partition in self.held
        }
        return empty

    def acquire(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> bool:
        """Hold exactly this share; False if it is not this member's any more."""
        usable = self._usable()
        if usable is None or not self._may_hold(share):
            return False
        if any(self._held_ids.get(partition, usable[partition]) != usable[partition] for partition in share):
            return False  # held of a topic that was deleted, and has to be released first
        self.held, self._held_ids = dict(share), {partition: usable[partition] for partition in share}
        return True

    # -- the session thread -----------------------------------------------------------------------------------------

    def is_urgent(self) -> bool:
        """True if the next heartbeat must not wait for its time: the member has to join, or others wait for it."""
        return self.state is MembershipState.REBALANCING or self.must_report()

    def take_topics_change(self) -> bool:
        """The same as of any member, and True while the member joins, or a topic of the target has no name yet."""
        changed = super().take_topics_change()
        return changed or self.state is MembershipState.REBALANCING or self.has_unnamed()

    def name_topics(self, ids: Mapping[str, str]) -> None:
        """The brokers have described topics.

        It is news if partitions may be used now that could not be used before, or the other way round.

        Args:
            ids: name to topic id of those that exist.
        """
        before = self.usable()
        # A broker may not know yet, or any more, a topic that is assigned; a name leads to its newest topic only.
        kept = {topic_id: name for topic_id, name in self._names.items() if name not in ids}
        self._names = {**kept, **{topic_id: name for name, topic_id in ids.items()}}
        self.has_news |= self.usable() != before

    def has_unnamed(self) -> bool:
        """True if the target has partitions of topics that no broker has described yet."""
        return any(partition.topic_id not in self._names for partition in self.target or ())

    def beat(self, topics: tuple[str, ...], regex: str = "") -> EpochBeat | None:
        """A heartbeat is about to be sent; None outside of the group.

        Args:
            topics: names of the subscribed topics.
            regex: that selects these topics, and those that are created later; empty if the member selects them.
        """
        if not self.takes_part:
            return None
        known = self._known
        if known is not None and regex == known.regex != "":
            topics = known.topics  # the coordinator adds further ones
        self._sent, self._is_known = _Reported(topics, self._owned(), regex), True
        new_topics = known is None or known.topics != topics
        new_owned = known is None or known.owned != self._sent.owned or self.must_report()
        if new_owned:
            self._limit = self._sent.owned
        return EpochBeat(
            CommitIdentity(self.member_id, self.epoch, self.instance_id),
            known is None,
            topics if new_topics else None,
            self._sent.owned if new_owned else None,
            regex if known is None or known.regex != regex else None,
        )

    def answered(self, beat: EpochBeat, epoch: int, target: frozenset[IdPartition] | None, sent: float) -> bool:
        """A heartbeat was answered without error.

        Args:
            beat: what the heartbeat reported.
            epoch: member epoch of the answer.
            target: the assignment of the answer; None if it is the last one still.
            sent: reading of the clock when the heartbeat was sent.

        Returns:
            False if it is about an earlier membership, and means nothing.
        """
        self.failure = None
        if not self.takes_part or self._sent is None:
            return False
        self.state, self.epoch = MembershipState.STABLE, epoch
        self._known, self._limit = self._sent, None
        before = self.target or frozenset()
        if beat.owned is not None and beat.owned <= before:
            self._revoked = False
        if target is not None or self.target is None:
            self.target = target or frozenset()
            self._revoked = self._revoked or not before <= self.target
        # A member that does not release what it has to within the rebalance timeout is removed. That time begins when
        # the coordinator processes the heartbeat whose answer revokes, which may be lost at first.
        self.lease = self.lease.in_rebalance(sent) if self.revokes else self.lease.confirmed(sent)
        self.views += target is not None
        self.topics_changed |= self.has_unnamed()
        self.has_news |= target is not None or beat.owned is not None
        return True

    def refused(self, *, keeps_id: bool, stopped: ZkConsumerError | None = None) -> bool:
        """The newest heartbeat was answered with an error by which the coordinator has removed the member.

        Args:
            keeps_id: see :meth:`fence`.
            stopped: as above.

        Returns:
            False if it is about an earlier membership, and means nothing.
        """
        return self._end(keeps_id=keeps_id, stopped=stopped, is_present=self._sent is not None)

    def failed(self, error: ZkConsumerError) -> None:
        """A heartbeat has failed: if it was to join, the rebalance thread waits for the outcome."""
        super().failed(error)
        self.unanswered()
        self.has_news |= not self.in_group

    def session_timeout_read(self, session_s: float) -> None:
        """The coordinator's session timeout was read, in seconds."""
        self.lease = replace(self.lease, session_s=session_s)

    def interval_read(self, heartbeat_s: float) -> None:
        """The coordinator's answer says how long to wait from one heartbeat to the next, in seconds."""
        self.lease = replace(self.lease, heartbeat_s=heartbeat_s)

    def unanswered(self) -> None:
        """A heartbeat was not answered, or with an error: the coordinator may have processed it, or know nothing."""
        self._known = None

    def must_report(self) -> bool:
        """True if others may wait for a heartbeat: the member holds nothing any more that was revoked.

        Also if it never held it: the coordinator waits for a report in any case.
        """
        if not self._revoked or self.target is None or self.state is not MembershipState.STABLE:
            return False
        return self._owned() <= self.target

    @property
    def revokes(self) -> bool:
        """True from an answer that revokes partitions until the answer to the report that they were released."""
        return self._revoked

    def _owned(self) -> frozenset[IdPartition]:
        return frozenset(IdPartition(self._held_ids[partition], partition.partition) for partition in self.held)

    # -- any thread -------------------------------------------------------------------------------------------------

    def must_release(self) -> bool:
        """False: nothing has to be released before the target is known."""
        return False

    def usable(self) -> frozenset[TopicPartition] | None:
        """What this member may own now; None while it has to wait for an assignment."""
        usable = self._usable()
        return None if usable is None else frozenset(usable)

    def _usable(self) -> dict[TopicPartition, str] | None:
        """The same with topic ids."""
        if self.target is None:
            return None
        allowed = self.target if self._limit is None else self.target & self._limit
        return {
            TopicPartition(self._names[partition.topic_id], partition.partition): partition.topic_id
            for partition in allowed
            if partition.topic_id in self._names
        }

    def topic_ids(self) -> dict[str, str]:
        """Topic to its id; that of a held partition is the id with which it was assigned."""
        known = {name: topic_id for topic_id, name in self._names.items()}
        return known | {partition.topic: topic_id for partition, topic_id in self._held_ids.items()}

    def _last_identity(self) -> CommitIdentity | None:
        """See :meth:`GroupMembership._last_identity`. The partitions of a static member wait for it for a while."""
        epoch = LEAVING if self.instance_id is None else LEAVING_FOR_A_WHILE
        return CommitIdentity(self.member_id, epoch, self.instance_id) if self._is_known else None

    @property
    def identity(self) -> CommitIdentity:
        """What commits name."""
        if self.epoch <= JOINING:
            return NO_MEMBER
        return CommitIdentity(self.member_id, self.epoch, self.instance_id)
