"""Groups as text. The formats themselves are compared with the JVM's tools in tests/interop."""

import pytest

from tests.fixtures.groups import followed
from zkconsumer.cli.grouptables import (
    checker_table,
    client_names,
    live_table,
    member_table,
    offset_table,
    status_table,
)
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.everydescription import EveryDescription
from zkconsumer.operate.groups.groupchanges import GroupMoment
from zkconsumer.operate.groups.groupdescription import GroupDescription, PartitionDescription
from zkconsumer.operate.groups.observedgroup import DescribedGroupMember
from zkconsumer.operate.groups.rules.lagstatus import evaluate_group
from zkconsumer.operate.groups.rules.lagstretches import LagSample

EVIL = "\x1b[2J\n"
ESCAPED = r"\x1b[2J\n"


def partition(**values):
    known = {"owner": "g_a-0", "owner_live": True, "committed": 5, "log_end": 7, "lag": 2}
    return PartitionDescription(**{"topic": "t", "partition": 0, **known, **values})


def member(name, partitions=1, **values):
    return DescribedGroupMember(
        **{"id": name, "client": "jvm", "threads": {"t": 1}, "pattern": "static", **values},
        registered_ms=5,
        partitions=partitions,
    )


def group(*rows, members=()):
    return GroupDescription("g", tuple(members), rows)


def test_columns_are_as_wide_as_names_need():
    _, heading, row = offset_table([group(partition(topic="a-topic-with-a-long-name", owner="g_some-consumer-0"))])
    assert heading.startswith(
        "TOPIC                    PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID"
    )
    assert row == "a-topic-with-a-long-name 0          5               7               2               g_some-consumer "


def test_what_is_unknown_is_no_number():
    unknown = partition(owner=None, owner_live=None, committed=None, log_end=None, lag=None)
    assert list(offset_table([group(unknown)]))[2].split() == ["t", "0", "-", "-", "-", "-"]
    assert list(checker_table([group(unknown)]))[1].split() == ["g", "t", "0", "-1", "unknown", "unknown", "none"]
    unreadable = partition(committed=None, lag=None, is_readable=False)
    assert list(checker_table([group(unreadable)]))[1].split()[3:] == ["unknown", "7", "unknown", "g_a-0"]


def test_a_member_without_partitions_has_a_row_for_each_topic():
    idle = member("g_b", 0, threads={"t": 1, "u": 2})
    rows = list(offset_table([group(partition(), members=[member("g_a"), idle])]))[3:]
    assert [row.split() for row in rows] == [["-", "-", "-", "-", "-", "g_b"]] * 2


def test_several_groups_have_a_column_with_their_names():
    lines = list(offset_table([group(partition()), group(partition())]))
    assert [line.split()[0] for line in lines if line] == ["GROUP", "g"] * 2


def test_both_stores_are_two_more_columns():
    _, heading, row = offset_table([group(partition(in_zookeeper=5, in_kafka=None))], both_stores=True)
    assert heading.split()[-2:] == ["ZOOKEEPER-OFFSET", "KAFKA-OFFSET"]
    assert row.split()[-2:] == ["5", "-"]


@pytest.mark.parametrize("table", [offset_table, checker_table, member_table])
def test_hostile_names_are_inert(table):
    hostile = GroupDescription(EVIL, (member(EVIL, threads={EVIL: 1}),), (partition(topic=EVIL, owner=f"{EVIL}-0"),))
    text = "\n".join(table([hostile, hostile]))
    assert ESCAPED in text
    assert "\x1b" not in text
    assert all(line == "" or line.split()[0] in ("GROUP", "Group", ESCAPED) for line in text.split("\n"))


def test_unhealthy_is_what_an_operator_has_to_look_at():
    idle = member("g_b", 0)
    healthy, ownerless = partition(), partition(partition=1, owner=None, owner_live=None)
    dead, unknown = partition(partition=2, owner_live=False), partition(partition=3, lag=None)
    outside = partition(partition=4, committed=8, lag=-1)
    deleted = partition(partition=5, log_start=6)
    every = group(healthy, ownerless, dead, unknown, outside, deleted, members=[member("g_a"), idle])
    found = EveryDescription(every, None).unhealthy().in_znodes
    assert [row.partition for row in found.partitions] == [1, 2, 3, 4, 5]
    assert found.members == (idle,)


def test_what_is_watched_counts_partitions_with_a_live_owner():
    series = {
        TopicPartition("t", number): followed([LagSample(0.0, 5, 1, 0, 5, owner, is_live)])
        for number, (owner, is_live) in enumerate([("g_a-0", True), ("g_x-0", False), (None, False)])
    }
    owners = {partition: sample.owner for partition, (sample,) in series.items() if sample.owner}
    moment = GroupMoment(frozenset({"g_a"}), owners, evaluate_group(series, 2, members=1))
    table = live_table({"g": moment}, {}, one_group=False)
    (owned,) = (column for column in table.columns if column.header == "OWNED")
    assert [str(cell) for cell in owned.cells] == ["1/3"]


def test_a_partition_that_is_stuck_has_the_time_at_which_that_was_first_seen():
    stuck = followed(LagSample(at, 5, 1, 0, 8, "g_a-0", True) for at in (10.0, 80.0))
    stopped = followed(LagSample(at, 5, 1, 0, 8, None, False) for at in (10.0, 80.0))
    outside = followed(LagSample(at, 5, 1, 6, 8, None, False) for at in (10.0, 80.0))
    partitions = {TopicPartition("t", n): samples for n, samples in enumerate((stuck, stopped, outside))}
    rows = list(status_table({"g": evaluate_group(partitions, 2, members=1)}, clock_ms=60_000))[2:]
    assert [row.partition("; first seen so at ")[2] for row in rows] == [*["1970-01-01T00:01:10Z"] * 2, ""]


def test_the_owner_of_a_group_whose_member_ids_are_opaque_has_its_client():
    """With KIP-848 a member id is a random number; before, it begins with the client id."""
    opaque = DescribedGroupMember("x4Fq", None, None, None, None, client_id="app", host="/10.0.0.1")
    named = DescribedGroupMember("app-7f", None, None, None, None, client_id="app", host="/10.0.0.1")
    assert client_names([opaque, named]) == {"x4Fq": "app /10.0.0.1"}
    lag = evaluate_group({TopicPartition("t", 0): followed([LagSample(0.0, 5, 1, 0, 5, "x4Fq", True)])}, 2, members=1)
    _, _, row = status_table({"g": lag}, {"g": client_names([opaque])}, clock_ms=0)
    assert "app /10.0.0.1 (x4Fq)" in row
    table = live_table({"g": GroupMoment(frozenset(), {}, lag)}, {}, one_group=True, clients={"g": {"x4Fq": "app"}})
    (owner,) = (column for column in table.columns if column.header == "OWNER")
    assert [str(cell) for cell in owner.cells] == ["app (x4Fq)"]
