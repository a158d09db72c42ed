"""Two real threads meet in SparkFetchControl, as in a query; no test sleeps to wait for the other side."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from zkconsumer.errors import ConsumerClosed, GenerationEnded, UsageError
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, Topic, TopicIdentity, TopicPartition
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.querystate import QueryState
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl

T0, T1 = (TopicPartition("t", n) for n in range(2))
LONG_S = 30.0
"""Longer than the test's own limit: a wait of this length is a failure."""


def assignment(generation: int, *partitions: TopicPartition) -> FetchAssignment:
    return FetchAssignment(generation, dict.fromkeys(partitions, AssignedPartition(ConsumerThreadId("g_c", 0), 5)))


def running(*partitions: TopicPartition, drain_timeout_s: float = LONG_S) -> SparkFetchControl:
    """A control whose batch 7 reads the offsets from 5 to 9 of T0."""
    control = SparkFetchControl(lambda: drain_timeout_s)
    control.start(assignment(1, *partitions))
    control.update(lambda query: query.may_commit(1, dict.fromkeys(partitions, 5), None))
    control.update(lambda query: query.planned(1, 7, {T0: Span(5, 9)}, None))
    return control


@pytest.fixture
def rebalance_thread():
    with ThreadPoolExecutor(1) as executor:
        yield executor


def begin_rebalance(control: SparkFetchControl, executor: ThreadPoolExecutor) -> Future[dict[TopicPartition, int]]:
    """Stop fetching on the rebalance thread, as far as the batch in flight allows; the result is what it may commit."""
    stopped = executor.submit(lambda: (control.stop(), control.positions(handed_out=False))[1])
    while control.await_assignment(0) is not None:
        pass
    return stopped


def test_a_release_waits_for_the_batch_in_flight_and_then_commits_its_end(rebalance_thread):
    control = running(T0, T1)
    committed = begin_rebalance(control, rebalance_thread)
    assert not committed.done()
    control.update(lambda query: query.finished(7))
    assert committed.result(LONG_S) == {T0: 9, T1: 5}


def test_a_release_of_other_partitions_does_not_wait():
    control = running(T0, T1)
    control.release([T1])
    assert control.positions(handed_out=False) == control.positions(handed_out=True) == {T0: 5, T1: 5}


def test_a_release_waits_once_for_a_batch(caplog):
    """Also if it is attempted repeatedly: each wait that ends by its timeout is logged."""
    control = running(T0, drain_timeout_s=0.01)
    control.stop()
    assert control.positions(handed_out=False) == {T0: 5}
    control.stop()
    control.start(assignment(2, T0))
    control.stop()
    assert caplog.text.count("a batch of 1 partitions did not finish within 0.0 s") == 1


def test_a_stop_does_not_wait_if_the_partitions_are_lost(rebalance_thread):
    control = running(T0)
    rebalance_thread.submit(control.stop, drain=False).result(LONG_S / 2)
    stopped = rebalance_thread.submit(control.stop)
    control.update(lambda query: query.finished(7))
    stopped.result(LONG_S)
    assert control.positions(handed_out=False) == {T0: 9}


def test_a_release_does_not_wait_for_a_query_that_ends(rebalance_thread):
    control = running(T0)
    stopped = begin_rebalance(control, rebalance_thread)
    control.update(QueryState.abandoned)
    assert stopped.result(LONG_S) == {T0: 5}


def test_a_batch_cannot_be_planned_once_a_rebalance_has_begun():
    control = running(T0)
    control.update(lambda query: query.finished(7))
    control.stop()
    for _ in range(2):
        with pytest.raises(GenerationEnded):
            control.update(lambda query: query.planned(1, 8, {T0: Span(9, 12)}, None))
        control.start(assignment(2, T0))


def test_spark_waits_for_the_end_of_a_rebalance(rebalance_thread):
    control = SparkFetchControl(lambda: LONG_S)
    assert control.await_assignment(0.01) is None
    waiting = rebalance_thread.submit(control.await_assignment, LONG_S)
    control.start(assignment(1, T0))
    assert waiting.result(LONG_S) == control.query
    assert control.query.owned.keys() == {T0}


def test_the_death_of_the_rebalance_thread_reaches_spark():
    control = SparkFetchControl(lambda: LONG_S)
    killer = threading.Timer(0, control.fail, [RuntimeError("boom")])
    killer.start()
    with pytest.raises(ConsumerClosed) as caught:
        control.await_assignment(LONG_S)
    assert str(caught.value.__cause__) == "boom"
    killer.join()


def test_partitions_are_awaited_over_an_assignment_without_any(rebalance_thread):
    control = SparkFetchControl(lambda: LONG_S)
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
    control = SparkFetchControl(lambda: LONG_S)
    end(control)
    control.await_partitions(LONG_S)
