"""The documents of the API."""

import json
from array import array
from dataclasses import replace

from tests.fixtures.groups import group_znodes
from tests.unit.operate.serve.conftest import group_snapshot, lag_sample, snapshot
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.operate.serve.documents import group_document, groups_document, history_pieces
from zkconsumer.operate.serve.groupsnapshots import LagRow
from zkconsumer.operate.serve.grouptable import GroupQuery


def history(snapshot, most=None):
    return json.loads("".join(history_pieces(snapshot, snapshot.groups["g"], 100.0, most)))


def test_a_group_in_the_list(one_group):
    found = groups_document(one_group, 100.0)
    assert (found["sampled_ms"], found["interval_s"], found["stale"]) == (one_group.at_ms, 10.0, False)
    (line,) = found["groups"]
    assert (line["group"], line["status"], line["lag"], line["unknown"]) == ("g", "STALL", 3, 1)
    assert (line["partitions"], line["owned"], line["rebalances"]) == (2, 1, 1)
    assert line["consumed_per_s"] == 0.0


def test_a_group_in_the_list_that_could_not_be_read_has_the_time_of_its_values(one_group):
    (line,) = groups_document(one_group, 100.0)["groups"]
    assert (line["stale"], line["sampled_ms"]) == (False, one_group.at_ms)
    (line,) = groups_document(one_group, 200.0)["groups"]
    assert (line["stale"], line["sampled_ms"]) == (True, one_group.at_ms), "the whole sample is old"
    one_group.groups["g"] = replace(one_group.groups["g"], unread="no broker answers")
    (line,) = groups_document(one_group, 100.0)["groups"]
    assert (line["stale"], line["sampled_ms"]) == (True, 100_000)


def test_a_snapshot_that_is_stale_has_no_status_of_now(one_group):
    """As ``/metrics``."""
    found = groups_document(one_group, 200.0, failure="no ZooKeeper server answers")
    (line,) = found["groups"]
    assert (found["counts"], line["status"], line["was"]) == ({"UNKNOWN": 1}, "UNKNOWN", "STALL")
    assert line["reason"].startswith("no ZooKeeper server answers; it was STALL: ")
    group = group_document(one_group, one_group.groups["g"], 200.0)
    assert (group["status"], group["was"]) == ("UNKNOWN", "STALL")
    assert {one["status"] for one in group["partitions"]} == {"UNKNOWN"}


def test_the_lag_of_a_group_over_time_has_few_points(one_group):
    (line,) = groups_document(one_group, 100.0)["groups"]
    assert line["trend"] == [3, 3], "unknown lag counts as none beside known lag"
    p0 = (TopicPartition("t", 0),)
    rows = [LagRow(at, p0, array("q", [at if at % 50 else -1])) for at in range(1, 151)]
    long = group_snapshot({"t-0": [lag_sample()]}, history=rows)
    (line,) = groups_document(snapshot(long), 100.0)["groups"]
    assert line["trend"] == [None if at % 50 == 0 else at for at in range(3, 151, 3)]
    assert line["trend"][-1] is None


def test_the_list_has_the_part_that_is_asked_for(one_group):
    found = groups_document(one_group, 100.0, GroupQuery(search="x"), "no ZooKeeper")
    assert (found["groups"], found["total"], found["counts"], found["failure"]) == ([], 0, {}, "no ZooKeeper")


def test_both_documents_have_the_servers_of_the_last_sample(one_group):
    servers = (ServerAnswer("broker", 1, "h:9092", False, 5, "refused"),)
    expected = [
        {
            "kind": "broker",
            "id": 1,
            "address": "h:9092",
            "answers": False,
            "silent_since_ms": 5,
            "reason": "refused",
        }
    ]
    assert groups_document(one_group, 100.0, servers=servers)["servers"] == expected
    assert group_document(one_group, one_group.groups["g"], 100.0, servers=servers)["servers"] == expected


def test_a_group_has_its_partitions_and_the_age_of_the_sample(one_group):
    found = group_document(one_group, one_group.groups["g"], 131.0)
    assert found["stale"]
    assert [(one["partition"], one["lag"], one["committed"]) for one in found["partitions"]] == [
        (0, 3, 5),
        (1, None, None),
    ]


def test_history_has_a_column_for_each_partition_of_today(one_group):
    found = history(one_group)
    assert found["at_ms"] == [90_000, 100_000]
    assert [one["lag"] for one in found["partitions"]] == [[3, 3], [None, None]]
    assert found["rebalances"] == [{"at_ms": 100_000, "partitions": 1, "joined": ["g_c"], "left": []}]
    assert (found["partition_count"], found["group"]) == (2, "g")


def many_partitions():
    """A group that had 119 partitions and has one more, whose lag is its number."""
    every = tuple(TopicPartition("t", number) for number in range(120))
    rows = [LagRow(at, every[1:], array("q", range(1, 120))) for at in (1, 2)]
    rows.append(LagRow(3, every, array("q", range(120))))
    znodes = group_znodes(topics={"t": 120})
    return snapshot(group_snapshot({"t-0": [lag_sample()]}, znodes=znodes, history=rows))


def test_a_long_history_comes_in_pieces():
    found = many_partitions()
    assert len(list(history_pieces(found, found.groups["g"], 100.0))) == 5
    columns = history(found)["partitions"]
    assert [one["partition"] for one in columns] == list(range(120))
    assert [columns[0]["lag"], columns[7]["lag"]] == [[None, None, 0], [7, 7, 7]]


def test_a_history_can_be_of_the_largest_lags_alone():
    found = history(many_partitions(), most=2)
    assert [one["partition"] for one in found["partitions"]] == [118, 119]
    assert found["partition_count"] == 120
