"""What a recorder keeps of samples."""

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.groups import followed, group_znodes
from tests.unit.operate.serve.conftest import Sampled, group_snapshot, lag_sample, snapshot
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import sum_known
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.serve.groupsnapshots import LagRecorder, LagRow, rebalance_between

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def sampled():
    return Sampled()


def record(recorder, sampled, *ends, znodes=None):
    """Record a sample with these log ends, 5 being committed."""
    znodes = znodes or group_znodes(topics={"t": len(ends)})
    samples = {TopicPartition("t", n): [lag_sample(log_end=end)] for n, end in enumerate(ends)}
    sampled.sample("g", znodes, samples)
    record.at_ms += 1000
    return recorder.record(sampled, at=record.at_ms / 1000, at_ms=record.at_ms, seconds=0.1).groups["g"]


record.at_ms = 0


def test_the_history_is_bounded(sampled):
    recorder = LagRecorder(2, 3, 1.0)
    found = [record(recorder, sampled, 5 + lag) for lag in range(6)]
    assert [row.lag(0) for row in found[-1].history] == [3, 4, 5]
    assert [row.lag(0) for row in found[1].history] == [0, 1], "an older snapshot stays as it was"


def test_unknown_lag_stays_unknown(sampled):
    found = record(LagRecorder(2, 3, 1.0), sampled, None, 7)
    assert [found.history[0].lag(index) for index in (0, 1)] == [None, 2]


@pytest.mark.parametrize(
    ("ends", "lag", "lag_s"), [((None,), None, None), ((5,), 0, 0.0), ((None, 5), 0, 0.0), ((None, 8), 3, None)]
)
def test_what_is_known_of_no_partition_is_unknown_of_the_group(ends, lag, lag_s):
    line = group_snapshot({f"t-{number}": [lag_sample(log_end=end)] for number, end in enumerate(ends)}).line
    assert (line["lag"], line["lag_s"]) == (lag, lag_s)


def test_partitions_of_which_kafka_alone_has_an_offset_are_counted_as_they_are_shown():
    znodes = group_znodes(topics={"t": 1}, offsets={"t-0": 5})
    samples = {"t-0": [lag_sample()], "u-0": [lag_sample(owner=None, owner_live=False)]}
    line = group_snapshot(samples, znodes=znodes).line
    assert (line["partitions"], line["owned"], line["lag"]) == (2, 1, 6)


@given(st.lists(st.none() | st.integers(0, 9)))
def test_the_sum_of_a_row_is_that_of_other_lags(lags):
    row = LagRow(0, (), array("q", [-1 if lag is None else lag for lag in lags]))
    assert row.sum() == sum_known(lags)


def test_rows_share_the_partitions_that_stay(sampled):
    recorder = LagRecorder(2, 9, 1.0)
    record(recorder, sampled, 5, 5)
    record(recorder, sampled, 6, 6)
    history = record(recorder, sampled, 6, 6, 6).history
    assert history[0].partitions is history[1].partitions
    assert history[2].partitions == (P0, P1, TopicPartition("t", 2))


def test_a_group_that_stays_unread_for_longer_than_the_history_gets_no_row(sampled):
    recorder = LagRecorder(2, 3, 1.0)
    before = record(recorder, sampled, 5).history
    sampled.unread["g"] = "silent"
    for _ in range(10):
        assert record(recorder, sampled, 5).history == before


@pytest.mark.parametrize(("gone_ms", "rows"), [(2000, 2), (3000, 1)])
def test_a_group_that_vanishes_keeps_its_history_for_as_long_as_it_would_last(sampled, gone_ms, rows):
    recorder = LagRecorder(2, 3, 1.0)
    record(recorder, sampled, 5)
    sampled.observed.clear()
    record.at_ms += gone_ms
    assert recorder.record(sampled, at=1, at_ms=record.at_ms, seconds=0).groups == {}
    assert len(record(recorder, sampled, 5).history) == rows


def test_rebalances_are_kept_as_long_as_the_history(sampled):
    recorder = LagRecorder(2, 2, 1.0)
    owned = [group_znodes(topics={"t": 1}, owners={"t-0": owner}) for owner in ("g_a-0", "g_b-0")]
    found = [record(recorder, sampled, 5, znodes=owned[n]) for n in (0, 1, 1, 1)]
    assert [len(one.rebalances) for one in found] == [0, 1, 1, 0]


def test_a_rebalance_names_what_changed():
    c = Subscription({"t": 1})
    before = group_znodes(members={"g_a": c}, topics={"t": 3}, owners={"t-0": "g_a-0", "t-1": "g_a-0"})
    after = group_znodes(members={"g_b": c}, topics={"t": 3}, owners={"t-0": "g_b-0", "t-1": "g_a-0", "t-2": "g_b-0"})
    assert rebalance_between(before, before, 1) is None
    found = rebalance_between(before, after, 7)
    assert (found.at_ms, found.partitions, found.joined, found.left) == (7, 2, ("g_b",), ("g_a",))


def test_a_snapshot_is_stale_after_three_intervals():
    taken = snapshot(at=100.0)
    assert not taken.is_stale(130.4)
    assert taken.is_stale(130.6)


def test_samples_that_take_longer_than_three_intervals_are_not_stale_before_the_next():
    taken = replace(snapshot(at=100.0), seconds=40.0)
    assert not taken.is_stale(170.0)


def test_a_group_that_cannot_be_read_keeps_its_last_row(sampled):
    recorder = LagRecorder(2, 9, 1.0)
    record(recorder, sampled, 5)
    sampled.unread = {"g": "no broker answers"}
    group = record(recorder, sampled, 5)
    assert [row.lag(0) for row in group.history] == [0]
    assert (group.line["status"], group.line["was"], group.line["stale"]) == ("UNKNOWN", "NO MEMBERS", True)
    assert group.line["reason"] == "no broker answers; it was NO MEMBERS: no member is registered; known lag 0"
    assert {one.status.value for one in group.lag.partitions.values()} == {"UNKNOWN"}


def test_a_group_keeps_status_and_values_while_a_broker_is_silent(sampled):
    """ZooKeeper answers: 1. a group has stopped; 2. the broker that has the ends of its logs is silent."""
    recorder = LagRecorder(2, 9, 1.0)
    stopped = [lag_sample(at, owner=None, owner_live=False) for at in (0.0, 70.0)]
    silent = lag_sample(80.0, log_end=None, owner=None, owner_live=False)._replace(is_unread=True)

    def recorded(at, *samples):
        sampled.sample("g", group_znodes(topics={"t": 1}), {P0: followed(samples)})
        return recorder.record(sampled, at=at, at_ms=round(1000 * at), seconds=0.1).groups["g"]

    assert recorded(70.0, *stopped).line["status"] == "STOP"
    for at in (80.0, 90.0):
        group = recorded(at, *stopped, silent)
        line = group.line
        assert (line["status"], line["was"], line["lag"], line["stale"]) == ("UNKNOWN", "STOP", 3, True)
        assert line["severity"] == LagStatus.STOP.severity, "it is sorted as before"
        assert line["reason"].endswith(
            "the log end is unknown; it was STOP: t-0: lag 3 and no live owner for at least 70 s"
        )
        assert (group.values_ms, group.shown.partitions[P0].lag, group.lag.lag) == (70_000, 3, None)
    answered = recorded(100.0, *stopped, lag_sample(100.0, owner=None, owner_live=False))
    assert (answered.line["status"], answered.line["was"], answered.line["stale"]) == ("STOP", None, False)
