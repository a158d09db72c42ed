"""Documents in Burrow's format."""

from dataclasses import replace

import pytest

from tests.fixtures.groups import group_znodes
from tests.unit.operate.serve.conftest import group_snapshot, lag_sample, snapshot
from zkconsumer.operate.groups.brokergroups import ObservedBrokerGroup
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.serve.burrow import not_found_document, status_document
from zkconsumer.wire.rules.describedgroup import DescribedGroup, DescribedMember
from zkconsumer.zookeeper.rules.znodes import MigrationMark

STALLED = [lag_sample(30.0), lag_sample(100.0)]
SLOW = [lag_sample(30.0, log_end=8), lag_sample(100.0, committed=6, log_end=20)]
IDLE = [lag_sample(30.0, log_end=5), lag_sample(100.0, log_end=5)]
OUTSIDE = [lag_sample(30.0, committed=9), lag_sample(100.0, committed=9)]


def status(samples, *, every_partition=True):
    group = group_snapshot(samples)
    return status_document(snapshot(group), "c", group, every_partition=every_partition)["status"]


def test_a_partition_has_burrows_fields():
    found = status({"t-0": STALLED})
    (one,) = found["partitions"]
    assert one == {
        "topic": "t",
        "partition": 0,
        "owner": "g_c-0",
        "client_id": "",
        "status": "STALL",
        "start": {"offset": 5, "timestamp": 1_700_000_030_000, "observedAt": 1_700_000_030_000, "lag": 3},
        "end": {"offset": 5, "timestamp": 1_700_000_100_000, "observedAt": 1_700_000_100_000, "lag": 3},
        "current_lag": 3,
        "complete": 1.0,
    }
    assert found["maxlag"] == one
    assert {name: found[name] for name in ("cluster", "group", "complete", "partition_count", "totallag")} == {
        "cluster": "c",
        "group": "g",
        "complete": 1.0,
        "partition_count": 1,
        "totallag": 3,
    }


def test_a_member_at_brokers_has_its_client_id():
    member = DescribedMember("g-1", "cf", None, frozenset())
    group = ObservedBrokerGroup("g", DescribedGroup("classic", "Stable", "range", (member,)), None, {})
    taken = group_snapshot({"t-0": [lag_sample(30.0, owner="g-1"), lag_sample(100.0, owner="g-1")]}, znodes=group)
    (one,) = status_document(snapshot(taken), "c", taken, every_partition=True)["status"]["partitions"]
    assert (one["owner"], one["client_id"]) == ("g-1", "cf")


@pytest.mark.parametrize(
    ("samples", "of_group", "of_partition"),
    [(STALLED, "ERR", "STALL"), (SLOW, "WARN", "WARN"), (IDLE, "OK", "OK"), (OUTSIDE, "ERR", "ERR")],
)
def test_statuses_are_burrows(samples, of_group, of_partition):
    found = status({"t-0": samples})
    assert (found["status"], found["partitions"][0]["status"]) == (of_group, of_partition)


def test_a_migrated_group_is_ok_with_all_its_partitions():
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark("migrated", "kafka:g", 1))
    group = group_snapshot({"t-0": OUTSIDE}, znodes=znodes)
    found = status_document(snapshot(group), "c", group, every_partition=False)["status"]
    assert (found["status"], found["partitions"], found["partition_count"]) == ("OK", [], 1)


def test_status_has_only_partitions_that_are_not_ok():
    samples = {"t-0": IDLE, "t-1": SLOW}
    assert [one["partition"] for one in status(samples, every_partition=False)["partitions"]] == [1]
    assert [one["partition"] for one in status(samples)["partitions"]] == [0, 1]


def test_unknown_lag_is_no_number():
    unknown = [lag_sample(100.0, log_end=None)]
    found = status({"t-0": IDLE, "t-1": unknown})
    assert (found["partition_count"], found["complete"], found["status"]) == (1, 0.5, "OK")
    assert status({"t-0": unknown})["maxlag"] is None


def test_a_group_of_which_a_part_cannot_be_read_keeps_its_status():
    silent = lag_sample(110.0, log_end=None)._replace(is_unread=True)
    former = group_snapshot({"t-0": IDLE, "t-1": STALLED})
    group = replace(group_snapshot({"t-0": IDLE, "t-1": [*STALLED, silent]}), former=former)
    found = status_document(snapshot(group), "c", group, every_partition=True)["status"]
    assert (group.lag.status, found["status"], found["partition_count"]) == (LagStatus.UNKNOWN, "ERR", 1)


def test_a_short_window_is_not_complete():
    found = status({"t-0": [lag_sample(100.0)]})
    assert (found["partitions"][0]["complete"], found["complete"]) == (0.5, 0.0)


def test_members_that_commit_nothing_make_no_group_of_burrows_worse():
    """Burrow judges commits alone; our status is STALL, or with old records alone WARN."""
    first, *_, last = STALLED
    silent = [sample._replace(committed=None, log_start=0) for sample in (first._replace(log_end=6), last)]
    assert group_snapshot({"t-0": silent}).lag.status is LagStatus.STALL
    assert status({"t-0": silent})["status"] == "OK"
    assert status({"t-0": silent, "t-1": SLOW})["status"] == "WARN"


def test_a_missing_group_is_not_found():
    assert not_found_document("c", "g")["status"]["status"] == "NOTFOUND"
