"""Groups that are deleted and renamed: what is deleted is decided by a clock that the test turns."""

from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import BrokersInMemory, log, session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.grouplist import matching_groups
from zkconsumer.operate.groups.groupremoval import plan_clean, plan_delete, plan_rename
from zkconsumer.operate.migrate.migrationmark import write_mark
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.snapshot import SnapshotFile
from zkconsumer.zookeeper.rules.znodes import MigrationMark

DAY = 86_400.0


class World:
    """A ZooKeeper in memory; ``now`` is the time in seconds."""

    def __init__(self) -> None:
        self.now = 1000 * DAY
        self.server = ZooKeeperInMemory(lambda: self.now)
        self.session = session_in_memory(self.server)
        self.write("/brokers/topics")

    def write(self, path) -> None:
        self.session.ensure_path(path, b"1")

    def restart_member(self, group) -> None:
        """A member registers, and its session ends."""
        with closing(session_in_memory(self.server)) as member:
            member.ensure_path(f"/consumers/{group}/ids", None)
            assert member.create_ephemerals([(f"/consumers/{group}/ids/m", b"{}")])

    def clean(self, match=None):
        """The names of the groups that are deleted, and the warnings."""
        plan = plan_clean(self.session, int(90 * DAY * 1000), match, now_ms=lambda: int(self.now * 1000))
        return [one.change.group for one in plan.groups if one.change.nodes], list(plan.warnings)


@pytest.fixture
def world():
    made = World()
    made.write("/consumers/g/offsets/t/0")
    made.restart_member("g")
    return made


def test_a_group_at_rest_is_deleted(world):
    world.now += 5 * DAY
    world.write("/brokers/topics/t")
    world.now += 95 * DAY
    assert world.clean() == (["g"], [])


@pytest.mark.parametrize(("match", "deleted"), [(None, ["g", "gh"]), ("", []), ("g", ["g"]), ("g.*", ["g", "gh"])])
def test_the_groups_that_a_pattern_lists_are_deleted(world, match, deleted):
    """With an empty variable in `--match "$PATTERN"` a script deletes nothing, as `groups list` lists nothing."""
    world.write("/consumers/gh/offsets/t/0")
    world.now += 5 * DAY
    world.write("/brokers/topics/t")
    world.now += 95 * DAY
    assert world.clean(match) == (deleted, [])
    assert matching_groups(world.session, match) == deleted


def test_a_pattern_that_is_no_regex_is_refused(world):
    with pytest.raises(ZkConsumerError, match="is not a regex"):
        world.clean("(")


def test_a_group_whose_member_has_just_left_is_kept(world):
    world.now += 99 * DAY
    world.write("/brokers/topics/t")
    world.now += DAY
    world.restart_member("g")
    assert world.clean() == ([], [])


def test_a_group_of_which_it_is_unknown_is_kept_with_a_warning(world):
    world.now += 100 * DAY
    world.restart_member("g")
    deleted, (warning,) = world.clean()
    assert deleted == []
    assert "group g is kept" in warning
    assert "zkconsumer groups delete" in warning


def test_a_group_with_the_mark_of_a_migration_is_kept(world):
    """Without its mark an old consumer would join again, and read everything once more."""
    world.write("/consumers/g/zkconsumer/migrated")
    world.now += 5 * DAY
    world.write("/brokers/topics/t")
    world.now += 95 * DAY
    deleted, (warning,) = world.clean()
    assert (deleted, "has the mark of a migration" in warning) == ([], True)
    plan = plan_delete(world.session, BrokersInMemory({}), ["g"], None, store="zookeeper")
    assert "the mark of the migration of group g is deleted, too" in "".join(plan.warnings)
    brokers = BrokersInMemory({})
    brokers.store("g", {TopicPartition("t", 0): 5})
    (warning,) = plan_delete(world.session, brokers, ["g"], None, store="kafka").warnings
    assert "group g was migrated to another store, where its consumers continue" in warning


def test_members_at_the_brokers_keep_both_stores_as_they_are(world):
    """The coordinator would refuse its part after the znodes are deleted."""
    brokers = BrokersInMemory({TopicPartition("t", 0): log()})
    brokers.store("g", {TopicPartition("t", 0): 5})
    brokers.live.add("g")
    for store in ("both", "kafka"):
        (reason,) = plan_delete(world.session, brokers, ["g"], None, store=store).refusals
        assert "group g has members at the brokers" in reason
    assert plan_delete(world.session, brokers, ["g"], None, store="zookeeper").refusals == ()


def test_a_group_without_offsets_is_not_renamed(world):
    world.write("/consumers/empty/owners/t")
    with pytest.raises(ZkConsumerError, match="group empty has no offsets in ZooKeeper"):
        plan_rename(world.session, BrokersInMemory({}), "empty", "h")


def test_only_commands_with_the_option_name_it(world):
    world.session.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    world.session.create_ephemerals([("/consumers/g/ids/g_c", b"{}")], ["/consumers/g/ids"])
    brokers = BrokersInMemory({TopicPartition("t", 0): log()})
    deletion = plan_delete(world.session, brokers, ["g"], None, store="zookeeper")
    assert "--force-live" in "".join(deletion.refusals)
    renaming = plan_rename(world.session, brokers, "g", "h", store="zookeeper")
    assert "stop them, and try again" in "".join(renaming.refusals)
    assert "--force-live" not in "".join(renaming.refusals)


@pytest.mark.parametrize("command", ["delete", "delete in both", "clean", "rename"])
def test_a_group_that_a_migration_has_marked_meanwhile_is_not_removed(world, tmp_path, command):
    """1. The removal is planned; 2. a migration marks the group, and writes to Kafka; 3. there would be no way back."""
    brokers = BrokersInMemory({TopicPartition("t", 0): log()})
    world.session.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    world.now += 100 * DAY
    match command:
        case "clean":
            plan = plan_clean(world.session, int(90 * DAY * 1000), now_ms=lambda: int(world.now * 1000))
        case "rename":
            plan = plan_rename(world.session, brokers, "g", "h", store="zookeeper")
        case _:
            store = "zookeeper" if command == "delete" else "both"
            plan = plan_delete(world.session, brokers, ["g"], None, store=store)
    write_mark(world.session, "g", MigrationMark("migrated", "kafka:g", 1))
    before = dict(world.server.nodes)
    with pytest.raises(WriteRefused, match="a migration began meanwhile: group g was migrated to kafka:g"):
        execute(world.session, brokers, plan, SnapshotFile(tmp_path / "snapshot"))
    assert {path for path in before if "/offsets" in path} <= world.server.nodes.keys()
    assert "/consumers/h/offsets" not in world.server.nodes
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("was_registered", [True, False])
def test_a_group_whose_member_came_and_went_before_the_hold_is_not_cleaned(world, tmp_path, was_registered):
    """It committed nothing, so no znode is newer than the plan."""
    group = "g" if was_registered else "new"
    world.write(f"/consumers/{group}/offsets/t/0")
    world.now += 100 * DAY
    world.write("/brokers/topics/t")
    world.now += 100 * DAY
    plan = plan_clean(world.session, int(90 * DAY * 1000), group, now_ms=lambda: int(world.now * 1000))
    assert [one.change.group for one in plan.groups if one.change.nodes] == [group]
    world.restart_member(group)
    before = set(world.server.nodes)
    with pytest.raises(WriteRefused, match=f"members of group {group} came or went meanwhile"):
        execute(world.session, BrokersInMemory({}), plan, SnapshotFile(tmp_path / "snapshot"))
    assert set(world.server.nodes) == before


def test_a_group_is_deleted_with_the_mark_that_was_shown(world, tmp_path):
    brokers = BrokersInMemory({TopicPartition("t", 0): log()})
    write_mark(world.session, "g", MigrationMark("migrated", "kafka:g", 1))
    plan = plan_delete(world.session, brokers, ["g"], None, store="zookeeper")
    assert execute(world.session, brokers, plan, SnapshotFile(tmp_path / "snapshot")).is_complete
    assert "/consumers/g" not in world.server.nodes
