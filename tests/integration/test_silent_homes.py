"""Groups of ZooKeeper and of brokers, while one of the two does not answer, or refuses."""

import json
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.security import make_digest_acl

from tests.fixtures.consumers import collect, consumers
from tests.fixtures.groupnodes import GroupNodes
from tests.fixtures.sandbox import PATIENT, Topics
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.cli.main import command

pytestmark = pytest.mark.integration

TIMEOUTS = ("-p", "zookeeper.session.timeout.ms=3000", "-p", "zookeeper.connection.timeout.ms=2000")


@pytest.fixture
def of_brokers(sandbox, filled_topic, unique_name):
    """A group of brokers with a member that has consumed all; its name."""
    topic = filled_topic(3)
    settings = {"group_protocol": "kafka", "auto_offset_reset": "smallest", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": sandbox.bootstrap_servers}, unique_name, **settings) as make:
        received = collect(make().create_message_streams({topic: 1})[topic])
        eventually(lambda: len(received) == 6)
        yield unique_name


@pytest.fixture
def zookeeper(start_zookeeper):
    """A server that can be paused; brokers of the group above do not need it."""
    server = start_zookeeper()
    yield server
    server.resume()


def run(zookeeper, sandbox, *words):
    named = ("--zookeeper", zookeeper.address, "--bootstrap-server", sandbox.bootstrap_servers, *TIMEOUTS)
    return CliRunner().invoke(command, ["groups", *words, *named])


@pytest.mark.slow
def test_a_silent_zookeeper_does_not_hide_groups_of_brokers(zookeeper, sandbox, of_brokers):
    group = of_brokers
    zookeeper.pause()
    listed = run(zookeeper, sandbox, "list")
    assert (listed.exit_code, group in listed.stdout.splitlines()) == (3, True)
    assert "warning: groups in ZooKeeper cannot be listed now: no ZooKeeper server" in listed.stderr
    described = run(zookeeper, sandbox, "describe", "--group", group, "--json")
    assert (described.exit_code, json.loads(described.stdout)["members"][0]["protocol"]) == (0, "kafka")
    assert "warning: groups in ZooKeeper cannot be listed now: no ZooKeeper server" in described.stderr
    short = ("--interval", "50ms", "--samples", "2", "--without-verdict")
    status = run(zookeeper, sandbox, "status", "--group", group, *short, "--json")
    assert (status.exit_code, json.loads(status.stdout)["status"]) == (0, "OK")
    assert "warning: groups in ZooKeeper cannot be listed now" in status.stderr
    assert run(zookeeper, sandbox, "status", "--all", *short).exit_code == 3
    watched = run(zookeeper, sandbox, "watch", "--group", group, "--for", "50ms")
    assert (watched.exit_code, group in watched.stdout) == (0, True)
    assert "warning: groups in ZooKeeper cannot be listed now" in watched.stderr
    verified = run(zookeeper, sandbox, "verify", "--group", group)
    assert (verified.exit_code, "successful" in verified.stdout) == (0, True)
    assert "whether it has members in ZooKeeper, too, is unknown: no ZooKeeper server" in verified.stderr
    elsewhere = run(zookeeper, sandbox, "describe", "--group", "elsewhere")
    assert "no ZooKeeper server" in str(elsewhere.exception)


@pytest.mark.parametrize(
    "words",
    [
        "describe",
        pytest.param("status --interval 50ms --samples 2 --without-verdict", marks=pytest.mark.slow),
        pytest.param("verify", marks=pytest.mark.slow),
        pytest.param("explain", marks=pytest.mark.slow),
    ],
)
def test_without_members_at_brokers_a_group_may_have_some_in_a_silent_zookeeper(
    zookeeper, sandbox, topic_factory, unique_name, words
):
    topic, group = topic_factory(), unique_name
    with closing(Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    zookeeper.pause()
    ended = run(zookeeper, sandbox, *words.split(), "--group", group)
    assert (ended.exit_code, group in ended.output) == (3, True), ended.exception
    assert "no ZooKeeper server" in ended.output


@pytest.mark.parametrize(
    "words",
    [
        "list",
        pytest.param("describe", marks=pytest.mark.slow),
        pytest.param("status --interval 50ms --samples 2 --without-verdict", marks=pytest.mark.slow),
        "verify",
        pytest.param("explain", marks=pytest.mark.slow),
    ],
)
def test_a_zookeeper_that_refuses_does_not_hide_groups_of_brokers(zookeeper, sandbox, of_brokers, words):
    group = of_brokers
    with connected(zookeeper.address) as client:
        GroupNodes(client, group).commit("t", 0, 1)
        for path in ("/consumers", f"/consumers/{group}/offsets"):
            client.set_acls(path, [make_digest_acl("operator", "secret", all=True)])
    ended = run(zookeeper, sandbox, *words.split(), *([] if words == "list" else ["--group", group]))
    assert (ended.exit_code, group in ended.stdout + ended.stderr) == (3, True), ended.exception
    assert "ZooKeeper refused children of /consumers" in ended.output


@pytest.mark.slow
def test_serve_begins_without_zookeeper_and_keeps_its_groups_when_it_becomes_silent(zookeeper, sandbox, of_brokers):
    group = of_brokers
    with connected(zookeeper.address) as client:
        GroupNodes(client, "g").commit("t", 0, 1)
    zookeeper.pause()
    options = ("--bootstrap-server", sandbox.bootstrap_servers, "--interval", "500ms", *TIMEOUTS)
    with serving(zookeeper.address, *options) as served:

        def lines():
            found = served.document("/api/groups").get("groups", ())
            return {line["group"]: (line["stale"], line["status"]) for line in found if line["group"] in (group, "g")}

        def problems():
            return [p for p in found_problems(served) if "groups in ZooKeeper cannot be listed now" in p]

        def answering():
            return {one["kind"]: one["answers"] for one in served.document("/api/groups")["servers"]}

        eventually(lambda: lines() == {group: (False, "OK")})
        assert problems()
        assert answering() == {"zookeeper": False, "broker": True}
        (unknown,) = served.group(group, "/findings")["findings"]
        assert "whether it has members in ZooKeeper, too, is unknown" in unknown["evidence"]
        zookeeper.resume()
        eventually(lambda: "g" in lines() and not lines()["g"][0] and not problems())
        assert answering() == {"zookeeper": True, "broker": True}
        zookeeper.pause()
        eventually(lambda: lines() == {group: (False, "OK"), "g": (True, "UNKNOWN")})
        assert problems()
        found = served.group("g")
        assert (found["stale"], found["partitions"][0]["committed"]) == (True, 1)
        assert "ZooKeeper" in found["reason"]
        zookeeper.resume()
        eventually(lambda: not lines()["g"][0])


def test_serve_ends_if_the_chroot_is_wrong(sandbox):
    named = ("--zookeeper", f"{sandbox.zookeeper_connect}/nowhere", "--bootstrap-server", sandbox.bootstrap_servers)
    words = [sys.executable, "-m", "zkconsumer", "serve", *named, "--listen", "127.0.0.1:0"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, "/nowhere" in ended.stderr) == (1, True)


@pytest.mark.slow
def test_serve_keeps_groups_of_silent_brokers_until_they_answer_without_them(private_sandbox):
    box = private_sandbox(**PATIENT)
    topic = Topics(box.bootstrap_servers).create("t")
    with closing(Consumer({"bootstrap.servers": box.bootstrap_servers, "group.id": "k"})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    with connected(box.zookeeper_connect) as client:
        GroupNodes(client, "g").commit(topic, 0, 0)
    named = ("--bootstrap-server", box.bootstrap_servers)
    with serving(box.zookeeper_connect, *named, "--interval", "500ms") as served:

        def stale():
            return {name: line["stale"] for name, line in lines_of(served).items()}

        eventually(lambda: stale() == {"g": False, "k": False})
        box.brokers[0].pause()
        try:
            eventually(lambda: stale().get("k") is True)
            found = served.group("k")
            assert (found["status"], found["partitions"][0]["committed"]) == ("UNKNOWN", 0)
            assert found["failure"]
            assert found["reason"].startswith(f"{found['failure']}; it was NO MEMBERS")

            def in_zookeeper():
                line, group = lines_of(served)["g"], served.group("g")
                shown = (line["was"], line["lag"], group["was"], group["lag"], group["partitions"][0]["lag"])
                return line["status"], line["stale"], shown

            eventually(lambda: in_zookeeper() == ("UNKNOWN", True, ("NO MEMBERS", 0, "NO MEMBERS", 0, 0)))
            eventually(lambda: any("that brokers coordinate cannot be listed now" in p for p in found_problems(served)))
        finally:
            box.brokers[0].resume()
        eventually(lambda: stale() == {"g": False, "k": False})
        admin = AdminClient({"bootstrap.servers": box.bootstrap_servers})
        admin.delete_consumer_groups(["k"])["k"].result(30)
        eventually(lambda: stale() == {"g": False})


def lines_of(served):
    return {line["group"]: line for line in served.document("/api/groups").get("groups", ())}


def found_problems(served):
    return served.document("/api/groups")["problems"]
