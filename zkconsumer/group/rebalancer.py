"""Rebalancer: the five steps by which a member gets its share of the group's partitions (jvm-consumer.md#attempt).

Everything here runs on the member's rebalance thread, which alone writes the attributes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    ConsumerClosed,
    GenerationEnded,
    MalformedZnode,
    MembershipLost,
    RegistrationLost,
    ShareChanged,
    ZkConsumerError,
    name_some,
)
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment, FetchControl
from zkconsumer.group.committer import OffsetCommitter, warn_of_release_without_commit
from zkconsumer.group.groupprotocol import GroupProtocol, NextAssignment, NoNeed, Target
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.group.rules.memberstate import MemberState, step_name
from zkconsumer.group.rules.ownedpartitions import OwnedPartition, OwnershipState
from zkconsumer.group.rules.rebalancetimes import RebalanceCause, rebalance_cause
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, is_same_write
from zkconsumer.offsets.rules.topicorigins import TopicOrigin

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")

NOTHING = FetchAssignment(generation=0, partitions={})
"""The assignment of a member that owns nothing yet."""


class Outcome(NamedTuple):
    """How an attempt ended.

    Attributes:
        cause: why the rebalance was necessary; None if it was not, or if it failed.
        error: what stopped it; None if it succeeded. What the listener raised is a :class:`.UserCodeFailed`.
        step: the step that failed, or the last one; None if it failed before the first, while the group was read.
    """

    cause: RebalanceCause | None = None
    error: Exception | None = None
    step: MemberState | None = None


class Rebalancer:
    """Runs rebalance attempts for one member.

    Args:
        config: the consumer's properties.
        consumer_id: id of the member.
        protocol: the group protocol.
        committer: commits and fetches the member's offsets.
        fetch: the data plane.
        enter_state: records the state that the member is in now.

    Attributes:
        assignment: what is being fetched; replaced, never changed.
        attempts: attempts so far, except those that found nothing to do.
        listener: called before releases and starts.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        protocol: GroupProtocol,
        committer: OffsetCommitter,
        fetch: FetchControl,
        enter_state: Callable[[MemberState], None],
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._protocol = protocol
        self._committer = committer
        self._fetch = fetch
        self.enter_state = enter_state
        self.assignment = NOTHING
        self._step: MemberState | None = None
        self.attempts = 0
        self.listener: ConsumerRebalanceListener | None = None
        self._is_started = self._joined_again = False

    def rebalance(self) -> Outcome:
        """One attempt. If it fails, nothing but what was kept is owned afterwards, unless the session is down."""
        self._step, error, cause = None, None, None
        try:
            cause = self._rebalance()
        except Exception as caught:  # noqa: BLE001 - a listener may raise anything
            error = caught
        return Outcome(cause, error, self._step)

    def _rebalance(self) -> RebalanceCause | None:
        """Returns why the rebalance was necessary; None if it was not."""
        self.enter_state(MemberState.READING_GROUP)
        try:
            following = self._next_assignment()
        except RegistrationLost:
            self._joined_again = True
            self._stop_handing_out(drain=False)
            self._release_all_but(frozenset())  # where nothing of the registration is left, this finds the session lost
            raise
        if following is NoNeed.NO_BROKERS:
            self._stop_what_was_lost()
            _log.warning("group %s: %s", self._config.group_id, _no_brokers(self._config))
            self.enter_state(MemberState.FETCHING if self._is_started else MemberState.WAITING_FOR_BROKERS)
            return None
        if following is NoNeed.UNCHANGED:
            self.enter_state(MemberState.FETCHING)
            return None
        cause = rebalance_cause(
            following.change,
            is_first=self.assignment is NOTHING,
            joined_again=self._joined_again,
            has_recreated=bool(following.recreated),
        )
        self.attempts += 1
        _log.info(
            "group %s consumer %s rebalance %d (%s): %s",
            self._config.group_id,
            self._consumer_id,
            self.attempts,
            cause.value,
            following.changes,
        )
        self._committer.owned().renew(following.recreated)
        with self._committer.releasing():
            self._stop_fetchers(following)  # 1
            self._release_ownership(following)  # 2
        target = self._reassign(following)  # 3
        self._claim_ownership(target.share)  # 4
        self._restart_fetchers(target, following)  # 5
        self._protocol.fetched()
        self._joined_again = False
        return cause

    def _next_assignment(self) -> NextAssignment | NoNeed:
        """Whether to rebalance; not if exactly the share is fetched already and the group confirms its ownership."""
        following = self._protocol.next_assignment(fetching=self._fetches_only_held())
        if following is not NoNeed.UNCHANGED:
            return following
        if not self._committer.verify_ownership():
            return self._protocol.next_assignment(fetching=True, renew=True)
        unreadable = self.with_unreadable_offset()
        if unreadable and self._committer.store.fetch(
            unreadable, again=True
        ):  # an unreadable offset may have been repaired
            return self._protocol.next_assignment(fetching=True, renew=True)
        return following

    def _stop_what_was_lost(self) -> None:
        """Stop handing out what is not held any more, in an attempt that changes nothing else."""
        if lost := self.assignment.threads.keys() - self._protocol.held.partitions.keys():
            self._is_started = False
            self._fetch.release(lost, drain=False)

    def _fetches_only_held(self) -> bool:
        """False if step 1 has stopped something since the last start, or if something is fetched that is not held.

        1. A commit by timer finds that another member owns a partition, and the protocol drops it; 2. the share does
        not have it, either: it is what is held, and the fetcher of that partition still has to be stopped.
        """
        return self._is_started and self.assignment.threads.keys() <= self._protocol.held.partitions.keys()

    # -- the five steps ---------------------------------------------------------------------------------------------

    def _stop_fetchers(self, following: NextAssignment) -> None:
        """Stop handing out what is given up, then commit it, so that a new owner continues there.

        What stays is committed by the timer: a rebalance that takes nothing from this member costs no request, and does
        not call ``before_commit``.
        """
        self._enter(MemberState.STOPPING)
        # From here on the share is not fetched as assigned, whatever is kept: if a step fails, and the next command is
        # what is held by then, that attempt still has to start what this one stopped.
        self._is_started = False
        given_up = self._fetched_but(following.kept)
        if following.kept:
            self._fetch.release(given_up)
        else:
            self._stop_handing_out(drain=True)
        if self._config.auto_commit_enable and (given_up or not following.kept):
            try:
                self._committer.commit_automatically(given_up)
            except (MembershipLost, ConsumerClosed):
                raise
            except ZkConsumerError as error:
                warn_of_release_without_commit(self._config.group_id, error)

    def _fetched_but(self, kept: Set[TopicPartition]) -> Set[TopicPartition]:
        """What is fetched and not kept: what is revoked, and what was lost to another member."""
        return self.assignment.threads.keys() - kept

    def _release_ownership(self, following: NextAssignment) -> None:
        """Call the listener, then release revoked partitions; those to be claimed again at once may be retained."""
        self._enter(MemberState.RELEASING)
        try:
            if self.listener is not None:
                self.listener.before_releasing_partitions(frozenset(self._protocol.held.partitions) - following.kept)
        except ConsumerClosed:  # another thread has ended this membership
            raise
        except Exception:
            self._revoke(following)  # step 1 has committed them; kept, they would be read by nobody
            self._release_all_but(following.kept)
            raise
        self._revoke(following)
        # If the listener took long, step 3 may find another share; step 4 gives up what is retained and not in it.
        self._protocol.release(following.revoked, following.share)

    def _revoke(self, following: NextAssignment) -> None:
        self._committer.owned().revoke(self._fetched_but(following.kept) | following.revoked)

    def _reassign(self, following: NextAssignment) -> Target:
        """Compute this member's share, now that the group has its final state of what this member owns."""
        self._enter(MemberState.ASSIGNING)
        try:
            return self._protocol.reassign(with_topics=self._fetch.needs_topics)
        except Exception:
            self._release_all_but(following.kept)  # also what was retained
            raise

    def _claim_ownership(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Claim the share, all or nothing."""
        self._enter(MemberState.CLAIMING)
        self._protocol.claim(share)

    def _restart_fetchers(self, target: Target, following: NextAssignment) -> None:
        """Read offsets, which are final only now that former owners have released, and start to fetch."""
        self._enter(MemberState.STARTING)
        share = target.share
        fetched = following.kept & self.assignment.threads.keys()
        owned = self._committer.owned()
        kept = {partition for partition in fetched if owned[partition].state is OwnershipState.FETCHED}
        # 1. The commit of step 1 finds that a kept partition was taken: another member has committed it; 2. the share
        # still has it, and step 4 claims it again. It begins at what is stored, as one that was gained.
        if lost := fetched - kept:
            self._fetch.release(lost, drain=False)
        try:
            partitions = self._start(target, kept, following.recreated)
            self._fetch_next(FetchAssignment(self.assignment.generation + 1, partitions, target.topics), kept)
        except Exception:
            self._release_all_but(following.kept)
            raise
        self._is_started = True
        self.enter_state(MemberState.FETCHING)
        _events.info(
            "group %s: %s %s, generation %d, owns %s",
            self._config.group_id,
            "joined as" if self.assignment.generation == 1 else "rebalanced:",
            self._consumer_id,
            self.assignment.generation,
            format_partitions(share) or "nothing",
        )

    def _release_all_but(self, kept: Set[TopicPartition]) -> None:
        """Undo a claim; ``kept`` is fetched all the time, so it stays owned."""
        self._protocol.release(self._protocol.held.partitions.keys() - kept)

    def start_without_group(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Fetch partitions without a group; for a member that never joins."""
        thread, store = ConsumerThreadId(self._consumer_id, 0), self._committer.store
        self._committer.without_group = dict.fromkeys(partitions, thread)
        records = self._committer.read(partitions.keys())
        by_stored_offset = [record for record in records if partitions[record.partition] is None]
        topics = self._consume(records, records)
        assigned = self._assign(records, self._of_former_topics(by_stored_offset, topics, frozenset()))
        for partition, offset in partitions.items():
            if offset is not None:
                assigned[partition] = assigned.get(partition, AssignedPartition(thread))._replace(offset=offset)
            elif partition in store.refused():
                raise store.refused()[partition]
            elif partition not in assigned:
                raise MalformedZnode(store.location(partition), "no offset can be read; repair it first")
        self._fetch_next(FetchAssignment(self.assignment.generation + 1, assigned))
        self._protocol.fetched()
        self.enter_state(MemberState.FETCHING)

    def require_generation(self, generation: int, partitions: Collection[TopicPartition]) -> None:
        """Refuse positions that were read in an assignment which has been replaced, or is being replaced.

        Otherwise: 1. positions are read in generation 5; 2. two rebalances take a partition away and bring it back,
        and another member has committed it meanwhile; 3. the commit of step 1 finds the partition owned, and moves
        its offset back. The first of the two may have failed, so the generation alone does not show it.

        Raises:
            GenerationEnded: there is a newer assignment than ``generation``, or one of the partitions is not fetched
                now: it was released or lost, or its offset cannot be read.
        """
        current = self.assignment.generation
        owned = self._committer.owned()
        if generation == current and all(owned[partition].state is OwnershipState.FETCHED for partition in partitions):
            return
        why = f"the current generation is {current}" if generation != current else "its partitions were released"
        raise GenerationEnded(
            f"group {self._config.group_id}: offsets of generation {generation} are not committed, since {why}; "
            "read the positions again"
        )

    # -- what the steps need ----------------------------------------------------------------------------------------

    def membership_lost(self) -> None:
        """The group has removed this member: stop handing out, own nothing, keep positions."""
        self._joined_again = True
        self._stop_handing_out(drain=False)
        self._protocol.lose()

    def _stop_handing_out(self, *, drain: bool) -> None:
        self._is_started = False
        self._fetch.stop(drain=drain)

    def with_unreadable_offset(self) -> Set[TopicPartition]:
        """Partitions that are owned and not fetched, since their stored offset could not be read."""
        return self._protocol.held.partitions.keys() - self.assignment.threads.keys()

    def _fetch_next(self, assignment: FetchAssignment, kept: Collection[TopicPartition] = ()) -> None:
        """Replace the assignment; if fetching cannot start, nothing has changed."""
        positions = self._fetch.positions(handed_out=True)
        self._fetch.start(assignment)
        self.assignment = assignment
        self._committer.owned().start(assignment, kept, positions)

    def _start(
        self, target: Target, kept: Set[TopicPartition], recreated: Set[TopicPartition]
    ) -> dict[TopicPartition, AssignedPartition]:
        """Where each partition of the share starts; those whose stored offset cannot be read are absent."""
        records = self._committer.read(target.share.keys(), kept)
        gained = [record for record in records if record.partition not in kept]
        topics = self._consume(gained, records, recreated)
        for name in topics.keys() & target.topics.keys():
            # A query looks for the topics of its checkpoint among those of the share.
            if not topics[name].identity.is_same_topic(target.topics[name].identity):
                raise ShareChanged(f"topic {name} was created again during the attempt")
        outdated = self._of_former_topics(gained, topics, recreated) | self._still_outdated(records, kept)
        # What another client wrote is noted before a listener commits.
        assigned = self._assign(records, outdated)
        if self.listener is not None:
            chosen = self.listener.before_starting_fetchers(self._consumer_id, dict(target.assignment)) or {}
            for partition in chosen.keys() & assigned.keys():
                assigned[partition] = assigned[partition]._replace(offset=chosen[partition])
        for partition, error in self._committer.store.refused().items():
            if partition in target.share:
                assigned[partition] = AssignedPartition(target.share[partition], error=error)
        return assigned

    def _assign(
        self, records: Iterable[OwnedPartition], outdated: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, AssignedPartition]:
        """Where each of these partitions, whose stored offsets were read, starts without a listener."""
        positions, location = self._fetch.positions(handed_out=True), self._committer.store.location
        return {
            record.partition: record.assign(
                positions.get(record.partition), location(record.partition), outdated=record.partition in outdated
            )
            for record in records
        }

    def _consume(
        self,
        gained: Iterable[OwnedPartition],
        records: Iterable[OwnedPartition],
        recreated: Iterable[TopicPartition] = (),
    ) -> Mapping[str, TopicOrigin]:
        """Begin to consume the topics of gained partitions; ``records`` are all that were read."""
        topics = self._protocol.consume(
            {record.partition.topic for record in gained}, {partition.topic for partition in recreated}
        )
        self._committer.consume(topics, records)
        return topics

    def _of_former_topics(
        self, gained: Iterable[OwnedPartition], topics: Mapping[str, TopicOrigin], recreated: Set[TopicPartition]
    ) -> Set[TopicPartition]:
        """Gained partitions whose stored offset was written for an earlier topic of the same name."""
        former: dict[TopicPartition, int | None] = {
            record.partition: record.read and record.read.offset
            for record in gained
            if record.is_outdated(topics.get(record.partition.topic), recreated=record.partition in recreated)
        }
        ignored = [f"{partition} (offset {n})" for partition, n in sorted(former.items()) if n is not None]
        if ignored:
            _log.warning(
                "group %s: the stored offsets of %s are ignored, since the topic was created again and they may be of "
                "the earlier one; these partitions start at the beginning of their logs",
                self._config.group_id,
                name_some(ignored),
            )
        return former.keys()

    def _still_outdated(self, records: Iterable[OwnedPartition], kept: Set[TopicPartition]) -> set[TopicPartition]:
        """Kept partitions whose stored offset was one of an earlier topic, and has not been written since."""
        before = self.assignment.partitions
        return {
            p
            for record in records
            if (p := record.partition) in kept and before[p].outdated
            if is_same_write(record.read or NO_OFFSET, before[p].stored)
        }

    def _enter(self, step: MemberState) -> None:
        self._step = step
        self.enter_state(step)
        _log.debug(
            "group %s consumer %s rebalance %d: step %s",
            self._config.group_id,
            self._consumer_id,
            self.attempts,
            step_name(step),
        )


def _no_brokers(config: ConsumerConfig) -> str:
    if config.bootstrap_servers is not None:
        return "no broker of bootstrap.servers answers, waiting for one; check that brokers run, and security.protocol"
    return (
        "no broker that this consumer can use is registered in ZooKeeper, waiting for one; check that brokers run, "
        "security.protocol, and the chroot of zookeeper.connect"
    )
