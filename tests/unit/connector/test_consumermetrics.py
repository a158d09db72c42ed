import pytest

from tests.fixtures.chunks import make_queue
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.consumermetrics import ConsumerMetrics, Exporter, MinuteRates
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.group.memberstats import MemberStats, RebalanceCounts
from zkconsumer.group.rules.memberstate import MemberState, step_name
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.model import ConsumerThreadId, TopicPartition


def test_rates_are_those_of_the_last_minute():
    rates = MinuteRates()
    assert rates.slowest({}, 5.0) == 0
    assert rates.slowest({"a": (0.0, 20)}, 10.0) == 2
    assert rates.slowest({"a": (0.0, 20)}, 40.0) == 0.5
    # The reading at 10 s is a minute old now: earlier ones do not count any more.
    assert rates.slowest({"a": (0.0, 80)}, 70.0) == 1
    assert rates.slowest({"a": (0.0, 80)}, 200.0) == 0


def test_the_slowest_fetcher_counts_and_a_new_one_starts_at_zero():
    rates = MinuteRates()
    assert rates.slowest({"a": (0.0, 100), "b": (0.0, 10)}, 10.0) == 1
    assert rates.slowest({"a": (0.0, 100), "b": (15.0, 50)}, 20.0) == 5
    assert rates.slowest({"b": (15.0, 50)}, 25.0) == 5


def test_rebalances_are_counted_by_cause_and_failures_by_step():
    none = RebalanceCounts()
    counts = none.failed(None).failed(MemberState.CLAIMING).failed(MemberState.CLAIMING)
    counts = counts.finished(RebalanceCause.START, 1.5, 100.0).finished(RebalanceCause.MEMBERS, 2.0, 200.0)
    assert counts.failures == {step_name(None): 1, "4 claim ownership": 2}
    assert counts.by_cause == {RebalanceCause.START: 1, RebalanceCause.MEMBERS: 1}
    assert (counts.seconds, counts.last_cause, counts.last_finished) == (3.5, RebalanceCause.MEMBERS, 200.0)
    assert none == RebalanceCounts()


def test_a_partition_has_a_lag_from_its_start_to_its_release():
    config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1")
    queue, thread = make_queue(), ConsumerThreadId("g_c", 0)
    control = LocalFetchControl("g_c", config, lambda: (), lambda topic, thread: queue)
    metrics = ConsumerMetrics(
        config,
        lambda: MemberStats("joined", RebalanceCounts(), {}, {}, 0, 0, 0, connected=True, delivering=True),
        lambda: [state for state in control.states() if not state.released],
        control.fetch_requests,
        {},
    )

    def with_lag():
        return [one.labels["partition"] for one in metrics.samples() if one.name == "zkconsumer_consumer_lag"]

    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    control.start(FetchAssignment(1, dict.fromkeys([p0, p1], AssignedPartition(thread, 5))))
    assert with_lag() == ["0", "1"]
    control.release([p1])
    assert with_lag() == ["0"]
    control.stop()
    assert with_lag() == []
    assert control.positions(handed_out=True) == {p0: 5, p1: 5}, "for commits and the next start"


def test_an_exporter_whose_end_was_interrupted_gives_its_port_back_when_it_is_closed_again(monkeypatch):
    """1. The server has ended; 2. an interrupt comes in the wait for its thread; 3. the connector is closed again."""
    metrics = ConsumerMetrics(ConsumerConfig(group_id="g", zookeeper_connect="unused:1"), None, None, None, {})
    exporter = Exporter(metrics, "127.0.0.1", 0)
    join = exporter._thread.join

    def interrupted():
        join()
        raise KeyboardInterrupt

    monkeypatch.setattr(exporter._thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exporter.close()
    exporter.close()
    exporter.close()
    Exporter(metrics, *exporter.address).close()
