"""Groups in ZooKeeper and groups of brokers of one cluster, in one list."""

import json

import pytest
from click.testing import CliRunner

from tests.fixtures.consumers import collect, consumers, owned
from tests.fixtures.scriptedserver import SilentServer, running
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.cluster.brokercatalog import PatientCatalog

pytestmark = pytest.mark.integration


@pytest.fixture
def run(sandbox):
    """Run a command that names ZooKeeper and brokers; its result."""
    named = ("--zookeeper", sandbox.zookeeper_connect, "--bootstrap-server", sandbox.bootstrap_servers)
    return lambda *words: CliRunner().invoke(command, [*words, *named])


@pytest.fixture
def both(sandbox, group_nodes, filled_topic, unique_name):
    """A group with znodes, and a group of brokers whose name begins with the same; the names, and their topic."""
    topic, of_brokers = filled_topic(3), f"{group_nodes.name}-at-brokers"
    group_nodes.consume(topic, (0, 1), 3)
    settings = {"group_protocol": "kafka", "auto_offset_reset": "smallest", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": sandbox.bootstrap_servers}, of_brokers, **settings) as make:
        received = collect(make().create_message_streams({topic: 1})[topic])
        eventually(lambda: len(received) == 6)
        yield group_nodes.name, of_brokers, topic


def test_both_kinds_are_in_one_list(both, run, sandbox):
    in_znodes, of_brokers, topic = both
    listed = json.loads(run("groups", "list", "--long", "--topic", topic, "--json").stdout)
    rows = [(one["group"], one["layout"], one["state"], one["members"]) for one in listed]
    assert rows == [(in_znodes, "consumer", None, 1), (of_brokers, "kafka", "Stable", 1)]
    table = run("groups", "list", "--long", "--topic", topic).stdout.splitlines()
    assert "PROTOCOL" in table[0]
    assert len(table) == 3
    assert {in_znodes, of_brokers} <= set(run("groups", "list").stdout.splitlines())
    assert of_brokers not in run("groups", "list", "--all-chroots").stdout
    for group in (in_znodes, of_brokers):
        assert run("groups", "verify", "--group", group).exit_code == 0
        assert topic in run("groups", "describe", "--group", group).stdout
    verified = run("groups", "verify", "--all").stdout.splitlines()
    assert {f"{group}: Rebalance operation successful !" for group in (in_znodes, of_brokers)} <= set(verified)
    named = ("--group", in_znodes, "--group", of_brokers)
    described = json.loads(run("groups", "describe", *named, "--json").stdout)
    assert [(one["group"], one.get("state"), len(one["partitions"])) for one in described] == [
        (in_znodes, None, 2),
        (of_brokers, "Stable", 2),
    ]
    assert "CONSUMER-ID" in run("groups", "describe", *named).stdout
    state = run("groups", "describe", *named, "--state")
    assert (of_brokers in state.stdout, f"group {in_znodes} is in ZooKeeper" in state.stderr) == (True, True)
    assert {in_znodes, of_brokers} <= {
        one["group"] for one in json.loads(run("groups", "describe", "--all", "--json").stdout)
    }
    eventually(lambda: _status(run, of_brokers)["status"] == "OK")
    assert _status(run, in_znodes)["lag"] == 0
    with serving(
        sandbox.zookeeper_connect, "--bootstrap-server", sandbox.bootstrap_servers, "--interval", "200ms"
    ) as served:
        eventually(lambda: served.document(f"/api/groups?search={in_znodes}").get("total") == 2)


def _status(run, group):
    return json.loads(
        run(
            "groups", "status", "--group", group, "--interval", "50ms", "--samples", "2", "--without-verdict", "--json"
        ).stdout
    )


def test_a_group_with_members_in_both_is_one_and_is_found(run, sandbox, group_nodes, filled_topic):
    """Somebody has started the new consumers, and has not stopped the old ones: each record is read twice."""
    topic = filled_topic(3)
    group_nodes.consume(topic, (0, 1), 1)
    settings = {"group_protocol": "kafka", "auto_offset_reset": "smallest"}
    with consumers({"bootstrap.servers": sandbox.bootstrap_servers}, group_nodes.name, **settings) as make:
        one = make()
        one.create_message_streams({topic: 1})
        eventually(lambda: len(owned(one)) == 2)
        (listed,) = json.loads(run("groups", "list", "--long", "--match", group_nodes.name, "--json").stdout)
        assert (listed["members"], listed["layout"], listed["state"]) == (2, "consumer", "Stable")
        explained = run("groups", "explain", "--group", group_nodes.name, "--json")
        assert (explained.exit_code, json.loads(explained.stdout)["findings"][0]["kind"]) == (3, "two-homes")
        status = _status(run, group_nodes.name)
        assert (status["status"], "both read every record" in status["reason"]) == ("WARN", True)
        verified = run("groups", "verify", "--group", group_nodes.name)
        assert (verified.exit_code, "both read every record" in verified.stderr) == (3, True)
        described = json.loads(run("groups", "describe", "--group", group_nodes.name, "--json").stdout)
        assert {member["protocol"] for member in described["members"]} == {"zookeeper", "kafka"}
        assert all(row["owner"] for row in described["partitions"])


@pytest.mark.slow
def test_brokers_that_are_silent_do_not_hide_a_group_in_zookeeper(sandbox, both):
    in_znodes, _, _ = both
    with running(SilentServer) as silent:
        named = ("--zookeeper", sandbox.zookeeper_connect, "--bootstrap-server", f"127.0.0.1:{silent.port}")
        explained = CliRunner().invoke(command, ["groups", "explain", "--group", in_znodes, "--json", *named])
    (finding,) = json.loads(explained.stdout)["findings"]
    assert (explained.exit_code, finding["kind"]) == (3, "unreadable")
    assert "whether it has members at brokers, too, is unknown" in finding["evidence"]


def test_verifying_does_not_wait_for_each_topic_that_brokers_deny(run, group_nodes, monkeypatch):
    def wait(_):
        raise AssertionError("each group with such a topic takes seconds")

    monkeypatch.setitem(PatientCatalog.__init__.__kwdefaults__, "wait", wait)
    group_nodes.consume(f"{group_nodes.name}-gone", (0,), 1)
    verified = run("groups", "verify", "--group", group_nodes.name)
    assert (verified.exit_code, "does not exist" in verified.stderr) == (3, True), verified.stderr


def test_a_group_that_exists_nowhere_is_an_error(run, unique_name):
    for words in (
        ("explain",),
        ("verify",),
        ("describe",),
        ("status", "--interval", "50ms", "--samples", "2", "--without-verdict"),
    ):
        ended = run("groups", *words, "--group", unique_name)
        assert f"group {unique_name} exists neither in ZooKeeper nor at the brokers" in str(ended.exception), words
