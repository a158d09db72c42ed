"""The migration of many groups, on real servers."""

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.fixtures.groupnodes import GroupNodes
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.testing.proxy import TcpProxy

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

    def init(self, *words, code=0):
        match = f"{self.names[0].removesuffix('-0')}-.*"
        return self.run("init", "--zookeeper", self.sandbox.zookeeper_connect, "--match", match, *words, code=code)

    def states(self, code=0):
        rows = json.loads(self.run("status", "--json", code=code).stdout)
        return [row["state"] for row in rows["groups"]]

    def stored(self, number):
        """The offset in ZooKeeper of partition 1."""
        group = self.groups[number]
        return int(group.zookeeper.get(f"{group.root}/offsets/{self.topic}/1")[0])

    def forget_in_kafka(self, number):
        """The offsets of a group expire."""
        admin = AdminClient({"bootstrap.servers": self.sandbox.bootstrap_servers})
        (deleted,) = admin.delete_consumer_groups([self.names[number]]).values()
        deleted.result()

    def consume(self, number, offset):
        """A new consumer of a group commits, and ends."""
        settings = {"bootstrap.servers": self.sandbox.bootstrap_servers, "group.id": self.names[number]}
        client = Consumer(settings)
        client.commit(offsets=[TopicPartition(self.topic, 1, offset)], asynchronous=False)
        client.close()


def test_waves_there_and_back(fleet, tmp_path):
    assert f"{GROUPS} groups, {GROUPS} of them in waves" in fleet.init("--wave-size", "3").stdout
    assert fleet.states() == ["not started"] * 5
    planned = fleet.run("plan", "--wave", "1")
    assert "3 of 3 groups planned" in planned.stdout
    assert f"next: zkconsumer migrate fleet run {fleet.directory} --wave 1 --execute" in planned.stderr
    assert fleet.states() == ["planned"] * 3 + ["not started"] * 2
    dry = fleet.run("run", "--wave", "1")
    assert ("3 of 3 groups would be written" in dry.stdout, "dry run" in dry.stderr) == (True, True)
    assert "3 of 3 groups written" in fleet.run("run", "--wave", "1", "--execute").stdout
    verified = fleet.run("verify", "--wave", "1").stderr
    assert "to do: start the new consumers" in verified
    assert f"next: zkconsumer migrate fleet mirror {fleet.directory} --wave 1 --execute" in verified
    assert "next: zkconsumer migrate fleet plan" in fleet.run("status").stderr
    assert "to do: start the new consumers" in fleet.run("status", "--wave", "1").stderr
    fleet.consume(0, 3)
    assert fleet.states() == ["consumed"] + ["written"] * 2 + ["not started"] * 2
    assert "2 of 3 groups equal, 1 skipped" in fleet.run("verify", "--wave", "1").stdout
    refused = fleet.run("rollback", "--wave", "1", "--execute", code=3)
    assert "2 of 3 groups rolled back, 1 refused" in refused.stdout
    assert "have moved since the migration" in refused.stderr
    of_group = f"--group {fleet.names[0]} --cluster cluster"
    assert f"with `zkconsumer migrate fleet reverse {fleet.directory} {of_group}`" in refused.stderr
    assert fleet.states() == ["consumed"] + ["rolled back"] * 2 + ["not started"] * 2
    again = fleet.run("run", "--wave", "1", "--execute", code=3)
    assert "0 of 3 groups written, 1 skipped, 2 refused" in again.stdout, "they were rolled back on purpose"
    assert (
        "0 of 2 groups written back, 2 skipped"
        in fleet.run("reverse", "--group", fleet.names[1], "--group", fleet.names[2], "--execute").stdout
    )
    mirror = fleet.run("mirror", "--wave", "1", "--interval", "1s", "--for", "1s", "--execute", "--json")
    rounds = [json.loads(line)["totals"] for line in mirror.stdout.splitlines()]
    assert rounds in ([{"done": 1}], [{"done": 1}] * 2), "one, if the first took a second"
    assert mirror.stderr.count("skipped: it is rolled back") == 2
    back = fleet.run("reverse", "--group", fleet.names[0], "--execute")
    assert "1 of 1 groups written back" in back.stdout
    _, remove = back.stderr.rstrip().split("next: zkconsumer ")
    removed = CliRunner().invoke(command, [*shlex.split(remove), "--snapshot", str(tmp_path / "removed")])
    assert (removed.exit_code, "written" in removed.stderr) == (0, True)
    assert fleet.states() == ["came back"] + ["rolled back"] * 2 + ["not started"] * 2
    assert fleet.stored(0) == 3
    fleet.run("plan", "--wave", "1")
    assert fleet.states() == ["planned"] * 3 + ["not started"] * 2
    assert "2 not started, 3 planned" in fleet.run("status").stdout
    assert fleet.run("status", "--csv").stdout.count("\n") == GROUPS + 1


def test_a_group_that_cannot_be_read_is_missing_in_the_file_until_it_can(fleet, zookeeper):
    offsets = f"{fleet.groups[1].root}/offsets"
    zookeeper.set_acls(offsets, [make_acl("world", "anyone", write=True, admin=True)])
    try:
        initialized = fleet.init(code=3)
    finally:
        zookeeper.set_acls(offsets, OPEN_ACL_UNSAFE)
    assert f"{GROUPS - 1} groups, {GROUPS - 1} of them in waves" in initialized.stdout
    assert f"warning: group {fleet.names[1]} cannot be read: ZooKeeper refused" in initialized.stderr
    assert f"1 groups are added to {GROUPS - 1}, 1 of them in waves" in fleet.init().stdout


def test_what_goes_wrong_is_shown_and_the_others_are_done(fleet):
    fleet.init()
    fleet.groups[1].consume(fleet.topic, (0, 1), 1)
    refused = fleet.run("plan", "--wave", "1", code=3)
    assert "4 of 5 groups planned, 1 refused" in refused.stdout
    assert f"cluster {fleet.names[1]}: refused: group {fleet.names[1]} has 1 live member" in refused.stderr
    dry = json.loads(fleet.run("run", "--wave", "1", "--json", code=3).stdout)
    assert (dry["executed"], dry["totals"]) == (False, {"done": 4, "refused": 1})
    assert fleet.states() == ["planned"] * 5
    assert "4 of 5 groups written, 1 refused" in fleet.run("run", "--wave", "1", "--execute", code=3).stdout
    fleet.groups[2].consume(fleet.topic, (0,), 2)  # an old consumer returns
    assert fleet.states(code=3) == ["written", "planned", "gone wrong", "written", "written"]
    (row,) = json.loads(fleet.run("status", "--group", fleet.names[2], "--json", code=3).stdout)["groups"]
    assert "members are registered in ZooKeeper, though it was migrated" in row["reason"]


@pytest.mark.slow
def test_the_progress_of_a_run_is_drawn_on_a_terminal(fleet, tmp_path):
    """ZooKeeper answers slowly: nothing is drawn for what ends within a second."""
    fleet.init()
    fleet.run("plan", "--wave", "1")
    with TcpProxy(fleet.sandbox.zookeeper_connect) as proxy:
        proxy.delay(0.01)
        words = ["run", str(fleet.directory), "--wave", "1", "--execute", "--workers", "1"]
        code, drawn, printed = on_a_terminal(["migrate", "fleet", *words, "--zookeeper", proxy.address])
    assert code == 0, (drawn, printed)
    counts = re.findall(rf" (\d)/{GROUPS} ", drawn)
    assert len(set(counts)) > 1, "the bar advances"
    assert counts == sorted(counts)
    assert f"{GROUPS} of {GROUPS} groups written" in printed
    assert "next: zkconsumer migrate fleet verify" in drawn.rsplit("\x1b", 1)[-1], "the bar is gone then"


def on_a_terminal(words):
    """Run a command whose standard error is a terminal: its exit code, what it draws there, and its output."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    command_line = [sys.executable, "-m", "zkconsumer", *words]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = bytearray()
        with suppress(OSError):  # EIO: the command has ended
            while part := os.read(terminal, 4096):
                drawn += part
        printed = process.stdout.read().decode()
    os.close(terminal)
    plain = re.sub(r"\x1b\[[0-9;?]*m", "", drawn.decode())  # without colours
    return process.returncode, plain, printed


def test_new_consumers_are_told_their_protocol(fleet):
    """With brokers before 4.0 there is none that assigns."""
    fleet.init()
    file = fleet.directory / "cluster.toml"
    file.write_text(file.read_text().replace('protocol = "kafka"', 'protocol = "consumer"', 1))
    (changed,) = re.findall(r'\[groups."([^"]*)"\][^\[]*protocol = "consumer"', file.read_text())
    printed = json.loads(fleet.run("config", "--wave", "1", "--target", "java", "--json", code=3).stdout)
    protocols = {one["group"]: one["properties"]["group.protocol"] for one in printed}
    assert protocols == dict.fromkeys(fleet.names, "classic") | {changed: "consumer"}
    refused = fleet.run("plan", "--wave", "1", code=3)
    assert f"{GROUPS - 1} of {GROUPS} groups planned, 1 refused" in refused.stdout
    assert f"cluster {changed}: refused: its new consumers have protocol consumer" in refused.stderr


def test_groups_are_appended_and_what_people_wrote_stays(fleet):
    fleet.init()
    file = fleet.directory / "cluster.toml"
    file.write_text(file.read_text().replace("wave = 1", "wave = 7", 1).replace('window = ""', "", 1))
    added = GroupNodes(fleet.groups[0].zookeeper, f"{fleet.names[0]}-new")
    fleet.groups.append(added)
    for partition in (0, 1):
        added.commit(fleet.topic, partition, 1)
    assert f"1 groups are added to {GROUPS}, 1 of them in waves" in fleet.init().stdout
    assert (file.read_text().count("wave = 7"), file.read_text().count("wave = 8")) == (1, 1)
    assert file.read_text().count("[groups.") == GROUPS + 1


def test_a_window_keeps_a_group_from_being_written(fleet):
    fleet.init()
    file = fleet.directory / "cluster.toml"
    text = file.read_text().replace('window = ""', 'window = "2020-01-01T00:00Z/2020-01-02T00:00Z"', 1)
    file.write_text(text)
    fleet.run("plan", "--wave", "1")
    assert "its window is 2020-01-01" in fleet.run("run", "--wave", "1", code=3).stderr
    assert "its window is 2020-01-01" in fleet.run("run", "--wave", "1", "--execute", code=3).stderr
    fleet.run("run", "--wave", "1", "--execute", "--any-time")
    assert fleet.states() == ["written"] * GROUPS


def test_servers_of_one_cluster_are_not_those_of_another(fleet, sandbox):
    fleet.init()
    file = fleet.directory / "cluster.toml"
    (fleet.directory / "other.toml").write_text(file.read_text().replace("127.0.0.1", "localhost"))
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


@pytest.mark.slow
def test_one_mirror_serves_all_groups(fleet):
    fleet.init()
    fleet.run("plan", "--wave", "1")
    fleet.run("run", "--wave", "1", "--execute")
    for number in range(GROUPS):
        fleet.consume(number, 3)
    assert "5 of 5 groups would be copied" in fleet.run("mirror", "--wave", "1").stdout
    assert fleet.stored(0) == 1

    def return_when_copied():
        eventually(lambda: fleet.stored(4) == 3)
        fleet.groups[4].register("c", {fleet.topic: 1})

    # Signals are for the main thread, so the command runs there; an old consumer returns meanwhile.
    returned = threading.Thread(target=return_when_copied)
    returned.start()
    ended = fleet.run("mirror", "--wave", "1", "--interval", "200ms", "--for", "8s", "--execute", code=3)
    returned.join()
    assert "has 1 live member" in ended.stderr
    assert [fleet.stored(number) for number in range(GROUPS)] == [3] * GROUPS
    eventually(lambda: fleet.states(code=3)[:4] == ["mirrored"] * 4)
    back = fleet.run("reverse", "--group", fleet.names[0], "--json")
    (outcome,) = json.loads(back.stdout)["groups"]
    assert (outcome["outcome"], outcome["warnings"]) == ("done", []), (
        "the mirror's own writes are no sign of a consumer"
    )
    ended = fleet.run("reverse", "--group", fleet.names[0], "--execute")
    assert f"{fleet.names[0]}: written back, no offsets: there was nothing to do" in ended.stdout
    assert fleet.states(code=3)[0] == "came back", "although every znode had its offset already"
    fleet.run("plan", "--group", fleet.names[0])
    assert fleet.states(code=3)[0] == "planned"


def test_what_a_file_accepts_of_the_way_there_it_does_not_of_the_way_back(fleet):
    fleet.groups[0].zookeeper.delete(f"{fleet.groups[0].root}/offsets/{fleet.topic}/0")
    fleet.init()
    file = fleet.directory / "cluster.toml"
    file.write_text(file.read_text().replace("wave = 0", 'wave = 0\nmissing = "latest"\nrewind = true'))
    of_group = ("--group", fleet.names[0])
    assert "planned, 2 offsets, 3 records skipped" in fleet.run("plan", *of_group).stdout
    fleet.run("run", *of_group, "--execute")
    fleet.forget_in_kafka(0)
    assert "plan with --missing" in fleet.run("reverse", *of_group, "--execute", code=3).stderr
    assert fleet.stored(0) == 1


def test_another_target_than_that_of_the_plan_is_refused(fleet):
    fleet.init()
    fleet.run("plan", "--wave", "1")
    file, of_group = fleet.directory / "cluster.toml", ("--group", fleet.names[0])
    file.write_text(file.read_text().replace(f"kafka:{fleet.names[0]}", f"kafka:{fleet.names[0]}-other"))
    refused = fleet.run("run", *of_group, "--execute", code=3).stderr
    assert f"its file has the target kafka:{fleet.names[0]}-other, and its plan kafka:{fleet.names[0]}" in refused
    assert fleet.states(code=3)[0] == "gone wrong"
    fleet.run("plan", *of_group)
    assert fleet.states()[0] == "planned"


def test_a_group_whose_offsets_are_all_in_kafka_needs_no_plan(fleet, tmp_path):
    """Its old consumers have stored them there, as with offsets.storage=kafka."""
    group = fleet.groups[0]
    servers = ("--zookeeper", fleet.sandbox.zookeeper_connect)
    group.own(fleet.topic, 0, "c")
    group.disown(fleet.topic, 0)  # its parent stays, and names the topic
    group.zookeeper.delete(f"{group.root}/offsets", recursive=True)
    fleet.consume(0, 1)
    group.register("c", {fleet.topic: 1})
    fleet.init()
    of_group = ("--group", group.name)

    def reached():
        (row,) = json.loads(fleet.run("status", *of_group, "--json").stdout)["groups"]
        return row["state"]

    def surveyed():
        done = CliRunner().invoke(command, ["migrate", "survey", *servers, *of_group])
        return done.exit_code, done.stdout.split("\n", 1)[0]

    assert (reached(), surveyed()) == ("needs no plan", (0, f"{group.name}: running"))
    assert "skipped: all of its offsets are in Kafka: stop the old consumers" in fleet.run("plan", *of_group).stdout
    group.zookeeper.delete(f"{group.root}/ids/{group.name}_c")
    client = Consumer({"bootstrap.servers": fleet.sandbox.bootstrap_servers, "group.id": group.name})
    client.subscribe([fleet.topic])
    eventually(lambda: client.poll(0.1) or client.assignment())
    assert (reached(), surveyed()) == ("consumed", (0, f"{group.name}: migrated"))
    words = ["groups", "delete", *servers, *of_group, "--store", "zookeeper", "--execute"]
    deleted = CliRunner().invoke(command, [*words, "--snapshot", str(tmp_path / "deleted")])
    assert (deleted.exit_code, reached()) == (0, "done"), deleted.output
    client.close()
    group.commit(fleet.topic, 0, 1)  # for the end of the test


def test_old_consumers_that_returned_are_planned_again(fleet):
    fleet.init()
    fleet.run("plan", "--wave", "1")
    fleet.run("run", "--wave", "1", "--execute")
    fleet.groups[0].commit(fleet.topic, 1, 3)
    fleet.consume(0, 2)
    (row,) = json.loads(fleet.run("status", "--group", fleet.names[0], "--json", code=3).stdout)["groups"]
    assert (row["state"], "plan it again" in row["reason"]) == ("gone wrong", True)
    of_group = ("--group", fleet.names[0])
    fleet.run("plan", *of_group)
    assert (fleet.directory / "cluster" / f"{fleet.names[0]}.earlier-1" / "plan.json").exists()
    assert fleet.states()[0] == "planned"
    assert "1 of 1 groups written" in fleet.run("run", *of_group, "--execute").stdout
    assert fleet.states()[0] == "written"


def test_a_killed_run_whose_consumers_have_continued_is_repeated(fleet):
    """1. It has written everything; 2. it is killed before its file shows that; 3. consumers commit, and end."""
    fleet.init()
    of_group = ("--group", fleet.names[0])
    fleet.run("plan", *of_group)
    fleet.run("run", *of_group, "--execute")
    (runs,) = (fleet.directory / "cluster" / fleet.names[0]).glob("plan.json*.snapshot.json")
    runs.write_text(runs.read_text().replace('"complete"', '"writing"', 1))
    fleet.consume(0, 2)
    (row,) = json.loads(fleet.run("status", *of_group, "--json", code=3).stdout)["groups"]
    assert (row["state"], "run it again to complete the migration" in row["reason"]) == ("gone wrong", True)
    assert "have committed beyond the plan since" in fleet.run("run", *of_group, "--execute").stderr
    assert fleet.states()[0] == "consumed"
    fleet.run("reverse", *of_group, "--execute")
    assert (fleet.states()[0], fleet.stored(0)) == ("came back", 2)


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_hides_no_other(fleet):
    fleet.init()
    (fleet.directory / "away.toml").write_text('[cluster]\nzookeeper = "127.0.0.1:1"\n[groups.g]\nwave = 9\n')
    assert fleet.states(code=3) == ["unknown"] + ["not started"] * GROUPS
    assert "0 of 1 groups planned, 1 failed" in fleet.run("plan", "--wave", "9", code=1).stdout


def test_a_plan_that_was_cut_is_replaced_unless_it_was_run(fleet):
    fleet.init()
    fleet.run("plan", "--wave", "1")
    plan_file = fleet.directory / "cluster" / fleet.names[0] / "plan.json"
    plan_file.write_text(plan_file.read_text()[:100])
    (row,) = json.loads(fleet.run("status", "--group", fleet.names[0], "--json", code=3).stdout)["groups"]
    assert (row["state"], str(plan_file) in row["reason"]) == ("unknown", True)
    assert str(plan_file) in fleet.run("run", "--group", fleet.names[0], code=1).stderr
    fleet.run("plan", "--group", fleet.names[0])
    fleet.run("run", "--group", fleet.names[0], "--execute")
    whole = plan_file.read_text()
    plan_file.write_text(whole[:100])
    refused = fleet.run("plan", "--group", fleet.names[0], code=1).stderr
    assert (f"{plan_file} is not" in refused, "put a copy of that file back" in refused) == (True, True)
    plan_file.write_text(whole)
    assert fleet.states()[0] == "written"
