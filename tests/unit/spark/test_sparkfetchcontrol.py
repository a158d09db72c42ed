"""Two real threads meet in SparkFetchControl, as in a query; no test sleeps to wait for the other side."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.core.groupview import Topic
from zkconsumer.errors import ConsumerClosed, UsageError
from zkconsumer.model import ConsumerThreadId, TopicIdentity, TopicPartition
from zkconsumer.spark.microbatch import Span
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl, drain_remedy, drain_timeout_ms

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
LONG_S = 30.0
"""Longer than the test's own limit: a wait of this length is a failure."""


def assignment(generation: int, *partitions: TopicPartition) -> FetchAssignment:
    return FetchAssignment(generation, dict.fromkeys(partitions, AssignedPartition(ConsumerThreadId("g_c", 0), 5)))


def running(*partitions: TopicPartition) -> SparkFetchControl:
    control = SparkFetchControl(LONG_S)
    control.start(assignment(1, *partitions))
    control.may_commit(1, dict.fromkeys(partitions, 5))
    return control


@pytest.fixture
def rebalance_thread():
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_a_release_waits_for_the_batch_in_flight_and_then_commits_its_end(rebalance_thread):
    control = running(T0, T1)
    assert control.take(1, 7, {T0: Span(5, 9)})
    committed = rebalance_thread.submit(lambda: (control.stop(), control.positions(handed_out=False))[1])
    while control.await_assignment(0) is not None:  # until the rebalance has begun
        pass
    assert not committed.done()
    control.finish(7)
    assert committed.result(LONG_S) == {T0: 9, T1: 5}


def test_past_the_drain_timeout_the_old_offset_is_released():
    control = SparkFetchControl(0.01)
    control.start(assignment(1, T0))
    control.may_commit(1, {T0: 5})
    control.take(1, 7, {T0: Span(5, 9)})
    control.stop()
    assert control.positions(handed_out=False) == {T0: 5}


def test_a_batch_planned_before_a_rebalance_is_refused_once_it_has_begun():
    control = running(T0)
    control.stop()
    assert not control.take(1, 7, {T0: Span(5, 9)})
    control.start(assignment(2, T0))
    assert not control.take(1, 7, {T0: Span(5, 9)})
    assert control.take(2, 7, {T0: Span(5, 9)})


def test_positions_never_cover_the_batch_in_flight():
    control = running(T0)
    control.take(1, 7, {T0: Span(5, 9)})
    assert control.positions(handed_out=False) == control.positions(handed_out=True) == {T0: 5}


def test_positions_of_an_older_assignment_are_not_committed_under_a_newer():
    control = running(T0, T1)
    control.stop()
    control.start(assignment(2, T0))
    assert control.positions(handed_out=False) == {}
    control.may_commit(2, {T0: 7})
    assert control.positions(handed_out=False) == {T0: 7}


def test_a_batch_that_outlived_its_assignment_does_not_move_the_new_ones_positions():
    control = SparkFetchControl(0)
    control.start(assignment(1, T0))
    control.may_commit(1, {T0: 5})
    control.take(1, 7, {T0: Span(5, 9)})
    control.stop()
    control.start(assignment(2, T0))
    control.may_commit(2, {T0: 5})
    control.finish(7)
    assert control.positions(handed_out=False) == {T0: 5}


def test_a_batch_that_spark_does_not_report_is_not_finished():
    control = running(T0)
    control.take(1, 7, {T0: Span(5, 9)})
    control.finish(6)
    assert control.positions(handed_out=False) == {T0: 5}


def test_a_replayed_batch_is_waited_for_as_well(rebalance_thread):
    control = running(T0)
    control.replay(3, {T0: Span(1, 5)})
    stopped = rebalance_thread.submit(control.stop)
    while control.await_assignment(0) is not None:
        pass
    assert not stopped.done()
    control.finish(3)
    stopped.result(LONG_S)


def test_joining_after_a_replayed_batch_does_not_wait(rebalance_thread):
    control = SparkFetchControl(LONG_S)
    control.replay(3, {T0: Span(1, 5)})
    rebalance_thread.submit(control.stop).result(LONG_S / 2)
    control.start(assignment(1, T0))
    control.finish(3)
    assert control.positions(handed_out=False) == {}


def test_a_release_waits_once_for_a_batch(caplog):
    """Also if it is attempted repeatedly: each wait that ends by its timeout is logged."""
    control = SparkFetchControl(0.01)
    control.start(assignment(1, T0))
    control.take(1, 7, {T0: Span(5, 9)})
    control.stop()
    control.stop()
    control.start(assignment(2, T0))
    control.stop()
    assert caplog.text.count("did not finish within") == 1


def test_a_stop_does_not_wait_if_the_partitions_are_lost(rebalance_thread):
    control = running(T0)
    control.take(1, 7, {T0: Span(5, 9)})
    rebalance_thread.submit(control.stop, drain=False).result(LONG_S / 2)
    stopped = rebalance_thread.submit(control.stop)
    control.finish(7)
    stopped.result(LONG_S)
    assert control.positions(handed_out=False) == {T0: 9}


def test_an_acknowledged_batch_is_finished_before_spark_asks_for_the_next(rebalance_thread):
    control = running(T0, T1)
    control.take(1, 7, {T0: Span(5, 9)})
    assert control.acknowledge(6) is None, "the previous batch"
    assert control.positions(handed_out=False) == {T0: 5, T1: 5}
    assert control.acknowledge(7) == (1, {T0: 9, T1: 5})
    assert control.acknowledge(7) is None, "once"
    rebalance_thread.submit(control.stop).result(LONG_S / 2)
    assert control.positions(handed_out=False) == {T0: 9, T1: 5}
    control.finish(7)


def test_an_acknowledged_batch_of_an_older_assignment_is_ignored():
    control = SparkFetchControl(0)
    control.start(assignment(1, T0))
    control.may_commit(1, {T0: 5})
    control.take(1, 7, {T0: Span(5, 9)})
    control.stop()
    control.start(assignment(2, T0))
    control.may_commit(2, {T0: 5})
    assert control.acknowledge(7) is None
    assert control.positions(handed_out=False) == {T0: 5}


def test_a_release_does_not_wait_for_a_query_that_ends(rebalance_thread):
    control = running(T0)
    control.take(1, 7, {T0: Span(5, 9)})
    stopped = rebalance_thread.submit(control.stop)
    control.abandon()
    stopped.result(LONG_S)
    control.stop()
    assert control.positions(handed_out=False) == {T0: 5}


def test_spark_waits_for_the_end_of_a_rebalance(rebalance_thread):
    control = SparkFetchControl(LONG_S)
    assert control.await_assignment(0.01) is None
    waiting = rebalance_thread.submit(control.await_assignment, LONG_S)
    control.start(assignment(1, T0))
    assert waiting.result(LONG_S) == assignment(1, T0)
    assert control.current() == assignment(1, T0)


def test_the_death_of_the_rebalance_thread_reaches_spark():
    control = SparkFetchControl(LONG_S)
    killer = threading.Timer(0, control.fail, [RuntimeError("boom")])
    killer.start()
    with pytest.raises(ConsumerClosed) as caught:
        control.await_assignment(LONG_S)
    assert str(caught.value.__cause__) == "boom"
    killer.join()


@pytest.mark.parametrize(
    ("retries", "backoff", "expected"), [(4, 2000, 3000), (10, 2000, 4000), (1, 2000, 0), (0, 2000, 0), (4, 100, 150)]
)
def test_a_release_leaves_jvm_members_half_of_their_window(retries, backoff, expected):
    config = ConsumerConfig(
        zookeeper_connect="h:1", group_id="g", rebalance_max_retries=retries, rebalance_backoff_ms=backoff
    )
    assert drain_timeout_ms(config) == expected


@pytest.mark.parametrize(("rebalance", "heartbeat", "expected"), [(300_000, 3000, 237_000), (3000, 3000, 0)])
def test_in_a_group_of_brokers_a_release_ends_within_the_lease(rebalance, heartbeat, expected):
    config = ConsumerConfig(
        bootstrap_servers="h:1",
        group_id="g",
        group_protocol="kafka",
        max_poll_interval_ms=rebalance,
        heartbeat_interval_ms=heartbeat,
    )
    assert drain_timeout_ms(config) == expected
    assert "max.poll.interval.ms" in drain_remedy(config)


def test_partitions_are_awaited_over_an_assignment_without_any(rebalance_thread):
    control = SparkFetchControl(LONG_S)
    topics = {"t": Topic((0, 1), TopicIdentity("id", None))}
    control.start(replace(assignment(1), topics=topics))
    awaited = rebalance_thread.submit(control.await_partitions, LONG_S)
    control.start(replace(assignment(2), topics=topics))
    assert not awaited.done()
    control.start(replace(assignment(3, T0), topics=topics))
    awaited.result(LONG_S)


@pytest.mark.parametrize(
    "end",
    [
        lambda control: control.fail(RuntimeError("boom")),
        lambda control: control.refuse(UsageError("not allowed")),
        lambda control: control.start(assignment(1)),  # no topic exists
    ],
)
def test_no_partition_is_awaited_where_none_can_come(end):
    control = SparkFetchControl(LONG_S)
    end(control)
    control.await_partitions(LONG_S)


def test_a_batch_that_reads_nothing_of_the_assignment_delays_no_rebalance():
    control = running(T0)
    control.replay(7, {T1: Span(5, 9)})
    control.stop()
    control.start(assignment(2, T0, T2))
    control.release([T2])


def test_a_batch_belongs_to_the_next_assignment_for_what_was_kept():
    control = running(T0, T1)
    control.take(1, 7, {T0: Span(5, 9), T1: Span(5, 8)})
    control.release([])
    control.start(assignment(2, T0, T1, T2))
    assert control.positions(handed_out=False) == {T0: 5, T1: 5}
    assert control.acknowledge(7) == (2, {T0: 9, T1: 8})
    control.release([T0])
    control.start(assignment(3, T1, T2))
    assert control.positions(handed_out=False) == {T1: 8}


def test_a_release_waits_for_a_batch_of_the_assignment_before(rebalance_thread):
    control = running(T0, T1)
    control.take(1, 7, {T0: Span(5, 9), T1: Span(5, 8)})
    control.release([])
    control.start(assignment(2, T0, T1, T2))
    released = rebalance_thread.submit(lambda: (control.release([T0]), control.positions(handed_out=False))[1])
    while control.await_assignment(0) is not None:
        pass
    assert not released.done()
    control.finish(7)
    assert released.result(LONG_S) == {T0: 9, T1: 8}


def test_a_batch_that_was_not_waited_for_ends_only_what_was_kept(caplog):
    """Its other partition was released and is owned again: another member may have read more of it meanwhile."""
    control = SparkFetchControl(0.01)
    control.start(assignment(1, T0, T1))
    control.may_commit(1, {T0: 5, T1: 5})
    control.take(1, 7, {T0: Span(5, 9), T1: Span(5, 8)})
    control.release([T0])
    control.start(assignment(2, T0, T1))
    assert control.positions(handed_out=False) == {T1: 5}
    control.release([T1])
    assert caplog.text.count("did not finish within") == 1, "one wait for each batch"
    control.finish(7)
    assert control.positions(handed_out=False) == {T1: 8}


def test_positions_of_a_replaced_assignment_do_not_hide_those_of_the_newest():
    """The planner may compute them while a rebalance finishes."""
    control = running(T0)
    control.release([])
    control.start(assignment(2, T0, T1))
    control.may_commit(1, {T0: 4})
    assert control.positions(handed_out=False) == {T0: 5}
