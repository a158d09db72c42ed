"""The state of a query, with values alone: which states follow which, and what may be planned and committed in each."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from zkconsumer.errors import GenerationEnded
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, Stamp, Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST, AtTime, Located, Loss
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.positions import Choice, Reason
from zkconsumer.spark.rules.queryrecords import (
    BATCH_TRANSITIONS,
    PARTITION_TRANSITIONS,
    Batch,
    BatchState,
    QueryPartition,
    QueryPartitionState,
)
from zkconsumer.spark.rules.querystate import QueryState
from zkconsumer.spark.rules.sourceoffset import KnownTopic, SourceOffset

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
THREAD = ConsumerThreadId("g_c", 0)
STAMP = Stamp("q", 7)
AT_5 = Choice(5, Reason.GROUP)


def assignment(generation, *partitions, stored=MappingProxyType({})):
    return FetchAssignment(generation, {p: AssignedPartition(THREAD, 5, stored.get(p, NO_OFFSET)) for p in partitions})


def owning(*partitions):
    """The state after the first rebalance, with positions at 5 that are committed."""
    query = QueryState().assigned(assignment(1, *partitions)).chosen(1, dict.fromkeys(partitions, AT_5), set())
    query = query.located(1, Located(dict.fromkeys(partitions, 5), {}))
    return query.may_commit(1, dict.fromkeys(partitions, 5), None)


def rebalanced(query, released, *partitions):
    return query.releasing(released).assigned(assignment(query.generation + 1, *partitions))


def finished(spans, number=9):
    return SourceOffset("g", number, {"t": KnownTopic(3, "id")}, spans)


# -- a partition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", QueryPartitionState)
def test_a_partition_enters_the_states_of_the_table(state):
    partition = QueryPartition(state)
    entered = {following for following in QueryPartitionState if partition.enter(following) is not partition}
    assert entered == PARTITION_TRANSITIONS[state]


@pytest.mark.parametrize("state", QueryPartitionState)
def test_events_change_a_partition_as_the_table_has_it(state):
    query = owning(T0)
    before = query.partitions[T0]
    query = replace(query, partitions={T0: before._replace(state=state)})
    after = [
        query.assigned(assignment(2, T0)),
        query.assigned(assignment(2)),
        query.releasing([T0]),
        query.chosen(1, {T0: AT_5}, set()),
        query.located(1, Located({T0: 5}, {})),
        query.located(1, Located({T0: 5}, {T0: Loss(4, 5, 9)})),
        query.planned(1, 7, {T0: Span(5, 9)}, STAMP),
    ]
    assert {following.partitions[T0].state for following in after} - {state} == PARTITION_TRANSITIONS[state] - {state}


@pytest.mark.parametrize("place", [LATEST, AtTime(5, or_latest=True)])
def test_a_start_that_changes_over_time_is_unrecorded(place):
    located = QueryPartition(QueryPartitionState.CHOSEN, choice=Choice(place, Reason.OPTION)).located(5, moved=False)
    assert located.state is QueryPartitionState.UNRECORDED
    assert located.located(5, moved=False).state is QueryPartitionState.UNRECORDED, "until a plan records it"
    assert located.enter(QueryPartitionState.LOCATED).located(5, moved=False).state is QueryPartitionState.LOCATED


@pytest.mark.parametrize("place", [EARLIEST, 5])
def test_a_start_that_a_restart_finds_again_is_located(place):
    partition = QueryPartition(QueryPartitionState.CHOSEN, choice=Choice(place, Reason.APPEARED))
    assert partition.located(5, moved=False).state is QueryPartitionState.LOCATED
    assert partition.located(5, moved=True).state is QueryPartitionState.UNRECORDED


# -- a batch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", BatchState)
def test_a_batch_enters_the_states_of_the_table(state):
    batch = Batch(state, 7, {}, 1)
    entered = {following for following in BatchState if batch.enter(following).state is not state}
    assert entered == BATCH_TRANSITIONS[state]
    assert batch.is_over == (not entered)


def test_a_batch_is_planned_then_in_flight_then_finished():
    query = owning(T0).planned(1, 7, {T0: Span(5, 9)}, STAMP)
    assert (query.batch.state, query.positions) == (BatchState.PLANNED, {T0: 9})
    query = query.begun(7, {T0: 9})
    assert query.batch.state is BatchState.IN_FLIGHT
    assert query.has_planned(7)
    query = query.finished(7)
    assert (query.batch.state, query.committable, query.stamp) == (BatchState.FINISHED, {T0: 9}, STAMP)
    assert query.begun(7, {T0: 9}) == query, "its tasks may be requested again"


def test_a_batch_in_flight_is_not_committable():
    query = owning(T0).planned(1, 7, {T0: Span(5, 9)}, STAMP)
    assert (query.committable, query.stamp) == ({T0: 5}, None)


def test_a_batch_that_spark_does_not_report_is_discarded():
    query = owning(T0).planned(1, 7, {T0: Span(5, 9)}, STAMP).finished(6)
    assert (query.batch.state, query.committable) == (BatchState.DISCARDED, {T0: 5})


def test_the_batch_of_a_query_that_ends_is_discarded():
    query = owning(T0).planned(1, 7, {T0: Span(5, 9)}, STAMP).abandoned()
    assert (query.batch.state, query.committable) == (BatchState.DISCARDED, {T0: 5})
    assert not query.awaited([T0])


def test_an_acknowledged_batch_is_finished_once():
    query = owning(T0, T1).planned(1, 7, {T0: Span(5, 9)}, STAMP)
    assert query.acknowledged(6) is query, "the previous batch"
    query = query.acknowledged(7)
    assert (query.committable, query.stamp) == ({T0: 9, T1: 5}, STAMP)
    assert query.acknowledged(7) is query
    assert query.finished(7) is query


def test_a_plan_without_rows_sets_the_stamp():
    query = owning(T0).planned(1, 7, {}, STAMP).finished(7)
    assert (query.committable, query.stamp) == ({T0: 5}, STAMP)


# -- releasing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [lambda query: query, lambda query: query.begun(7, {})])
def test_a_release_waits_for_a_batch_that_reads_what_it_releases(event):
    query = event(owning(T0, T1, T2).planned(1, 7, {T0: Span(5, 9), T1: Span(5, 8)}, STAMP))
    assert query.releasing([T0]).awaited([T0]) == {T0, T1}
    assert not query.releasing([T2]).awaited([T2])
    assert not query.releasing([T0]).finished(7).awaited([T0])
    given_up = query.releasing([T0]).given_up()
    assert not given_up.awaited([T0]), "it waits once"
    assert given_up.begun(7, {}).batch.state is BatchState.GIVEN_UP
    assert not QueryState().releasing([T0]).given_up().awaited([T0])


def test_what_is_released_may_be_committed_until_it_is_assigned_again():
    query = owning(T0, T1).releasing([T0])
    assert query.committable == {T0: 5, T1: 5}
    assert query.assigned(assignment(2, T0, T1)).committable == {T1: 5}
    assert query.assigned(assignment(2, T1)).committable == {T1: 5}


def test_a_batch_counts_for_what_was_kept():
    query = owning(T0, T1).planned(1, 7, {T0: Span(5, 9), T1: Span(5, 8)}, STAMP)
    query = rebalanced(query, [], T0, T1, T2)
    assert query.committable == {T0: 5, T1: 5}
    assert query.releasing([T0]).awaited([T0]) == {T0, T1}, "it is waited for as before"
    query = query.acknowledged(7)
    assert query.committable == {T0: 9, T1: 8}
    assert rebalanced(query, [T0], T1, T2).committable == {T1: 8}


def test_a_batch_ends_nothing_that_was_released_and_is_owned_again():
    """Another member may have read more of it meanwhile."""
    query = owning(T0, T1).planned(1, 7, {T0: Span(5, 9), T1: Span(5, 8)}, STAMP)
    query = rebalanced(query.releasing([T0]).given_up(), [T0], T0, T1)
    assert query.finished(7).committable == {T1: 8}
    everything = rebalanced(owning(T0).planned(1, 7, {T0: Span(5, 9)}, STAMP), [T0], T0)
    everything = everything.may_commit(2, {T0: 6}, None)
    over = everything.acknowledged(7)
    assert (over.committable, over.stamp) == ({T0: 6}, None)


def test_a_partition_of_another_thread_is_not_kept():
    query = owning(T0).assigned(FetchAssignment(2, {T0: AssignedPartition(ConsumerThreadId("g_c", 1))}))
    assert query.committable == {}


def test_a_replayed_batch_is_waited_for_and_not_committed():
    query = owning(T0).begun(3, {T0: 9, T1: 4})
    assert not query.has_planned(3)
    assert query.releasing([T0]).awaited([T0]) == {T0}
    assert query.finished(3).committable == {T0: 5}
    assert owning(T0).begun(3, {T1: 4}).awaited([T0]) == set(), "another member owns it"


def test_a_replayed_batch_has_no_effect_before_the_first_assignment():
    assert QueryState().begun(3, {T0: 9}) == QueryState()


def test_a_replayed_batch_does_not_replace_a_batch_in_flight():
    query = owning(T0).planned(1, 7, {T0: Span(5, 9)}, STAMP)
    assert query.begun(3, {T0: 4}) is query


# -- a generation -------------------------------------------------------------------------------------------------

SPARKS = [
    lambda query: query.chosen(1, {}, set()),
    lambda query: query.located(1, Located({}, {})),
    lambda query: query.seen(1, {}, fix_targets=False),
    lambda query: query.may_commit(1, {}, None),
    lambda query: query.committed(1, {}),
    lambda query: query.planned(1, 7, {}, None),
]


@pytest.mark.parametrize("event", SPARKS)
def test_what_was_read_before_a_rebalance_changes_nothing_after_its_beginning(event):
    query = owning(T0)
    assert event(query).generation == 1
    for later in (query.releasing([]), rebalanced(query, [], T0)):
        with pytest.raises(GenerationEnded, match="since generation 1 was read"):
            event(later)


def test_starts_are_chosen_and_commits_repeated_in_each_generation():
    query = owning(T0).committed(1, {T0: 5})
    assert (query.gone, query.unconfirmed({T0: 5})) == (set(), {})
    query = rebalanced(query, [], T0)
    assert (query.gone, query.positions, query.unconfirmed({T0: 5})) == (None, {}, {T0: 5})


def test_an_assignment_brings_what_the_store_holds():
    stored = {T0: StoredOffset(5, 7)}
    topics = {"t": Topic((0, 1), TopicIdentity("id", 40))}
    outdated = AssignedPartition(THREAD, None, stored[T0], outdated=True)
    query = QueryState().assigned(FetchAssignment(1, {T0: outdated}, topics))
    assert (query.owned[T0].stored, query.owned[T0].is_outdated) == (stored[T0], True)
    assert query.subscribed == [T0, T1]


# -- what to commit -----------------------------------------------------------------------------------------------


def test_before_the_first_plan_nothing_is_committed():
    query = QueryState().assigned(assignment(1, T0)).chosen(1, {T0: Choice(LATEST, Reason.RESET)}, set())
    query = query.located(1, Located({T0: 5}, {}))
    assert query.to_commit(SourceOffset("g")) == {}
    assert query.to_commit(finished({})) == {T0: 5}


def test_ends_of_finished_batches_and_moved_positions_are_committed():
    query = owning(T0, T1, T2).located(1, Located({T2: 8}, {T2: Loss(5, 8, 9)}))
    assert query.to_commit(finished({T0: Span(0, 5), T1: Span(0, 6)})) == {T0: 5, T2: 8}
    query = query.planned(1, 10, {T2: Span(8, 9)}, STAMP)
    assert query.to_commit(finished({T0: Span(0, 5)})) == {T0: 5}
    assert query.to_commit(finished({T2: Span(8, 9)}, 10)) == {T2: 9}


def test_what_may_be_committed_is_replaced():
    query = owning(T0, T1).may_commit(1, {T1: 6}, STAMP)
    assert (query.committable, query.stamp) == ({T1: 6}, STAMP)


def test_the_end_of_a_batch_may_be_committed_although_no_leader_tells_where_its_partition_continues():
    """Otherwise the next owner of the partition would read the batch again."""
    query = owning(T0, T1).planned(1, 7, {T0: Span(5, 9)}, STAMP)
    query = rebalanced(query, [], T0, T1).finished(7)
    query = query.chosen(2, {T0: AT_5, T1: AT_5}, set()).located(2, Located({T1: 5}, {}))
    query = query.may_commit(2, query.to_commit(finished({T0: Span(5, 9)})), STAMP)
    assert query.committable[T0] == 9


# -- targets and log ends -----------------------------------------------------------------------------------------


def test_a_target_is_fixed_when_it_is_first_seen():
    query = owning(T0, T1).seen(1, {T0: 9}, fix_targets=True)
    assert query.unread == {T0, T1}
    query = query.seen(1, {T0: 12, T1: 5}, fix_targets=True)
    assert query.readable({T0: 12, T1: 5}) == {T0: Span(5, 9)}
    assert (query.unread, query.reached) == ({T0}, {T0: 9, T1: 5})
    assert query.planned(1, 7, {T0: Span(5, 9)}, STAMP).unread == set()
    assert query.seen(1, {T0: 6}, fix_targets=True).readable({T0: 6}) == {T0: Span(5, 6)}, "truncated"


def test_a_target_stays_if_the_partition_is_lost_and_gained_again():
    query = owning(T0, T1).seen(1, {T0: 9, T1: 9}, fix_targets=True)
    query = rebalanced(query, [T0, T1], T1)
    assert query.owned.keys() == {T1}
    assert query.unread == {T1}
    query = rebalanced(query, [T1], T0, T1)
    assert {p: partition.target for p, partition in query.owned.items()} == {T0: 9, T1: 9}


def test_without_targets_a_query_reads_to_the_ends():
    query = owning(T0).seen(1, {T0: 9}, fix_targets=False)
    assert query.readable({T0: 12}) == {T0: Span(5, 12)}


def test_the_log_end_of_a_lost_partition_stays_known():
    query = owning(T0).seen(1, {T0: 9}, fix_targets=False)
    query = rebalanced(query, [T0])
    for following in (query, rebalanced(query, [], T0)):
        assert following.has_log_beyond(T0, 8)
        assert not following.has_log_beyond(T0, 9)
    assert not query.has_log_beyond(T1, 0), "it was never owned"


def test_committed_offsets_that_an_option_overrides_are_found():
    stored = {T0: StoredOffset(5), T1: StoredOffset(-1), T2: StoredOffset(0)}
    query = QueryState().assigned(assignment(1, T0, T1, T2, stored=stored))
    query = query.chosen(1, dict.fromkeys((T0, T1, T2), Choice(EARLIEST, Reason.OPTION)), set())
    assert query.overridden([T0]) == {}, "no leader has answered"
    query = query.located(1, Located(dict.fromkeys((T0, T1, T2), 0), {}))
    assert query.overridden([T0, T1, T2]) == {T0: (5, 0)}
    assert query.overridden([T1]) == {}
    by_group = query.partitions[T0]._replace(choice=Choice(EARLIEST, Reason.GROUP))
    assert replace(query, partitions={T0: by_group}).overridden([T0]) == {}


# -- the whole query ----------------------------------------------------------------------------------------------


def test_a_new_query_is_stopped_and_waits_for_nothing():
    assert QueryState().is_stopped
    assert QueryState().awaited([T0]) == frozenset()
    assert not QueryPartition(QueryPartitionState.CHOSEN).is_outdated


def test_partitions_without_a_leader_are_unlocated():
    chosen = QueryState().assigned(assignment(1, T0, T1)).chosen(1, dict.fromkeys((T0, T1), AT_5), set())
    assert chosen.unlocated == {T0: AT_5, T1: AT_5}
    assert chosen.located(1, Located({T0: 5}, {})).unlocated == {T1: AT_5}
    unchosen = QueryPartition(QueryPartitionState.CHOSEN)
    assert replace(chosen, partitions={T0: unchosen}).unlocated == {}


def test_logs_have_reached_position_and_target():
    partitions = {
        T0: QueryPartition(QueryPartitionState.LOCATED, position=0),
        T1: QueryPartition(QueryPartitionState.LOCATED, position=5, target=9),
        T2: QueryPartition(QueryPartitionState.LOCATED, position=5, target=3),
    }
    assert QueryState(partitions=partitions).reached == {T0: 0, T1: 9, T2: 5}


def test_an_option_overrides_what_the_group_committed_elsewhere():
    option = Choice(7, Reason.OPTION)

    def partition(stored, position=7, choice=option):
        state = QueryPartitionState.LOCATED
        return QueryPartition(state, stored=StoredOffset(stored), choice=choice, position=position)

    for stored, overridden in ((0, True), (5, True), (7, False), (-1, False), (None, False)):
        found = QueryState(partitions={T0: partition(stored)}).overridden([T0])
        assert found == ({T0: (stored, 7)} if overridden else {})
    several = QueryState(partitions={p: partition(5) for p in (T2, T0, T1)})
    assert list(several.overridden([T0, T1, T2])) == [T0, T1, T2]
    assert several.overridden([]) == {}
    for other in (partition(5, choice=AT_5), partition(5, choice=None), partition(5, position=None)):
        assert QueryState(partitions={T0: other}).overridden([T0]) == {}
