"""The JVM's own tools see a group of ours as one of theirs, and our tools print of any group what those print."""

import json
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from kazoo.exceptions import NoNodeError

from tests.fixtures.jvm import CRASHES, PATIENT_PROPERTIES, spread
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig
from zkconsumer.errors import SandboxError
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession


@pytest.fixture
def run(sandbox, jvm):
    """Run a tool of the JVM to its end and return what it printed: ``run("kafka.tools.ExportZkOffsets", ...)``."""

    def tool(main, *arguments, of=jvm):
        done = subprocess.run(of.tool(main, *arguments), capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + done.stderr

    return tool


@pytest.fixture
def committed(group, topic_factory, produce):
    """One member of ours and a topic of two partitions, all of whose 100 records are consumed and committed."""
    topic = topic_factory(partitions=2)
    member = group.join("c", {topic: 1})
    produce(topic, spread(values(100), 2))
    eventually(lambda: len({record[:3] for record in member.received()}) == 100)
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
    eventually(lambda: len({record[:3] for record in again.received()}) == 4)
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


# -- our tools beside the JVM's --------------------------------------------------------------------------------

RECORDS = 90


@pytest.fixture
def ours(sandbox):
    """Run a command of ``zkconsumer groups`` to its end: ``ours("describe", ..., code=0)``; None is any exit code."""

    def command(*arguments, code=0):
        where = ("--zookeeper", sandbox.zookeeper_connect, *PATIENT_PROPERTIES)
        full = [sys.executable, "-m", "zkconsumer", "groups", *arguments, *where]
        ended = subprocess.run(full, capture_output=True, text=True, timeout=300, check=False)
        assert code is None or ended.returncode == code, ended.stderr
        return ended.stdout

    return command


@pytest.fixture
def theirs(sandbox, jvm):
    """Run a tool of 1.1.1 to its end and return what it printed on standard output."""

    def tool(main, *arguments, connect="--zookeeper"):
        full = jvm.tool(main, connect, sandbox.zookeeper_connect, *arguments)
        return subprocess.run(full, capture_output=True, text=True, timeout=300, check=False).stdout

    return tool


def assert_same(printed, wanted):
    """Ours prints what theirs prints. Both are asked again where they differ, since the group may have changed between
    the two: JVM members rebalance once more after they have joined, and a broker may be slow to answer.
    """
    for _ in range(4):
        found, expected = printed(), wanted()
        if found == expected:
            break
    assert found == expected


@pytest.fixture(scope="session")
def checker(sandbox):
    """Run ConsumerOffsetChecker of 0.10.2.2 for a group and return what it printed on standard output."""
    jars = JarSource.from_environment().provide(read_lock("kafka-0.10.2.2"), Progress())

    def check(group):
        words = ("kafka.tools.ConsumerOffsetChecker", "--zookeeper", sandbox.zookeeper_connect, "--group", group)
        full = java_command(find_java().executable, ("-Xmx128m",), jars, *words)
        return subprocess.run(full, capture_output=True, text=True, timeout=300, check=False).stdout

    return check


def join_static(group, topics):
    """Two members that own partitions, ours with two threads, and one that owns none."""
    group.join_jvm("a", {topic: 1 for topic in topics})
    group.join("b", {topic: 2 for topic in topics})
    group.join_jvm("z", {topic: 1 for topic in topics})


def join_white_list(group, topics):
    group.join_jvm("a", topic_filter=("Whitelist", topics[0].rpartition("-")[0] + ".*"))
    group.join("b", topic_filter=("Whitelist", topics[0].rpartition("-")[0] + ".*"))


def join_mixed(group, topics):
    group.join_jvm("a", topic_filter=("Whitelist", topics[0]))
    group.join("b", {topics[1]: 1})
    group.join_jvm("c", {topics[0]: 1, topics[1]: 1})


@pytest.fixture(params=[join_static, join_white_list, join_mixed], ids=["static", "white list", "mixed"])
def consumed(group, topic_factory, produce, request):
    """A group whose members have consumed and committed the records of two topics, and then one record more came."""
    topics = [topic_factory(partitions=3), topic_factory(partitions=3)]
    request.param(group, topics)
    group.settle()
    for topic in topics:
        produce(topic, spread(values(RECORDS), 3))
    eventually(lambda: len({record[:3] for record in group.received()}) == 2 * RECORDS)
    for topic in topics:  # nothing is handed out again, and committed, while two tools are compared

        def all_is_committed(topic=topic):
            for member in group.members:
                member.commit()
            return group.offsets(topic) == dict.fromkeys(range(3), RECORDS // 3)

        eventually(all_is_committed)
    return topics


def rows_of(text, first):
    """The lines after the heading, as a set; the heading is the first line that begins so."""
    lines = text.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(first)]
    return lines[start], set(lines[start + 1 :])


def test_describe_prints_what_the_jvm_prints(group, consumed, theirs, ours):
    describe = ("--describe", "--group", group.name)

    def assert_same_rows():
        assert_same(
            lambda: rows_of(ours("describe", "--group", group.name), "TOPIC"),
            lambda: rows_of(theirs("kafka.admin.ConsumerGroupCommand", *describe), "TOPIC"),
        )

    assert_same_rows()
    assert ours("describe", "--group", group.name).startswith("\nTOPIC")
    for member in list(group.members):
        group.leave(member)
    assert_same_rows()


def test_the_checker_format_is_what_the_checker_prints(group, consumed, checker, ours):
    assert_same(
        lambda: rows_of(ours("describe", "--group", group.name, "--format", "checker"), "Group"),
        lambda: rows_of(checker(group.name), "Group"),
    )


def test_unknown_offsets_are_printed_as_the_jvm_prints_them(group, topic_factory, zookeeper, theirs, checker, ours):
    topic = topic_factory(partitions=2)
    member = group.join_jvm("a", {topic: 1}, auto_commit_enable="false")
    group.settle()
    describe = ("kafka.admin.ConsumerGroupCommand", "--describe", "--group", group.name)
    wanted = set()

    def read_theirs():
        wanted.clear()
        wanted.update(line for line in theirs(*describe).splitlines() if line.startswith(topic))
        return wanted

    assert_same(lambda: rows_of(ours("describe", "--group", group.name), "TOPIC")[1], read_theirs)
    assert len(wanted) == 2
    assert all(line.split()[2:5:2] == ["-", "-"] for line in wanted)
    zookeeper.ensure_path(group.path("offsets", topic))
    assert_same(
        lambda: rows_of(ours("describe", "--group", group.name, "--format", "checker"), "Group"),
        lambda: rows_of(checker(group.name), "Group"),
    )
    group.leave(member)


def test_list_prints_what_the_jvm_prints(group, consumed, theirs, ours):
    wanted = theirs("kafka.admin.ConsumerGroupCommand", "--list").split()
    assert group.name in wanted
    assert_same(
        lambda: set(ours("list").splitlines()),
        lambda: set(theirs("kafka.admin.ConsumerGroupCommand", "--list").split()),
    )


def test_verify_prints_what_the_jvm_prints(group, consumed, theirs, ours):
    words = ("kafka.tools.VerifyConsumerRebalance", "--group", group.name)
    assert_same(
        lambda: ours("verify", "--group", group.name, code=None),
        lambda: theirs(*words, connect="--zookeeper.connect"),
    )
    assert "failed" not in ours("verify", "--group", group.name)


def test_a_failed_rebalance_is_what_the_jvm_calls_one(group, topic_factory, zookeeper, theirs, ours):
    topic = topic_factory(partitions=2)
    group.join_jvm("a", {topic: 1})
    group.settle()
    words = ("kafka.tools.VerifyConsumerRebalance", "--group", group.name)

    def verified():
        """What both print where nothing owns a partition; None where the member has claimed it again."""
        with suppress(NoNodeError):
            zookeeper.delete(group.path("owners", topic, 1))  # no member of ours is there to repair it
        printed = ours("verify", "--group", group.name, code=None), theirs(*words, connect="--zookeeper.connect")
        return None if group.children("owners", topic) == ["0", "1"] else printed

    # A JVM member may rebalance once more after it has joined, which repairs it.
    failed, wanted = next(filter(None, (verified() for _ in range(4))))
    assert failed == wanted
    assert "failed" in failed
    ours("verify", "--group", group.name, code=3)


def test_a_jvm_member_that_does_not_read_is_stall(group, jvm, topic_factory, produce, zookeeper, sandbox, ours):
    topic = topic_factory()
    produce(topic, values(10))
    zookeeper.create(group.path("offsets", topic, 0), b"0", makepath=True)
    consumer = jvm.consumer(group._properties("slow", {}))
    consumer.create_streams({topic: 1}, read=False)
    eventually(group.owners)
    config = ConsumerConfig(zookeeper_connect=sandbox.zookeeper_connect, group_id=group.name)
    with closing(ZkSession.from_config(config)) as session:
        session.open()
        with closing(LagSampler(ZooKeeperGroups(lambda: session, config), window=3)) as sampler:
            for at in (0, 35, 70):
                sampler.sample([group.name], at)
            found = sampler.evaluate(group.name)
    (one,) = found.partitions.values()
    assert (found.status, found.lag, one.newest.owner_live) == (LagStatus.STALL, 10, True)
    consumer.shutdown()


def test_a_jvm_member_that_is_paused_is_stop(group, topic_factory, produce, private_jvm, sandbox, ours):
    topic = topic_factory()
    group.join_jvm("a", {topic: 1}, jvm=private_jvm, auto_commit_interval_ms=100, **CRASHES)
    group.settle()
    produce(topic, values(10))
    eventually(lambda: group.offsets(topic) == {0: 10})
    private_jvm.pause()
    produce(topic, values(10))
    eventually(lambda: not group.children("ids"))  # its session has expired
    config = ConsumerConfig(zookeeper_connect=sandbox.zookeeper_connect, group_id=group.name)
    with closing(ZkSession.from_config(config)) as session:
        session.open()
        with closing(LagSampler(ZooKeeperGroups(lambda: session, config), window=5)) as sampler:
            for at in (0, 10, 20, 31):
                sampler.sample([group.name], at)
            assert sampler.evaluate(group.name).status is LagStatus.STOP
            found = json.loads(ours("explain", "--group", group.name, "--json", code=3))
            assert "no-member" in {one["kind"] for one in found["findings"]}
            private_jvm.resume()
            eventually(lambda: group.offsets(topic) == {0: 20})
            sampler.sample([group.name], 40)
            assert sampler.evaluate(group.name).status is LagStatus.OK


def test_a_jvm_member_without_partitions_is_explained(group, topic_factory, ours):
    topic = topic_factory()
    group.join_jvm("a", {topic: 1})
    idle = group.join_jvm("b", {topic: 1})
    group.settle()

    def findings():
        found = json.loads(ours("explain", "--group", group.name, "--json"))["findings"]
        return [(one["kind"], one["subject"]) for one in found]

    assert_same(findings, lambda: [("more-threads-than-partitions", idle.consumer_id)])


def test_jvm_members_with_different_strategies_are_explained(group, topic_factory, ours):
    topics = [topic_factory(partitions=4) for _ in range(2)]
    few = {"rebalance_max_retries": 1, "rebalance_backoff_ms": 100}
    group.join_jvm("a", dict.fromkeys(topics, 1))
    group.settle()
    with suppress(SandboxError):  # it fails where the other member keeps what it claims
        group.join_jvm("b", dict.fromkeys(topics, 1), partition_assignment_strategy="roundrobin", **few)

    def explained():
        found = json.loads(ours("explain", "--group", group.name, "--json", code=None))
        return {one["kind"] for one in found["findings"]} & {"gave-up", "different-strategies"}

    eventually(explained)
