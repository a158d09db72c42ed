"""The tools for groups that brokers coordinate, by brokers of many releases and without any ZooKeeper."""

import json
import threading

import pytest
from click.testing import CliRunner

from tests.fixtures.brokers import FULLY_TESTED
from tests.fixtures.consumers import IN_BROKER_GROUP, consumers, owned
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("broker", [*(r for r in FULLY_TESTED if r != "0.8.2.2"), "2.8.2", "4.1.1"], indirect=True),
]

_LISTS_OFFSETS_SINCE = (0, 10, 2)
_DELETES_OFFSETS_SINCE = (2, 4)


@pytest.fixture
def topic(broker, unique_name):
    """Two partitions with five records each."""
    name = broker.create_topic(unique_name[-40:], 2)
    broker.produce(name, [{"value": b"v", "partition": number % 2} for number in range(10)])
    return name


@pytest.fixture
def member(broker, topic, unique_name):
    """The one member of a group, which has consumed and committed everything."""
    with consumers({"bootstrap.servers": broker.sandbox.bootstrap_servers}, unique_name, **IN_BROKER_GROUP) as make:
        made = make()
        (stream,) = made.create_message_streams({topic: 1})[topic]
        received = []
        threading.Thread(target=lambda: received.extend(stream), daemon=True).start()
        eventually(lambda: (len(received), len(owned(made))) == (10, 2))
        made.commit_offsets()
        yield made


def has_left(broker, group):
    """True if the group has no member; without one, brokers before 0.10.2 do not show that it has offsets."""
    words = ["groups", "verify", "--group", group, "--bootstrap-server", broker.sandbox.bootstrap_servers]
    ended = CliRunner().invoke(command, words)
    if broker.release < _LISTS_OFFSETS_SINCE:
        return "does not exist at the brokers" in str(ended.exception)
    return ended.exit_code == 3 and "is a member" in ended.stderr


def test_a_group_is_judged_and_served(broker, member, topic, unique_name):
    group = ("--group", unique_name)
    status = ("groups", "status", *group, "--interval", "50ms", "--samples", "2", "--without-verdict")
    code, found = broker.run_tool(*status, at_brokers=True)
    assert (code, found["status"], found["lag"]) == (0, "OK", 0)
    code, found = broker.run_tool("groups", "verify", *group, at_brokers=True)
    assert (code, found["findings"]) == (0, [])
    code, found = broker.run_tool("groups", "explain", *group, at_brokers=True)
    assert (code, found["findings"]) == (0, [])
    options = ("--bootstrap-server", broker.sandbox.bootstrap_servers, "--interval", "1s")
    with serving(None, *options) as served:
        eventually(lambda: (shown := served.group(unique_name)) and shown["lag"] == 0 and shown["status"] == "OK")
        shown = served.group(unique_name)
        assert [(one["topic"], one["committed"]) for one in shown["partitions"]] == [(topic, 5)] * 2
        assert served.group(unique_name, "/findings")["findings"] == []
    member.shutdown()
    eventually(lambda: has_left(broker, unique_name))
    if broker.release < _LISTS_OFFSETS_SINCE:
        return
    code, found = broker.run_tool("groups", "explain", *group, at_brokers=True)
    assert (code, [one["kind"] for one in found["findings"]]) == (0, ["no-member"]), "without lag, no problem"
    code, found = broker.run_tool(*status, at_brokers=True)
    assert (code, found["status"]) == (0, "NO MEMBERS")


def test_offsets_are_exported_written_and_restored(broker, member, topic, unique_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what undoes a restore is kept in the current directory
    servers = ("--bootstrap-server", broker.sandbox.bootstrap_servers)

    def run(*words, code=0):
        ended = CliRunner().invoke(command, [*words, *servers])
        assert ended.exit_code == code, (words, ended.output, ended.exception)
        return ended

    def committed(group):
        """As an independent client has them: it is no member, so that offsets can be written."""
        from confluent_kafka import Consumer, TopicPartition

        client = Consumer({**broker.client_settings, "group.id": group})
        try:
            return [one.offset for one in client.committed([TopicPartition(topic, n) for n in (0, 1)], timeout=30)]
        finally:
            client.close()

    group = ("--group", unique_name)
    reset = ("offsets", "reset", *group, "--topic", topic, "--to-earliest")
    assert "has members at the brokers" in run(*reset, "--execute", code=3).stderr
    before = tmp_path / "before.json"
    run("offsets", "export", *group, "--output", str(before))
    lines = [json.loads(line) for line in before.read_text().splitlines()]
    assert [(line["group"], line["partition"], line["offset"]) for line in lines] == [
        (unique_name, 0, 5),
        (unique_name, 1, 5),
    ]
    member.shutdown()
    eventually(lambda: has_left(broker, unique_name))
    snapshot = tmp_path / "snapshot.json"
    run(*reset, "--execute", "--snapshot", str(snapshot))
    assert committed(unique_name) == [0, 0]
    run("offsets", "restore", str(snapshot), "--execute")
    assert committed(unique_name) == [5, 5]
    copy = ("offsets", "copy", "--from-group", unique_name, "--to-group", f"{unique_name}-copy", "--topic", topic)
    copied = tmp_path / "copied.json"
    if broker.release < _LISTS_OFFSETS_SINCE:
        assert "name its topics with --topic" in run(*copy[:-2], code=3).stderr
    run(*copy, "--execute", "--snapshot", str(copied))
    assert committed(f"{unique_name}-copy") == [5, 5]
    if broker.release >= _DELETES_OFFSETS_SINCE:
        run("offsets", "restore", str(copied), "--execute")
        assert committed(f"{unique_name}-copy") == [-1001, -1001]
    if broker.release >= _LISTS_OFFSETS_SINCE:
        described = json.loads(run("groups", "describe", *group, "--json").stdout)
        assert [row["committed"] for row in described["partitions"]] == [5, 5]
