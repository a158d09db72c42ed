"""The migration of many groups, on real servers."""

import json
import threading

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from tests.fixtures.groupnodes import GroupNodes
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command

pytestmark = pytest.mark.integration

GROUPS = 5


@pytest.fixture
def fleet(sandbox, zookeeper, filled_topic, unique_name, tmp_path):
    """Groups that have consumed 1 and 2 of three records in each of two partitions, and a directory for their fleet."""
    topic = filled_topic(3)
    groups = [GroupNodes(zookeeper, f"{unique_name}-{number}") for number in range(GROUPS)]
    for number, group in enumerate(groups):
        group.commit(topic, 0, 1)
        group.commit(topic, 1, 1 + number % 2)
    yield Fleet(sandbox, tmp_path / "fleet", topic, groups)
    for group in groups:
        zookeeper.delete(group.root, recursive=True)


class Fleet:
    def __init__(self, sandbox, directory, topic, groups):
        self.sandbox, self.directory, self.topic, self.groups = sandbox, directory, topic, groups
        self.names = [group.name for group in groups]

    def run(self, verb, *words, code=0):
        done = CliRunner().invoke(command, ["migrate", "fleet", verb, str(self.directory), *words])
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def init(self, *words):
        match = f"{self.names[0].removesuffix('-0')}-.*"
        return self.run("init", "--zookeeper", self.sandbox.zookeeper_connect, "--match", match, *words)

    def states(self, code=0):
        rows = json.loads(self.run("status", "--json", code=code).stdout)
        return [row["state"] for row in rows["groups"]]

    def stored(self, number):
        """The offset in ZooKeeper of partition 1."""
        group = self.groups[number]
        return int(group.zookeeper.get(f"{group.root}/offsets/{self.topic}/1")[0])

    def consume(self, number, offset):
        """A new consumer of a group commits, and ends."""
        settings = {"bootstrap.servers": self.sandbox.bootstrap_servers, "group.id": self.names[number]}
        client = Consumer(settings)
        client.commit(offsets=[TopicPartition(self.topic, 1, offset)], asynchronous=False)
        client.close()


def test_waves_there_and_back(fleet):
    assert f"{GROUPS} groups, {GROUPS} of them in waves" in fleet.init("--wave-size", "3").stdout
    assert fleet.states() == ["not started"] * 5
    planned = fleet.run("plan", "--wave", "1")
    assert "3 of 3 groups planned" in planned.stdout
    assert f"next: zkconsumer migrate fleet run {fleet.directory} --wave 1 --execute" in planned.stderr
    assert fleet.states() == ["planned"] * 3 + ["not started"] * 2
    assert "dry run" in fleet.run("run", "--wave", "1").stderr
    assert "3 of 3 groups written" in fleet.run("run", "--wave", "1", "--execute").stdout
    fleet.run("verify", "--wave", "1")
    fleet.consume(0, 3)
    assert fleet.states() == ["consumed"] + ["written"] * 2 + ["not started"] * 2
    assert "2 of 3 groups equal, 1 refused" in fleet.run("verify", "--wave", "1", code=3).stdout
    refused = fleet.run("rollback", "--wave", "1", "--execute", code=3)
    assert "2 of 3 groups rolled back, 1 refused" in refused.stdout
    assert "have moved since the migration" in refused.stderr
    assert fleet.states() == ["consumed"] + ["came back"] * 2 + ["not started"] * 2
    assert "1 of 1 groups written back" in fleet.run("reverse", "--group", fleet.names[0], "--execute").stdout
    assert fleet.states() == ["came back"] * 3 + ["not started"] * 2
    assert fleet.stored(0) == 3
    fleet.run("plan", "--wave", "1")
    assert fleet.states() == ["planned"] * 3 + ["not started"] * 2
    assert "2 not started, 3 planned" in fleet.run("status").stdout
    assert fleet.run("status", "--csv").stdout.count("\n") == GROUPS + 1


def test_what_goes_wrong_is_shown_and_the_others_are_done(fleet):
    fleet.init()
    fleet.groups[1].consume(fleet.topic, (0, 1), 1)
    refused = fleet.run("plan", "--wave", "1", code=3)
    assert "4 of 5 groups planned, 1 refused" in refused.stdout
    assert f"cluster {fleet.names[1]}: refused: group {fleet.names[1]} has 1 live member" in refused.stderr
    assert "4 of 5 groups written, 1 refused" in fleet.run("run", "--wave", "1", "--execute", code=3).stdout
    fleet.groups[2].consume(fleet.topic, (0,), 2)  # an old consumer returns
    assert fleet.states(code=3) == ["written", "planned", "gone wrong", "written", "written"]
    (row,) = json.loads(fleet.run("status", "--group", fleet.names[2], "--json", code=3).stdout)["groups"]
    assert "members are registered in ZooKeeper, though it was migrated" in row["reason"]


def test_groups_are_appended_and_what_people_wrote_stays(fleet):
    fleet.init()
    file = fleet.directory / "cluster.toml"
    file.write_text(file.read_text().replace("wave = 1", "wave = 7", 1).replace('window = ""', "", 1))
    added = GroupNodes(fleet.groups[0].zookeeper, f"{fleet.names[0]}-new")
    fleet.groups.append(added)
    for partition in (0, 1):
        added.commit(fleet.topic, partition, 1)
    assert "1 groups, 1 of them in waves" in fleet.init().stdout
    assert file.read_text().count("wave = 7") == 1
    assert file.read_text().count("[groups.") == GROUPS + 1


def test_a_window_keeps_a_group_from_being_written(fleet):
    fleet.init()
    file = fleet.directory / "cluster.toml"
    text = file.read_text().replace('window = ""', 'window = "2020-01-01T00:00Z/2020-01-02T00:00Z"', 1)
    file.write_text(text)
    fleet.run("plan", "--wave", "1")
    assert "its window is 2020-01-01" in fleet.run("run", "--wave", "1", "--execute", code=3).stderr
    fleet.run("run", "--wave", "1", "--execute", "--any-time")
    assert fleet.states() == ["written"] * GROUPS


def test_servers_of_one_cluster_are_not_those_of_another(fleet, sandbox):
    fleet.init()
    fleet.init("--name", "other")
    ended = CliRunner().invoke(
        command, ["migrate", "fleet", "status", str(fleet.directory), "--zookeeper", sandbox.zookeeper_connect]
    )
    assert (ended.exit_code, "give --cluster" in ended.stderr) == (2, True)
    rows = json.loads(fleet.run("status", "--json", "--cluster", "other").stdout)["groups"]
    assert [row["cluster"] for row in rows] == ["other"] * GROUPS


def test_the_page_of_a_fleet(fleet, sandbox):
    fleet.init()
    fleet.run("plan", "--wave", "1")
    with serving(sandbox.zookeeper_connect, "--fleet", str(fleet.directory)) as served:
        eventually(lambda: served.document("/api/groups").get("has_fleet"))
        assert served.document("/api/fleet")["totals"] == {"planned": GROUPS}
        assert "Migration of the fleet" in served.get("/fleet")[1]
        (fleet.directory / "cluster.toml").write_text("[groups", encoding="utf-8")
        status, text = served.get("/api/fleet")
        assert (status, "cluster.toml" in text) == (503, True)


def test_one_mirror_serves_all_groups(fleet):
    fleet.init()
    fleet.run("plan", "--wave", "1")
    fleet.run("run", "--wave", "1", "--execute")
    for number in range(GROUPS):
        fleet.consume(number, 3)
    # Signals are for the main thread, so the command runs there; an old consumer returns meanwhile.
    returned = threading.Timer(1.5, fleet.groups[4].register, ("c", {fleet.topic: 1}))
    returned.start()
    ended = fleet.run("mirror", "--wave", "1", "--interval", "200ms", "--for", "4s", "--execute", code=3)
    returned.join()
    assert "has 1 live member" in ended.stderr
    assert [fleet.stored(number) for number in range(GROUPS)] == [3] * GROUPS
    eventually(lambda: fleet.states(code=3)[:4] == ["mirrored"] * 4)
    back = fleet.run("reverse", "--group", fleet.names[0], "--json")
    (outcome,) = json.loads(back.stdout)["groups"]
    assert (outcome["outcome"], outcome["warnings"]) == ("done", []), (
        "the mirror's own writes are no sign of a consumer"
    )
