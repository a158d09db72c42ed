"""The JVM's own tools see a group of ours as one of theirs."""

import subprocess

import pytest

from tests.fix_jvm import spread, values
from tests.fix_waiting import eventually


@pytest.fixture
def run(sandbox, jvm):
    """Run a tool of the JVM to its end and return what it printed: ``run("kafka.tools.ExportZkOffsets", ...)``."""

    def tool(main, *arguments, of=jvm):
        done = subprocess.run(of.tool(main, *arguments), capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    return tool


@pytest.fixture
def committed(group, topic_factory, produce):
    """One member of ours and a topic of two partitions, all of whose 100 records are consumed and committed."""
    topic = topic_factory(partitions=2)
    member = group.join("c", {topic: 1})
    produce(topic, spread(values(100), 2))
    eventually(lambda: len(member.received()) == 100)
    member.commit()
    return member, topic


def test_consumer_group_command(group, sandbox, run, committed):
    member, topic = committed
    tool = ("kafka.admin.ConsumerGroupCommand", "--zookeeper", sandbox.zookeeper_connect)
    assert group.name in run(*tool, "--list").split()
    rows = [line.split() for line in run(*tool, "--describe", "--group", group.name).splitlines()]
    assert [row for row in rows if row[:1] == [topic]] == [
        [topic, str(partition), "50", "50", "0", member.consumer_id] for partition in (0, 1)
    ]
    assert "active" in run(*tool, "--delete", "--group", group.name)
    group.leave(member)
    assert "Deleted" in run(*tool, "--delete", "--group", group.name)
    assert not group.children()


def test_export_and_import_of_offsets(group, sandbox, run, committed, tmp_path):
    member, topic = committed
    group.leave(member)
    file = tmp_path / "offsets"
    connect = ("--zkconnect", sandbox.zookeeper_connect)
    run("kafka.tools.ExportZkOffsets", *connect, "--group", group.name, "--output-file", str(file))
    assert sorted(file.read_text().splitlines()) == [f"{group.path('offsets', topic, p)}:50" for p in (0, 1)]
    file.write_text(file.read_text().replace(":50", ":48"))
    run("kafka.tools.ImportZkOffsets", *connect, "--input-file", str(file))
    again = group.join("c", {topic: 1})
    eventually(lambda: len(again.received()) == 4)
    assert {record[2] for record in again.received()} == {48, 49}


def test_consumer_offset_checker(group, sandbox, run, committed, old_jvm):
    member, topic = committed
    said = run(
        "kafka.tools.ConsumerOffsetChecker", "--zookeeper", sandbox.zookeeper_connect, "--group", group.name, of=old_jvm
    )
    rows = [line.split() for line in said.splitlines()]
    assert [row for row in rows if row[1:2] == [topic]] == [
        [group.name, topic, str(p), "50", "50", "0", f"{member.consumer_id}-0"] for p in (0, 1)
    ]


def test_verify_consumer_rebalance(group, sandbox, run, committed):
    said = run(
        "kafka.tools.VerifyConsumerRebalance", "--zookeeper.connect", sandbox.zookeeper_connect, "--group", group.name
    )
    assert "Rebalance operation successful" in said
