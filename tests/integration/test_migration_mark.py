"""Members, tools and verdicts of a group that was migrated, on real servers."""

import json
import re

import pytest
from click.testing import CliRunner

from tests.fixtures.consumers import collect
from tests.fixtures.sandbox import Topics
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig, ConsumerConnector, GroupMigrated
from zkconsumer.cli.main import command
from zkconsumer.operate.migrate.run import run_plan

pytestmark = pytest.mark.integration


@pytest.fixture
def migrated(migration):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    assert run_plan(migration.ends(), migration.plan(), migration.file).faults == []
    return migration


@pytest.fixture
def run(sandbox):
    """Run a command on the sandbox's ZooKeeper; its result."""
    return lambda *words: CliRunner().invoke(command, [*words, "--zookeeper", sandbox.zookeeper_connect])


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator"])
def test_a_member_does_not_join_and_the_mark_can_be_removed(migrated, run, sandbox, protocol):
    group = migrated.group.name
    config = ConsumerConfig(zookeeper_connect=sandbox.zookeeper_connect, group_id=group, group_protocol=protocol)
    with ConsumerConnector(config) as connector, pytest.raises(GroupMigrated, match=f"kafka:{group}"):
        connector.create_message_streams({migrated.topic: 1})
    assert "would be removed" in run("migrate", "unmark", "--group", group).stdout
    assert "removed" in run("migrate", "unmark", "--group", group, "--execute").stdout
    assert "has no mark" in run("migrate", "unmark", "--group", group).stdout
    with ConsumerConnector(config) as connector:
        received = collect(connector.create_message_streams({migrated.topic: 1})[migrated.topic])
        eventually(lambda: len(received) == 9)


@pytest.mark.slow
def test_the_mark_in_a_copy_of_an_ensemble_is_removed_there(migrated, private_sandbox, run):
    """A cluster is copied for a test, or moved: its groups are not migrated there."""
    group, copy = migrated.group.name, private_sandbox()
    Topics(copy.bootstrap_servers).create(migrated.topic, 2)
    before = migrated.group.tree()
    with connected(copy.zookeeper_connect) as client:
        for path, data in sorted(before.items()):
            client.ensure_path(path)
            client.set(path, data)
    config = ConsumerConfig(zookeeper_connect=copy.zookeeper_connect, group_id=group)
    with ConsumerConnector(config) as connector, pytest.raises(GroupMigrated):
        connector.create_message_streams({migrated.topic: 1})
    unmark = ["migrate", "unmark", "--group", group, "--execute", "--zookeeper", copy.zookeeper_connect]
    assert CliRunner().invoke(command, unmark).exit_code == 0
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({migrated.topic: 1})
        eventually(lambda: len(connector.describe().owned) == 2)
    assert migrated.group.tree() == before


def test_tools_know_that_the_group_is_done(migrated, run, sandbox):
    group = ("--group", migrated.group.name)
    status = run("groups", "status", *group, "--interval", "50ms", "--samples", "2", "--without-verdict", "--json")
    assert (status.exit_code, json.loads(status.stdout)["status"]) == (0, "MIGRATED")
    (listed,) = json.loads(run("groups", "list", "--long", "--match", migrated.group.name, "--json").stdout)
    assert listed["status"] == "MIGRATED"
    survey = run("migrate", "survey", *group, "--json")
    assert (survey.exit_code, json.loads(survey.stdout)["verdict"]) == (0, "migrated")
    at_brokers = f"--group {migrated.group.name} --bootstrap-server {sandbox.bootstrap_servers}"
    assert f"zkconsumer groups explain {at_brokers} --zookeeper" in json.loads(survey.stdout)["next"]
    explained = run("groups", "explain", *group, "--json")
    (finding,) = json.loads(explained.stdout)["findings"]
    assert (finding["kind"], at_brokers in finding["next_command"]) == ("migrated", True)
    assert (explained.exit_code, finding["is_problem"]) == (0, False), "as status, since nothing is wrong"
    reset = run("offsets", "reset", *group, "--all-topics", "--to-earliest")
    assert (reset.exit_code, f"was migrated to kafka:{migrated.group.name}" in reset.stderr) == (3, True), reset.stderr
    assert "give --store kafka for offsets there" in reset.stderr
    rename = run("groups", "rename", "--from", migrated.group.name, "--to", "other", "--store", "zookeeper")
    assert (rename.exit_code, "was migrated" in rename.stderr) == (3, True)
    guide = run("migrate", "guide", *group)
    assert (guide.exit_code, "was migrated" in guide.stderr) == (3, True), "its next step is not to start members"


def test_beside_brokers_a_group_that_nobody_consumes_is_not_done(migrated, run, sandbox):
    """1. A group is migrated; 2. the new consumers do not start, or end: that they have moved must not hide it."""
    group = ("--group", migrated.group.name, "--bootstrap-server", sandbox.bootstrap_servers)
    status = run("groups", "status", *group, "--interval", "50ms", "--samples", "2", "--without-verdict", "--json")
    found = json.loads(status.stdout)
    assert (status.exit_code, found["status"], found["lag"]) == (3, "NO MEMBERS", 9)
    explained = run("groups", "explain", *group, "--json")
    kinds = {finding["kind"] for finding in json.loads(explained.stdout)["findings"]}
    assert (explained.exit_code, "no-member" in kinds, "migrated" in kinds) == (3, True, False), kinds
    verified = run("groups", "verify", *group)
    assert (verified.exit_code, "is a member" in verified.stderr) == (3, True), verified.stderr
    surveyed = json.loads(run("migrate", "survey", *group, "--json").stdout)
    assert (surveyed["verdict"], surveyed["findings"][0]["code"]) == ("migrated", "no-member")
    described = json.loads(run("groups", "describe", *group, "--unhealthy", "--json").stdout)
    assert [row["owner"] for row in described["partitions"]] == [None, None]


def test_beside_brokers_a_group_whose_offsets_have_expired_is_not_done(migrated, run, sandbox):
    """The test deletes the group, which is what its coordinator does when the last offset expires."""
    from confluent_kafka.admin import AdminClient

    name = migrated.group.name
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    admin.delete_consumer_groups([name])[name].result(30)
    group = ("--group", name, "--bootstrap-server", sandbox.bootstrap_servers)
    lost = f"the brokers have no group {name}"
    status = run("groups", "status", *group, "--interval", "50ms", "--samples", "2", "--without-verdict", "--json")
    found = json.loads(status.stdout)
    assert (status.exit_code, found["status"], lost in found["reason"]) == (3, "NO MEMBERS", True), found
    every = run("groups", "list", "--long", "--match", name, "--json", *group[2:])
    assert [one["status"] for one in json.loads(every.stdout)] == ["NO MEMBERS"]
    explained = run("groups", "explain", *group, "--json")
    (finding,) = json.loads(explained.stdout)["findings"]
    assert (explained.exit_code, finding["kind"], lost in finding["evidence"]) == (3, "no-member", True)
    verified = run("groups", "verify", *group)
    assert (verified.exit_code, lost in verified.stderr) == (3, True), verified.stderr
    surveyed = run("migrate", "survey", *group, "--json")
    found = json.loads(surveyed.stdout)
    assert (surveyed.exit_code, found["verdict"], lost in found["findings"][0]["text"]) == (3, "not ready", True)
    described = run(
        "groups", "describe", "--all", "--bootstrap-server", sandbox.bootstrap_servers, "--unhealthy", "--json"
    )
    (unhealthy,) = (one for one in json.loads(described.stdout) if one["group"] == name)
    assert (described.exit_code, [row["owner"] for row in unhealthy["partitions"]]) == (3, [None, None])


def test_serve_shows_that_a_group_was_migrated_and_judges_it_at_named_brokers(migrated, sandbox):
    group = migrated.group.name

    def shown(served):
        found = served.document("/api/groups")
        (line,) = found.get("groups") or [{}]
        series = rf'^zkconsumer_consumergroup_status{{consumergroup="{group}",status="(.*)"}} 1$'
        exported = re.findall(series, served.get("/metrics")[1], re.MULTILINE)
        partitions = (served.group(group) or {}).get("partitions", ())
        return line.get("status"), line.get("lag"), found.get("counts"), exported, {one["status"] for one in partitions}

    of_group = ("--match", group, "--interval", "200ms", "--samples", "2")
    with serving(sandbox.zookeeper_connect, *of_group) as served:
        eventually(lambda: shown(served) == ("MIGRATED", 9, {"MIGRATED": 1}, ["MIGRATED"], {"MIGRATED"}))
        assert served.group(group)["reason"] == f"its consumers continue at kafka:{group}"
    with serving(sandbox.zookeeper_connect, *of_group, "--bootstrap-server", sandbox.bootstrap_servers) as served:
        eventually(lambda: shown(served)[:4] == ("NO MEMBERS", 9, {"NO MEMBERS": 1}, ["NO MEMBERS"]))
        assert "MIGRATED" not in shown(served)[4]


def test_members_that_return_are_a_problem(migrated, group_nodes, run):
    """Those of the JVM know no mark."""
    group_nodes.name, group_nodes.root = migrated.group.name, f"/consumers/{migrated.group.name}"
    group_nodes.consume(migrated.topic, (0, 1), 10)
    status = run(
        "groups",
        "status",
        "--group",
        group_nodes.name,
        "--interval",
        "50ms",
        "--samples",
        "2",
        "--without-verdict",
        "--json",
    )
    found = json.loads(status.stdout)
    assert (status.exit_code, found["status"]) == (3, "WARN")
    assert "it has members, though it was migrated to kafka:" in found["reason"]


def test_a_deleted_group_may_begin_again_and_a_restored_one_has_its_mark(migrated, run, tmp_path):
    before = migrated.group.tree()
    delete = ("groups", "delete", "--group", migrated.group.name, "--store", "zookeeper", "--execute")
    assert run(*delete, "--snapshot", str(tmp_path / "snapshot")).exit_code == 0
    assert migrated.group.tree() == {}
    restore = ("offsets", "restore", str(tmp_path / "snapshot"), "--execute", "--snapshot", str(tmp_path / "undo"))
    assert run(*restore).exit_code == 0
    assert migrated.group.tree() == before


def test_who_writes_offsets_that_nobody_reads_is_told(migrated, run, tmp_path):
    group, snapshot = migrated.group.name, tmp_path / "snapshot"
    reset = ("offsets", "reset", "--group", group, "--topic", migrated.topic, "--to-earliest", "--store", "zookeeper")
    done = run(*reset, "--execute", "--snapshot", str(snapshot))
    warning = f"group {group} was migrated to kafka:{group}, where its consumers continue"
    assert (done.exit_code, warning in done.stderr) == (0, True)
    undone = run("offsets", "restore", str(snapshot))
    assert (undone.exit_code, warning in undone.stderr) == (0, True)
