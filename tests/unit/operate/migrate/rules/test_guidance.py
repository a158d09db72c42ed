"""The next step of a group whose members move their offsets to Kafka, from what was watched."""

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.guidance import Evidence, Stage, WatchedPartition, guide
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange

IDLE_IN_ZOOKEEPER = {"znode": 5}
IN_ZOOKEEPER = {"znode": 9, "is_znode_written": True, "former_znode": 9}
ZOOKEEPER_FIRST = {"znode": 100, "is_znode_written": True, "in_kafka": 90, "commits": (80, 90)}
"""A member of zkconsumer with dual commit, between its two writes."""
DUAL = {"znode": 9, "is_znode_written": True, "in_kafka": 9, "commits": (7, 9)}
IDLE_DUAL = {"znode": 5, "in_kafka": 5, "commits": (5, 5)}
IN_KAFKA = {"znode": 5, "in_kafka": 9, "commits": (7, 9)}


def watched(*seen):
    return [one(number, **each) for number, each in enumerate(seen)]


def one(number, owner="", **seen):
    nothing = {"znode": None, "is_znode_written": False, "in_kafka": None, "commits": ()}
    name = f"m{number}-0" if owner == "" else owner
    return WatchedPartition(TopicPartition("t", number), name, **{**nothing, **seen})


@pytest.mark.parametrize(
    ("seen", "evidence"),
    [
        (DUAL, Evidence.PROVEN),
        (IN_KAFKA, Evidence.PROVEN),
        (IN_ZOOKEEPER, Evidence.CONTRADICTED),
        ({**IN_ZOOKEEPER, "in_kafka": 4}, Evidence.CONTRADICTED),
        ({**IN_ZOOKEEPER, "in_kafka": 9}, Evidence.NONE),
        ({**IN_ZOOKEEPER, "in_kafka": 12}, Evidence.CONTRADICTED),
        ({**IN_ZOOKEEPER, "znode": None, "in_kafka": 12}, Evidence.NONE),
        ({"znode": 9, "is_znode_written": True, "in_kafka": 11, "commits": (11,)}, Evidence.PROVEN),
        (IDLE_IN_ZOOKEEPER, Evidence.NONE),
        ({**IN_ZOOKEEPER, "former_znode": None}, Evidence.NONE),
        (ZOOKEEPER_FIRST, Evidence.NONE),
        ({**ZOOKEEPER_FIRST, "former_znode": 90}, Evidence.NONE),
        ({**ZOOKEEPER_FIRST, "former_znode": 95}, Evidence.CONTRADICTED),
        ({**ZOOKEEPER_FIRST, "former_znode": 100, "in_kafka": 100}, Evidence.PROVEN),
        ({**ZOOKEEPER_FIRST, "former_znode": 110, "znode": 90}, Evidence.PROVEN),
        ({**DUAL, "owner": None}, Evidence.NONE),
    ],
)
def test_a_commit_to_kafka_proves_the_storage(seen, evidence):
    assert one(0, **seen).evidence is evidence


@pytest.mark.parametrize(
    ("seen", "is_dual"),
    [
        (DUAL, True),
        (IDLE_DUAL, True),
        (IN_KAFKA, False),
        ({**IN_KAFKA, "znode": None}, False),
        ({**IN_KAFKA, "commits": (9,)}, None),
        ({**IN_KAFKA, "commits": (5, 9)}, None),
        ({**IN_KAFKA, "commits": (5, 7, 9)}, False),
        ({**IN_KAFKA, "commits": (7, 5, 9)}, None),
    ],
)
def test_the_newest_commit_does_not_show_whether_both_stores_get_it(seen, is_dual):
    assert one(0, **seen).is_dual is is_dual


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        ([], Stage.UNKNOWN),
        ([{**DUAL, "owner": None}], Stage.UNKNOWN),
        ([IDLE_IN_ZOOKEEPER], Stage.UNKNOWN),
        ([IN_ZOOKEEPER, IDLE_IN_ZOOKEEPER], Stage.ZOOKEEPER),
        ([IN_ZOOKEEPER, DUAL], Stage.MIXED),
        ([IN_ZOOKEEPER, IN_KAFKA], Stage.MIXED),
        ([DUAL, IDLE_DUAL], Stage.DUAL),
        ([DUAL, IDLE_IN_ZOOKEEPER], Stage.UNKNOWN),
        ([DUAL, {**DUAL, "owner": None}], Stage.UNKNOWN),
        ([DUAL, IN_KAFKA], Stage.DUAL),
        ([DUAL, ZOOKEEPER_FIRST], Stage.UNKNOWN),
        ([IN_KAFKA, IDLE_DUAL], Stage.KAFKA),
        ([IN_KAFKA, {**IN_KAFKA, "commits": (9,)}], Stage.UNKNOWN),
    ],
)
def test_the_stage_follows_from_all_partitions(seen, stage):
    found = guide(watched(*seen))
    assert found.stage is stage
    assert found.step


def test_members_left_behind_are_named():
    assert guide(watched(IN_ZOOKEEPER, DUAL)).left_behind == ("m0-0",)
    found = guide(watched(DUAL, IN_KAFKA))
    assert found.left_behind == ("m0-0",)
    assert "dual.commit.enabled=false" in found.step


def test_members_left_behind_are_sorted():
    seen = [{**DUAL, "owner": name} for name in "fbdaec"]
    assert guide(watched(*seen, IN_KAFKA)).left_behind == tuple("abcdef")
    assert guide(watched(*seen)).left_behind == ()


def test_the_way_back_from_dual_commit_depends_on_whether_a_member_has_ended_it():
    assert "offsets.storage=zookeeper" in guide(watched(DUAL)).back
    assert guide(watched(DUAL, IN_KAFKA)).back == (
        "restart each member with dual.commit.enabled=true and run this command again"
    )


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        ([], "start members"),
        ([{**DUAL, "owner": None}], "start members"),
        ([DUAL, {**DUAL, "owner": None}], "wait until t-1 have had"),
        ([DUAL, IDLE_IN_ZOOKEEPER], "watch longer: t-1 were"),
        ([IN_KAFKA, {**IN_KAFKA, "commits": (9,)}], "watch longer: t-1 were"),
    ],
)
def test_the_step_names_what_is_unknown(seen, step):
    assert guide(watched(*seen)).step.startswith(step)


def test_equal_offsets_are_in_no_way():
    assert guide(watched(IN_ZOOKEEPER, {**IDLE_IN_ZOOKEEPER, "in_kafka": 5})).obstacles == ()
    assert guide(watched(IN_KAFKA, IDLE_DUAL)).warnings == ()


def test_old_offsets_in_kafka_are_in_the_way_of_dual_commit():
    found = guide(watched({**IN_ZOOKEEPER, "in_kafka": 4}, {**IDLE_IN_ZOOKEEPER, "in_kafka": 12}))
    assert found.stage is Stage.ZOOKEEPER
    (obstacle,) = found.obstacles
    assert "t-1" in obstacle
    assert "7 records would be skipped" in obstacle


def test_old_offsets_in_kafka_of_all_partitions_are_in_the_way_too():
    found = guide(watched({**IN_ZOOKEEPER, "in_kafka": 12}))
    assert found.stage is Stage.ZOOKEEPER
    (obstacle,) = found.obstacles
    assert "3 records would be skipped" in obstacle


def test_an_old_znode_is_in_the_way_back():
    found = guide(watched(IN_KAFKA, {**IDLE_DUAL, "znode": 8, "commits": (9, 5)}))
    assert (found.stage, found.obstacles) == (Stage.KAFKA, ())
    (warning,) = found.warnings
    assert "3 records would be skipped" in warning


def test_records_that_a_log_no_longer_has_are_not_skipped():
    log = LogRange(100, 200)
    assert guide(watched({**IN_ZOOKEEPER, "znode": 1, "in_kafka": 2, "log": log})).obstacles == ()
    (obstacle,) = guide(watched({**IN_ZOOKEEPER, "znode": 1, "in_kafka": 103, "log": log})).obstacles
    assert "3 records would be skipped" in obstacle
    (warning,) = guide(watched(IN_KAFKA, {**IDLE_DUAL, "znode": 104, "commits": (9, 5), "log": log})).warnings
    assert "4 records would be skipped" in warning


def test_one_record_is_in_the_way():
    (obstacle,) = guide(watched(IN_ZOOKEEPER, {**IDLE_IN_ZOOKEEPER, "in_kafka": 6})).obstacles
    assert "1 records would be skipped" in obstacle
    (warning,) = guide(watched(IN_KAFKA, {**IDLE_DUAL, "znode": 6, "commits": (9, 5)})).warnings
    assert "1 records would be skipped" in warning
