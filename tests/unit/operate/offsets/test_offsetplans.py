"""What copies, imports, resets and exports make of what the stores hold; what is unknown is not taken for absent."""

import pytest

from tests.fixtures.groupsinmemory import log
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS
from zkconsumer.errors import GroupMissing, NoCommonVersion, WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, topic_id_of
from zkconsumer.operate.groups.groupremoval import plan_rename
from zkconsumer.operate.migrate.migrationmark import write_mark
from zkconsumer.operate.offsets.offsetexport import export_offsets
from zkconsumer.operate.offsets.offsetfiles import GroupOffset, parse_offsets
from zkconsumer.operate.offsets.offsetimport import plan_copy, plan_import
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
from zkconsumer.zookeeper.rules.znodes import MigrationMark

P0, P1 = PARTITIONS[:2]


@pytest.fixture
def servers(servers):
    servers.store(OFFSETS)
    return servers


@pytest.fixture
def unreadable(servers):
    servers.write("/consumers/g/offsets/t/1", b"abc")


@pytest.mark.usefixtures("unreadable")
def test_what_cannot_be_read_is_not_copied_in_silence(servers, session):
    with pytest.raises(WriteRefused, match="znode /consumers/g/offsets/t/1"):
        plan_copy(session, servers.brokers, "g", "h")
    (group,) = plan_copy(session, servers.brokers, "g", "h", {"t": (0,)}).groups
    assert [row.partition for row in group.rows] == [P0]


@pytest.mark.usefixtures("unreadable")
@pytest.mark.parametrize("spec", [ResetSpec("current"), ResetSpec("shift", 1)])
def test_no_reset_begins_at_what_cannot_be_read(servers, session, spec):
    plan = plan_reset(session, servers.brokers, "g", None, spec, store="zookeeper")
    assert "znode /consumers/g/offsets/t/1" in plan.refusals[0]
    assert plan_reset(session, servers.brokers, "g", {"t": [0]}, spec, store="zookeeper").refusals == ()


@pytest.mark.usefixtures("unreadable")
def test_a_reset_to_a_given_place_replaces_it(servers, session):
    plan = plan_reset(session, servers.brokers, "g", {"t": [1]}, ResetSpec("offset", 7))
    (row,) = plan.groups[0].rows
    assert (plan.refusals, row.old, row.new, row.skipped) == ((), None, 7, None)
    assert "znode /consumers/g/offsets/t/1" in plan.warnings[0]


def test_a_topic_that_brokers_do_not_describe_is_not_one_that_does_not_exist(servers, session):
    """A reset of all topics would leave it where it is, an import would skip it, and both would say nothing of it."""
    secret = TopicPartition("secret", 0)
    servers.brokers.logs[secret] = log()
    servers.store({secret: 20})
    servers.brokers.undescribed = {"secret"}
    file = parse_offsets("f", b"/consumers/h/offsets/t/0:7\n/consumers/h/offsets/secret/0:8\n")
    for plan in (
        lambda: plan_reset(session, servers.brokers, "g", None, ResetSpec("earliest"), store="zookeeper"),
        lambda: plan_reset(session, servers.brokers, "g", {"secret": None}, ResetSpec("earliest"), store="zookeeper"),
        lambda: plan_import(session, servers.brokers, file, skip_missing=True),
        lambda: plan_copy(session, servers.brokers, "g", "h"),
    ):
        with pytest.raises(ZkConsumerError, match="do not describe topics: secret TOPIC_AUTHORIZATION_FAILED"):
            plan()
    assert plan_reset(session, servers.brokers, "g", {"t": None}, ResetSpec("earliest")).refusals == ()


@pytest.mark.parametrize(
    ("stored", "warned"), [({P1: 1}, 0), ({TopicPartition("u", 0): 1}, 1), ({}, 1)], ids=["of it", "of others", "none"]
)
def test_an_import_warns_of_a_topic_of_which_the_brokers_have_no_offset(servers, session, stored, warned):
    """They delete offsets with their topic; those of the file may be of an earlier one."""
    servers.brokers.store("archive", stored)
    file = parse_offsets("f", b"t,0,7\n", "archive")
    warnings = plan_import(session, servers.brokers, file, store="kafka").warnings
    assert sum("group archive has no offsets of t in Kafka; if a topic was" in one for one in warnings) == warned


@pytest.mark.usefixtures("unreadable")
def test_an_import_replaces_it_with_a_warning(servers, session):
    file = parse_offsets("f", b"/consumers/g/offsets/t/1:7\n")
    plan = plan_import(session, servers.brokers, file)
    assert (plan.refusals, [row.new for row in plan.groups[0].rows]) == ((), [7])
    assert "znode /consumers/g/offsets/t/1" in plan.warnings[0]


def test_a_group_that_a_typo_would_create_is_named(servers, session):
    servers.store(OFFSETS)
    file = parse_offsets("f", b"/consumers/gg/offsets/t/1:7\n")
    for plan in (plan_import(session, servers.brokers, file), plan_copy(session, servers.brokers, "g", "gg")):
        assert plan.warnings == ("group gg does not exist, and is created",)
    assert plan_copy(session, servers.brokers, "g", "gg", store="kafka").warnings != ()


def test_a_group_at_the_brokers_that_has_committed_nothing_exists(servers, session, monkeypatch):
    """`groups list` shows it: its consumers joined, and left."""
    file = parse_offsets("f", b"t,0,7\n", "archive")

    def missing():
        reset = plan_reset(session, servers.brokers, "archive", {"t": None}, ResetSpec("earliest"), store="kafka")
        imported = plan_import(session, servers.brokers, file, store="kafka")
        return [any("does not exist" in text for text in texts) for texts in (reset.refusals, imported.warnings)]

    assert missing() == [True, True]
    servers.brokers.store("archive", {})
    assert missing() == [False, False]
    monkeypatch.setattr(servers.brokers, "describe", _raise_no_common_version)
    assert missing() == [True, True], "brokers before 0.9 have no groups"


def _raise_no_common_version(_group):
    raise NoCommonVersion("no common version of DescribeGroups")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("migrated", "was migrated to kafka:g, where its consumers continue"),
        ("migrating", "is being migrated to kafka:g: complete it with `zkconsumer migrate run`"),
        ("undoing", "is being undone: complete the rollback"),
    ],
)
def test_a_group_with_the_mark_of_a_migration_is_copied_with_a_warning(servers, session, state, words):
    write_mark(session, "g", MigrationMark(state, "kafka:g", 1))
    plan = plan_copy(session, servers.brokers, "g", "h")
    assert words in plan.warnings[0]


def test_an_offset_of_an_earlier_topic_is_written_again_though_it_is_equal(servers, session):
    """Members ignore it, and begin at the log start."""
    servers.create_topic_again()
    reset = plan_reset(session, servers.brokers, "g", {"t": [0]}, ResetSpec("offset", 10), store="zookeeper")
    imported = plan_import(session, servers.brokers, parse_offsets("f", b"/consumers/g/offsets/t/0:10\n"))
    for plan in (reset, imported):
        assert [(row.old, row.new, row.skipped) for row in plan.groups[0].rows] == [(None, 10, None)]
        assert [(node.path, node.after.data) for node in plan.groups[0].change.nodes] == [
            ("/consumers/g/offsets/t/0", b"10")
        ]
        assert plan.refusals == ()
        assert "were stored for earlier topics of that name, so they count as none: t-0" in plan.warnings[0]


def test_an_offset_of_an_earlier_topic_in_kafka_is_committed_again_though_it_is_equal(servers, session):
    servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0],"1":[0]}}')
    servers.brokers.groups["g"] = {P0: StoredOffset(10, "zkconsumer:x:old"), P1: StoredOffset(11, "zkconsumer:x:new")}
    wanted = ResetSpec("file", offsets={P0: 10, P1: 11})
    (group,) = plan_reset(session, servers.brokers, "g", None, wanted, store="kafka").groups
    assert [(one.partition, one.after, topic_id_of(one.metadata)) for one in group.change.kafka] == [(P0, 10, "new")]
    (both,) = plan_reset(session, servers.brokers, "g", {"t": [0]}, ResetSpec("latest"), store="both").groups
    assert [row.old for row in both.rows] == [None], "that in ZooKeeper may be a copy"


@pytest.mark.parametrize("spec", [ResetSpec("current"), ResetSpec("shift", 1)])
def test_no_reset_begins_at_an_offset_of_an_earlier_topic(servers, session, spec):
    servers.create_topic_again()
    servers.store({P1: 20})
    plan = plan_reset(session, servers.brokers, "g", {"t": [0, 1]}, spec, store="zookeeper")
    assert plan.refusals == ("no stored offset of t-0 counts; reset it to an offset instead",)
    assert [row.partition for row in plan.groups[0].rows] == [P1]


def test_offsets_of_an_earlier_topic_are_neither_copied_nor_renamed(servers, session):
    """The znodes of the other group would be newer than the topic, so its members would begin there."""
    servers.create_topic_again()
    with pytest.raises(WriteRefused, match="were stored for earlier topics of that name"):
        plan_copy(session, servers.brokers, "g", "h")
    with pytest.raises(WriteRefused, match="were stored for earlier topics of that name"):
        plan_rename(session, servers.brokers, "g", "h")
    servers.write("/consumers/g/offsets/t/1", 5)
    (group,) = plan_copy(session, servers.brokers, "g", "h", {"t": (1,)}).groups
    assert [row.new for row in group.rows] == [5]


def test_offsets_of_an_earlier_topic_are_not_exported(servers, session):
    """The same of an export and an import: members would begin at an offset of the earlier topic."""
    servers.create_topic_again()
    servers.write("/consumers/g/offsets/t/1", 5)
    exported = export_offsets(session, servers.brokers.config, ["g"])
    assert exported.offsets == (GroupOffset("g", P1, 5),)
    (problem,) = exported.problems
    assert problem == "offsets of group g were stored for earlier topics of that name: t-0, t-2, t-3, t-4"


def test_the_offsets_of_the_other_groups_are_exported_where_groups_are_missing(servers, session):
    exported = export_offsets(session, servers.brokers.config, ["team/app", "h", "g"])
    assert [row.partition for row in exported.offsets] == PARTITIONS
    impossible, missing = exported.problems
    assert "group h does not exist in ZooKeeper; check its name and the chroot" in missing
    assert "'team/app' cannot be the name of a group" in impossible
    with pytest.raises(GroupMissing, match="group h does not exist"):
        export_offsets(session, servers.brokers.config, ["h"])


def test_offsets_of_a_topic_that_is_not_described_may_be_those_of_an_earlier_one(servers, session):
    """A damaged znode shows neither that the topic is that of the offsets, nor that it is another one."""
    servers.write("/brokers/topics/t", b"{")
    for plan in plan_copy, plan_rename:
        with pytest.raises(ZkConsumerError, match="topics are not described, so it is unknown which exist: t"):
            plan(session, servers.brokers, "g", "h")
    exported = export_offsets(session, servers.brokers.config, ["g"])
    assert [row.partition for row in exported.offsets] == PARTITIONS
    (warning,) = exported.warnings
    assert warning.startswith("group g: topics are not described")
    assert warning.endswith("members use: t")


def test_offsets_before_their_topic_are_written_with_a_warning(servers, session):
    """No record of the group proves that they are of an earlier topic; what is written would hide it."""
    servers.create_topic_again(is_recorded=False)
    servers.write("/consumers/g/offsets/t/1", 5)
    exported = export_offsets(session, servers.brokers.config, ["g"])
    assert ([row.partition for row in exported.offsets], exported.problems) == (PARTITIONS, ())
    plans = [plan_copy(session, servers.brokers, "g", "h"), plan_rename(session, servers.brokers, "g", "h")]
    for warnings in (exported.warnings, *(plan.warnings for plan in plans)):
        (warning,) = [one for one in warnings if "before the topic" in one]
        assert "offsets of t-0, t-2, t-3, t-4 were stored before the topic was created" in warning


def test_a_negative_offset_is_none(servers, session):
    servers.write("/consumers/g/offsets/t/1", b"-1")
    nodes = offset_nodes(session, "g")
    assert (nodes.offset(P1), P1 in nodes.offsets(), nodes.problems) == (None, False, ())
    exported = export_offsets(session, servers.brokers.config, ["g"])
    assert [row.partition for row in exported.offsets] == [p for p in PARTITIONS if p != P1]
    assert "znode /consumers/g/offsets/t/1" in exported.problems[0]
    for plan in (plan_copy(session, servers.brokers, "g", "h"), plan_rename(session, servers.brokers, "g", "h")):
        assert P1 not in [row.partition for row in plan.groups[0].rows]


def test_a_store_with_negative_offsets_alone_has_none(servers, session):
    servers.store(dict.fromkeys(PARTITIONS, -1))
    servers.brokers.store("g", OFFSETS)
    plan = plan_reset(session, servers.brokers, "g", None, ResetSpec("earliest"))
    assert (plan.refusals, len(plan.groups[0].change.kafka)) == ((), len(PARTITIONS))
