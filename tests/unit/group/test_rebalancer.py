"""The five steps over a group protocol in memory, with increments and without."""

import logging
from unittest.mock import Mock

import pytest

from tests.fixtures.groupprotocol import Member, StoreInMemory
from zkconsumer.errors import (
    ConsumerClosed,
    GenerationEnded,
    OwnershipConflict,
    RegistrationLost,
    ShareChanged,
    ThreadLimit,
    ZooKeeperUnavailable,
)
from zkconsumer.group.groupprotocol import Held, NoNeed
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.memberstate import MemberState
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.model import Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.dualstore import DualOffsetStore
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture(params=[True, False], ids=["incremental", "all at once"])
def member(request):
    return Member(incremental=request.param)


def test_a_share_is_acquired_and_fetched_from_what_is_stored(member):
    member.store.offsets = {P0: 7}
    member.rebalance(0, 1)
    assert member.group.held.partitions.keys() == {P0, P1}
    assert member.fetch.starts == {P0: 7, P1: 0}
    assert member.group.calls[-1] == "fetched"
    assert member.states[-1] is MemberState.FETCHING


def test_routine_steps_are_logged_for_debugging_only(member, caplog):
    with caplog.at_level(logging.DEBUG, "zkconsumer.group.rebalancer"):
        member.rebalance(0, 1)
    steps = [record.levelno for record in caplog.records if ": step " in record.getMessage()]
    assert len(steps) >= 4
    assert set(steps) == {logging.DEBUG}
    assert any(record.levelno == logging.INFO for record in caplog.records), "that it rebalances, and why"


def test_partitions_are_committed_before_they_are_released(member):
    member.rebalance(0, 1)
    member.fetch.move(p0=5, p1=6)
    member.rebalance(1, 2)
    assert member.offsets()[0] == 5
    assert member.fetch.fetched.keys() == {P1, P2}


def test_with_increments_nothing_is_committed_but_what_is_given_up():
    member, committed = Member(incremental=True), []
    store = member.store.commit
    member.store.commit = lambda offsets, **how: committed.append(dict(offsets)) or store(offsets, **how)
    member.rebalance(0, 1)
    member.fetch.move(p0=5, p1=6)
    member.rebalance(0, 1, 2)
    assert committed == [], "nothing is given up"
    member.rebalance(1, 2)
    assert committed == [{P0: 5}]


def test_what_stays_keeps_its_position(member):
    member.rebalance(0, 1)
    member.fetch.move(p1=6)
    member.rebalance(1, 2)
    assert member.fetch.fetched[P1] == 6


def test_a_topic_that_was_created_again_is_read_from_its_start(member):
    """Neither the position nor what this member has committed counts; the other partition continues."""
    member.store.offsets = {P0: 7}
    member.rebalance(0, 1)
    member.fetch.move(p0=9, p1=6)
    member.group.created_again = frozenset({P0})
    member.rebalance(0, 1)
    assert member.store.offsets[P0] == 7, "the position is not committed"
    assert member.fetch.fetched == {P0: 0, P1: 6}


def test_a_topic_that_is_created_again_while_a_listener_runs_is_read_from_its_start(member):
    """Its offset is deleted with it, as brokers do: nothing but the topic itself shows that the position is no more."""

    class CreatesAgain(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            member.group.created_again, member.store.offsets = frozenset({P0}), {}
            member.rebalancer.listener = None

    member.store.offsets = {P0: 7}
    member.rebalance(0)
    member.fetch.move(p0=9)
    member.rebalancer.listener = CreatesAgain()
    with pytest.raises(ShareChanged):
        member.rebalance(0, 1)
    member.rebalance(0, 1)
    assert member.fetch.fetched == {P0: 0, P1: 0}


def test_a_topic_that_is_created_again_after_the_share_was_computed_is_noticed(member):
    """A query looks for the topics of its checkpoint in those of the share."""
    former, present = TopicIdentity("former", None), TopicIdentity("present", None)
    member.group.topics = {"t": TopicOrigin(present)}
    member.group.topics_of_share = {"t": Topic((0,), former)}
    with pytest.raises(ShareChanged):
        member.rebalance(0)
    member.group.topics_of_share = {"t": Topic((0,), present)}
    member.rebalance(0)


def test_what_was_committed_into_the_new_topic_before_it_was_noticed_may_be_of_the_earlier_one(member, caplog):
    """The former position is beyond the log of the new topic, so fetching has continued at 0."""
    member.store.offsets = {P0: 48}
    member.rebalance(0)
    member.fetch.move(p0=8)
    member.committer.commit_automatically()
    assert member.offsets() == {0: 8}
    member.group.created_again = frozenset({P0})
    member.rebalance(0)
    assert member.fetch.fetched == {P0: 0}
    assert "offsets of t-0 (offset 8) are ignored, since the topic was created again and they may be of" in caplog.text


@pytest.mark.parametrize("noticed", ["not yet", "while it existed", "when it was deleted"])
def test_an_offset_of_a_topic_that_was_created_again_is_not_committed(member, noticed):
    """Records up to 9 were handed out; the user commits some of them after the topic was created again."""
    member.rebalance(0, 1)
    member.fetch.move(p0=9, p1=6)
    if noticed == "when it was deleted":
        member.rebalance(1)
    member.group.created_again = frozenset({P0})
    if noticed != "not yet":
        member.rebalance(0, 1)
    member.committer.commit({P0: 8, P1: 6}, force=False)
    assert member.offsets().get(0) in (None, 9), "at most what was committed before"
    assert member.offsets()[1] == 6
    member.rebalance(0, 1)
    member.fetch.move(p0=8)
    member.committer.commit({P0: 8}, force=False)
    assert member.offsets() == {0: 8, 1: 6}


def test_the_commit_of_a_partition_that_is_not_owned_may_be_forced(member):
    member.rebalance(0)
    member.rebalance(1)
    member.group.created_again = frozenset({P0})
    member.committer.commit({P0: 9}, force=True)
    assert member.offsets()[0] == 9


def test_an_offset_that_another_client_has_stored_counts_in_a_topic_that_was_created_again(member):
    member.store.offsets = {P0: 7}
    member.rebalance(0)
    member.store.offsets = {P0: 3}
    member.group.created_again = frozenset({P0})
    member.rebalance(0)
    assert member.fetch.fetched == {P0: 3}


def test_an_offset_that_is_older_than_its_topic_is_ignored(member, caplog):
    """It was read in another session: this member has neither written nor read it before."""
    former = TopicOrigin(TopicIdentity("new", None))
    member.store.offsets, member.store.written_by = {P0: 7, P1: 6}, {P0: "zkconsumer:1:old", P1: "zkconsumer:2:new"}
    member.group.topics = {"t": former}
    member.rebalance(0, 1)
    assert member.fetch.starts == {P0: 0, P1: 6}
    assert member.rebalancer.assignment.partitions[P0].earliest, "auto.offset.reset does not apply"
    assert "the stored offsets of t-0 (offset 7) are ignored" in caplog.text
    assert member.store.topics == {"t": former}


@pytest.mark.parametrize("rule", ["max", "zookeeper"])
def test_of_two_stores_the_one_with_an_offset_of_the_present_topic_counts(rule):
    """1. Both have an offset of the earlier topic; brokers delete theirs with it; 2. a client commits 5 to Kafka."""
    in_zookeeper, in_kafka = StoreInMemory(), StoreInMemory()
    member = Member(incremental=True, store=DualOffsetStore(in_zookeeper, in_kafka, rule))
    member.group.topics = {"t": TopicOrigin(TopicIdentity("new", 100), 100)}
    in_zookeeper.offsets, in_zookeeper.written_by = {P0: 50, P1: 50}, {P0: 99, P1: 99}
    in_kafka.offsets, in_kafka.written_by = {P0: 5}, {P0: "zkconsumer:2:new"}
    member.rebalance(0, 1)
    assert member.fetch.starts == {P0: 5, P1: 0}
    member.fetch.move(p0=7)
    member.rebalance(0)
    member.rebalance(0, 1)
    assert member.fetch.fetched == {P0: 7, P1: 0}, "what is kept was not moved by another client"


def test_an_offset_that_is_older_than_its_topic_stays_ignored_until_another_is_stored():
    """A query chooses where to start in each generation, also of what it keeps."""
    control = SparkFetchControl(lambda: 0)
    member = Member(incremental=True, fetch=control)
    member.store.offsets, member.store.written_by = {P0: 7}, {P0: "zkconsumer:1:old"}
    member.group.topics = {"t": TopicOrigin(TopicIdentity("new", None))}
    member.rebalance(0)
    member.rebalance(0, 1)
    assert {p: partition.is_outdated for p, partition in control.query.owned.items()} == {P0: True, P1: False}
    member.store.offsets, member.store.written_by = {P0: 7}, {P0: "zkconsumer:2:new"}
    member.rebalance(0)
    assert not control.query.owned[P0].is_outdated


def test_a_commit_by_timer_spares_a_topic_that_was_created_again(member):
    """It would be newer than the topic: the next owner could not recognise it."""
    member.rebalance(0, 1)
    member.fetch.move(p0=9, p1=6)
    member.group.created_again = frozenset({P0})
    assert member.committer.commit_automatically()
    assert member.offsets() == {1: 6}


def test_a_commit_spares_a_topic_that_was_created_again_although_its_position_is_the_stored_one(member):
    """Kafka gets unchanged offsets, too: it would have one for the new topic."""
    member.store.offsets = {P0: 8}
    member.rebalance(0)
    assert member.fetch.fetched == {P0: 8}
    member.group.created_again, member.store.offsets = frozenset({P0}), {}
    member.committer.commit_automatically()
    assert member.offsets() == {}


def test_an_attempt_that_fails_does_not_make_the_former_position_valid(member):
    member.rebalance(0)
    member.fetch.move(p0=9)
    member.group.created_again, member.group.conflicts = frozenset({P0}), True
    with pytest.raises(OwnershipConflict):
        member.rebalance(0, 1)
    member.group.conflicts = False
    member.rebalance(0, 1)
    assert member.fetch.fetched[P0] == 0


def test_an_unchanged_share_costs_no_step(member):
    member.rebalance(0)
    member.rebalance(0)
    assert member.group.calls == []
    assert member.rebalancer.attempts == 1


def test_with_increments_only_what_leaves_is_released():
    member = Member(incremental=True)
    member.rebalance(0, 1)
    started = dict(member.fetch.starts)
    member.fetch.starts.clear()
    member.rebalance(1, 2)
    assert ("release", [0]) in member.group.calls
    assert started == {P0: 0, P1: 0}
    assert member.fetch.starts == {P2: 0}, "partition 1 was never stopped"


def test_without_increments_everything_is_released():
    member = Member(incremental=False)
    member.rebalance(0, 1)
    member.fetch.starts.clear()
    member.rebalance(1, 2)
    assert ("release", [0, 1]) in member.group.calls
    assert member.fetch.starts.keys() == {P1, P2}


def test_the_listener_is_called_for_what_is_given_up():
    member, released = Member(incremental=True), []

    class Listener(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            released.append(set(owned))

    member.rebalancer.listener = Listener()
    member.rebalance(0, 1)
    member.rebalance(1, 2)
    assert released == [set(), {P0}]


def test_a_rebalance_after_the_membership_was_lost_has_the_session_as_its_cause(member, monkeypatch):
    member.rebalance(0)
    member.rebalancer.membership_lost()
    assert member.rebalance(0).cause is RebalanceCause.SESSION
    with monkeypatch.context() as patch:
        patch.setattr(member.group, "next_assignment", Mock(side_effect=RegistrationLost("deleted")))
        assert isinstance(member.rebalancer.rebalance().error, RegistrationLost)
    assert member.rebalance(0).cause is RebalanceCause.SESSION
    member.group.created_again = frozenset({P0})
    assert member.rebalance(0).cause is RebalanceCause.TOPICS


def test_the_outcome_names_the_cause_and_the_step_that_failed(member):
    assert member.rebalance(0).cause is RebalanceCause.START
    assert member.rebalance(0).cause is None
    assert member.rebalance(0, 1).cause is RebalanceCause.MEMBERS

    def refuse(share):
        raise OwnershipConflict({P1: "g_other-0"})

    member.group.claim = refuse
    member.group.command(2)
    outcome = member.rebalancer.rebalance()
    assert isinstance(outcome.error, OwnershipConflict)
    assert (outcome.cause, outcome.step) == (None, MemberState.CLAIMING)
    assert member.fetch.fetched == {}


def test_an_increment_that_cannot_be_claimed_leaves_the_rest_fetched():
    member = Member(incremental=True)
    member.rebalance(0, 1)
    member.group.conflicts = True
    member.group.command(1, 2)
    assert isinstance(member.rebalancer.rebalance().error, OwnershipConflict)
    assert member.group.held.partitions.keys() == member.fetch.fetched.keys() == {P1}
    member.group.conflicts = False
    member.rebalance(1, 2)
    assert member.group.held.partitions.keys() == member.fetch.fetched.keys() == {P1, P2}


def test_an_increment_whose_offsets_cannot_be_read_leaves_the_rest_fetched(monkeypatch):
    member = Member(incremental=True)
    member.rebalance(0, 1)

    def refuse(partitions, kept=()):
        raise ZooKeeperUnavailable("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(member.store, "fetch", refuse)
        member.group.command(1, 2)
        assert isinstance(member.rebalancer.rebalance().error, ZooKeeperUnavailable)
    assert member.group.held.partitions.keys() == member.fetch.fetched.keys() == {P1}


def test_a_partition_that_is_lost_in_step_1_and_claimed_again_begins_at_what_is_stored(monkeypatch):
    """Its owner znode was deleted, and another member has committed it."""
    member = Member(incremental=True)
    member.rebalance(0, 1)
    member.fetch.move(p0=300)

    def lose():
        held = member.group.held.partitions
        member.group.held = Held({p: thread for p, thread in held.items() if p != P0}, member.group.held.releases)
        member.store.offsets[P0] = 313
        monkeypatch.undo()
        return [P0]

    monkeypatch.setattr(member.group, "verify", lose)
    member.rebalance(0, 2)
    assert member.group.held.partitions.keys() == {P0, P2}
    assert member.fetch.starts[P0] == 313
    member.committer.commit_automatically()
    assert member.offsets()[0] == 313


def test_no_old_position_of_a_regained_partition_is_committed():
    """Another member owned the partition between its release and the attempt that gains it again."""
    member = Member(incremental=True)
    member.rebalance(0, 1)
    member.fetch.move(p0=300)
    member.group.conflicts = True
    member.group.command(1, 2)
    assert isinstance(member.rebalancer.rebalance().error, OwnershipConflict)
    member.store.offsets[P0] = 313
    member.group.conflicts = False

    class Listener(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id, assignment):
            member.committer.commit_automatically()

    member.rebalancer.listener = Listener()
    member.rebalance(0, 1)
    assert member.offsets()[0] == 313
    assert member.fetch.starts[P0] == 313


class CommitsBeforeStarting(ConsumerRebalanceListener):
    """Commits these offsets of a member whose fetchers are about to start."""

    def __init__(self, member, offsets):
        self.member, self.offsets = member, offsets

    def before_starting_fetchers(self, consumer_id, assignment):
        self.member.committer.commit(self.offsets, force=False)


def holding_a_batch(*, incremental, before_commit=None):
    """A member whose user holds the records 4 to 9 of partition 0."""
    member = Member(incremental=incremental, before_commit=before_commit, commit_on="next")
    member.rebalance(0, 1)
    member.fetch.advance(P0, 4)
    member.fetch.advance(P0, 6)
    return member


def commit_without_answer(member, offsets, monkeypatch):
    """The store stores them, and the member does not learn that."""
    store = member.store.commit

    def lose_answer(offsets, **how):
        store(offsets, **how)
        raise ZooKeeperUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(member.store, "commit", lose_answer)
        with pytest.raises(ZooKeeperUnavailable):
            member.committer.commit(offsets, force=False)


def test_what_a_listener_commits_is_not_taken_back_by_the_timer(member):
    """The stored offsets were read before the listener was called."""
    member = holding_a_batch(incremental=member.group.incremental)
    member.rebalancer.listener = CommitsBeforeStarting(member, {P0: 10})
    member.rebalance(0, 2)
    assert member.committer.last_known(P0) == 10
    member.committer.commit_automatically()
    assert member.offsets()[0] == 10


def test_what_is_handed_out_and_committed_during_a_listener_counts():
    """Partition 0 is kept, so it continues meanwhile."""
    member = holding_a_batch(incremental=True)

    class Listener(CommitsBeforeStarting):
        def before_starting_fetchers(self, consumer_id, assignment):
            member.fetch.advance(P0, 5)
            super().before_starting_fetchers(consumer_id, assignment)

    member.rebalancer.listener = Listener(member, {P0: 15})
    member.rebalance(0, 2)
    member.committer.commit_automatically()
    assert member.offsets()[0] == 15


def test_what_a_listener_commits_was_not_written_by_another_client(member):
    """Otherwise the batch that the user holds would count as taken away."""
    member = holding_a_batch(incremental=member.group.incremental)
    member.rebalancer.listener = CommitsBeforeStarting(member, {P0: 7})
    started, start = [], member.fetch.start
    member.fetch.start = lambda assignment: started.append(assignment) or start(assignment)
    member.rebalance(0, 2)
    assert not started[0].partitions[P0].moved
    member.rebalancer.listener = None
    member.rebalance(0)
    assert not started[1].partitions[P0].moved


def test_an_explicit_commit_whose_answer_is_lost_is_not_taken_back(monkeypatch):
    member = holding_a_batch(incremental=True)
    commit_without_answer(member, {P0: 10}, monkeypatch)
    member.committer.commit_automatically()
    assert member.offsets()[0] == 10


def test_nothing_is_handed_out_again_after_a_commit_whose_answer_was_lost(member, monkeypatch):
    """The commit of step 1, for example; the rebalance that follows reads what it has stored."""
    member = holding_a_batch(incremental=member.group.incremental)
    commit_without_answer(member, {P0: 4}, monkeypatch)
    started, start = [], member.fetch.start
    member.fetch.start = lambda assignment: started.append(assignment) or start(assignment)
    member.rebalance(0, 2)
    assert (started[-1].partitions[P0].offset, started[-1].partitions[P0].moved) == (10, False)


def test_a_commit_whose_answer_was_lost_is_newer_than_one_in_before_commit(monkeypatch):
    """The older one is made by the timer, the newer one by a stand-in."""
    calls = []

    def before_commit():
        calls.append("before_commit")
        if len(calls) == 1:
            commit_without_answer(member, {P0: 10}, monkeypatch)

    member = holding_a_batch(incremental=True, before_commit=before_commit)
    member.committer.commit_automatically()
    assert member.offsets()[0] == 10


def test_no_old_position_is_committed_after_fetchers_that_did_not_start(member, monkeypatch):
    """Another member owned the partition meanwhile; the attempt that gains it again fails in its last step."""
    member.rebalance(0, 1)
    member.fetch.move(p0=300)
    member.rebalance(1)
    member.store.offsets[P0] = 313
    member.group.command(0, 1)

    def refuse(assignment):
        raise ThreadLimit("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(member.fetch, "start", refuse)
        assert isinstance(member.rebalancer.rebalance().error, ThreadLimit)
        assert P0 not in member.group.held.partitions
    member.committer.commit_automatically()
    member.rebalance(0, 1)
    assert member.fetch.starts[P0] == 313
    member.rebalance(1)
    assert member.offsets()[0] == 313


def test_positions_of_what_stays_are_committed_after_a_failed_increment():
    member = Member(incremental=True)
    member.rebalance(0, 1)
    member.group.conflicts = True
    member.group.command(1, 2)
    member.rebalancer.rebalance()
    member.fetch.move(p1=9)
    member.committer.commit_automatically()
    assert member.offsets()[1] == 9


def test_a_partition_lost_to_another_member_is_fetched_no_more():
    member = Member(incremental=True)
    member.rebalance(0, 1)
    member.group.held = Held({P1: member.group.held.partitions[P1]}, member.group.held.releases)
    member.group.conflicts = True
    assert isinstance(member.rebalancer.rebalance().error, OwnershipConflict)
    assert member.fetch.fetched.keys() == {P1}


def test_a_partition_that_a_commit_found_lost_is_fetched_no_more_if_the_share_is_what_is_left(member):
    """1. A commit by timer drops it, while events settle; 2. the share that is read then does not have it, either."""
    member.rebalance(0, 1)
    member.fetch.move(p1=6)
    member.group.held = Held({P1: member.group.held.partitions[P1]}, member.group.held.releases)
    outcome = member.rebalance(1)
    assert member.fetch.fetched == {P1: 6}
    assert outcome.cause is RebalanceCause.MEMBERS
    member.group.calls.clear()
    assert member.rebalance(1).cause is None
    assert member.group.calls == []


def fail_to_shrink(member, monkeypatch):
    """Partition 1 is given up, and then no offsets can be read: the attempt fails in its last step."""

    def refuse(partitions, kept=()):
        raise ZooKeeperUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(member.store, "fetch", refuse)
        member.group.command(0)
        assert isinstance(member.rebalancer.rebalance().error, ZooKeeperUnavailable)
    assert member.group.held.partitions.keys() == {P0}


def test_an_attempt_that_failed_after_its_release_is_finished_by_the_next(monkeypatch):
    """Also if the member owns exactly its share by then: fetching was stopped for another assignment."""
    member = Member(incremental=True)
    member.rebalance(0, 1)
    member.fetch.move(p1=10)
    fail_to_shrink(member, monkeypatch)
    assert member.rebalancer.rebalance().cause is RebalanceCause.MEMBERS
    assert member.group.calls[-1] == "fetched"
    assert member.rebalancer.assignment.generation == 2
    assert member.rebalancer.assignment.threads.keys() == {P0}
    member.committer.commit(None, force=False)
    assert member.rebalancer.rebalance().cause is None, "unchanged from now on"


def test_a_query_plans_again_after_an_attempt_that_failed(monkeypatch):
    control = SparkFetchControl(lambda: 0)
    member = Member(incremental=True, fetch=control)
    member.rebalance(0, 1)
    fail_to_shrink(member, monkeypatch)
    assert control.await_assignment(0) is None
    member.rebalancer.rebalance()
    assert control.await_assignment(0).owned.keys() == {P0}


def test_a_query_plans_again_after_a_share_that_was_taken_back():
    """A command adds a partition that another member still owns; the next command drops it again."""
    control = SparkFetchControl(lambda: 0)
    member = Member(incremental=True, fetch=control)
    member.rebalance(0)
    member.group.conflicts = True
    member.group.command(0, 1)
    assert isinstance(member.rebalancer.rebalance().error, OwnershipConflict)
    member.group.conflicts = False
    member.rebalance(0)
    assert control.await_assignment(0).owned.keys() == {P0}


def test_a_batch_that_ends_after_a_gain_is_committed_by_the_next_release():
    control = SparkFetchControl(lambda: 0)
    member = Member(incremental=True, fetch=control)
    member.rebalance(0, 1)
    control.update(lambda query: query.planned(1, 1, {P0: Span(0, 100), P1: Span(0, 100)}, None))
    member.rebalance(0, 1, 2)
    control.update(lambda query: query.acknowledged(1))
    member.rebalance(1, 2)
    assert member.offsets()[0] == 100


def test_stored_offsets_are_read_of_what_is_gained_only(monkeypatch):
    """The store knows those of what was kept, and so notices at the next commit what another client has written."""
    member, kept_at = Member(incremental=True), []
    fetch = member.store.fetch
    monkeypatch.setattr(
        member.store, "fetch", lambda partitions, kept=(): kept_at.append(set(kept)) or fetch(partitions)
    )
    member.rebalance(0, 1)
    member.rebalance(1, 2)
    assert kept_at == [set(), {P1}]


def test_positions_of_a_generation_are_refused_for_what_was_released_in_it():
    """Also if the partition is owned again: the attempt that released it failed, so there is no newer generation."""
    member, refused = Member(incremental=True), []
    member.rebalance(0, 1)
    member.rebalancer.require_generation(1, [P0, P1])
    member.group.conflicts = True
    member.group.command(1, 2)
    assert isinstance(member.rebalancer.rebalance().error, OwnershipConflict)
    member.rebalancer.require_generation(1, [P1])
    member.group.conflicts = False

    class Listener(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id, assignment):
            with pytest.raises(GenerationEnded, match="its partitions were released"):
                member.rebalancer.require_generation(1, [P0])
            refused.append(P0)

    member.rebalancer.listener = Listener()
    member.rebalance(0, 1)
    assert refused == [P0]
    with pytest.raises(GenerationEnded, match="the current generation is 2"):
        member.rebalancer.require_generation(1, [P1])


@pytest.mark.parametrize("offsets", [None, {P0: 300}], ids=["positions", "given offsets"])
def test_a_commit_is_refused_if_its_partition_went_and_came_back_in_before_commit(offsets):
    """The commit is made by a stand-in, so that rebalances continue meanwhile."""
    calls = []

    def before_commit():
        calls.append("before_commit")
        if len(calls) == 1:
            member.rebalance(1)
            member.store.offsets = {P0: 400}
            member.group.command(0, 1)
            member.group.claim(member.group.commanded)  # the next rebalance is in its fourth step

    member = Member(incremental=True, before_commit=before_commit, auto_commit_enable=False)
    member.rebalance(0, 1)
    member.fetch.move(p0=300)
    with pytest.raises(GenerationEnded, match="t-0 were released"):
        member.committer.commit(offsets, force=False)
    assert member.offsets()[0] == 400


class Raises(ConsumerRebalanceListener):
    """Raises an error in step 2 or in step 5."""

    def __init__(self, step, error):
        self.step, self.error = step, error

    def before_releasing_partitions(self, partition_ownership):
        if self.step == 2:
            raise self.error

    def before_starting_fetchers(self, consumer_id, global_partition_assignment):
        if self.step == 5:
            raise self.error


@pytest.mark.parametrize("step", [2, 5])
def test_a_listener_that_raises_keeps_no_partition_from_other_members(member, step):
    member.rebalance(0, 1)
    member.rebalancer.listener = Raises(step, ValueError("of the listener"))
    with pytest.raises(ValueError, match="of the listener"):
        member.rebalance(1, 2)
    assert member.group.held.partitions.keys() == member.fetch.fetched.keys()
    assert P0 not in member.group.held.partitions


@pytest.mark.parametrize("incremental", [True, False])
def test_no_listener_is_called_after_the_consumer_was_closed_in_before_commit(incremental):
    """What calls user code raises that when it has returned, unlike user code that uses a closed consumer."""

    def closed():
        raise ConsumerClosed("while user code ran")

    member = Member(incremental=incremental)
    member.committer._before_commit = closed
    member.rebalance(0, 1)
    member.fetch.move(p0=5)
    member.rebalancer.listener = Raises(2, AssertionError("called"))
    with pytest.raises(ConsumerClosed):
        member.rebalance(1, 2)


class Commits(ConsumerRebalanceListener):
    """Commits what was handed out, or given offsets, before a release; the first commit fails."""

    def __init__(self, member, offsets):
        self.member, self.offsets, self.failures = member, offsets, [ZooKeeperUnavailable("no answer")]

    def before_releasing_partitions(self, partition_ownership):
        if self.failures:
            raise self.failures.pop()
        self.member.committer.commit(self.offsets, force=False, by_listener=True)


@pytest.mark.parametrize("offsets", [None, {P0: 5}], ids=["everything", "what it names"])
def test_a_listener_that_fails_once_and_commits_is_not_stuck(offsets):
    member = Member(incremental=True, auto_commit_enable=False)
    member.rebalance(0, 1)
    member.fetch.move(p0=5, p1=6)
    member.rebalancer.listener = Commits(member, offsets)
    with pytest.raises(ZooKeeperUnavailable):
        member.rebalance(1, 2)
    member.rebalance(1, 2)
    assert member.fetch.fetched.keys() == {P1, P2}


def test_what_was_handed_out_of_the_present_topic_is_committed_after_a_commit_that_failed(monkeypatch):
    """1. A partition starts at the beginning; 2. the commit before its release fails; 3. it starts there again."""
    member = Member(incremental=False)
    member.store.offsets, member.store.written_by = {P0: 7}, {P0: 1}
    member.group.topics = {"t": TopicOrigin(TopicIdentity(5, None), 4)}
    member.rebalance(0)
    assert member.fetch.starts[P0] == 0
    member.fetch.move(p0=20)
    with monkeypatch.context() as patch:
        patch.setattr(member.store, "commit", Mock(side_effect=ZooKeeperUnavailable("no answer")))
        member.rebalance(0, 1)
    member.committer.commit({P0: 20}, force=False)
    assert member.offsets()[0] == 20


def test_a_lost_partition_is_stopped_also_while_there_are_no_brokers(monkeypatch):
    """1. A commit by timer finds that another member owns it; 2. the attempt that follows finds no broker."""
    member = Member(incremental=False)
    member.rebalance(0, 1)
    held = member.group.held
    kept = {partition: thread for partition, thread in held.partitions.items() if partition.partition == 1}
    member.group.held = held._replace(partitions=kept)
    monkeypatch.setattr(member.group, "next_assignment", lambda **_: NoNeed.NO_BROKERS)
    for _ in range(2):
        assert member.rebalancer.rebalance().error is None
        assert member.fetch.fetched.keys() == kept.keys()
