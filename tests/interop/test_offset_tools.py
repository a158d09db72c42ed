"""Offsets that are exported, imported, reset and copied, beside the JVM's own tools and with JVM members."""

import subprocess
import sys
import threading

import pytest

from tests.fixtures.jvm import PATIENT_PROPERTIES, offsets_of, offsets_received, spread
from tests.fixtures.offsetwrites import OffsetGroup, is_offset
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer.cli.writing import plan_lines
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.groupremoval import plan_delete, plan_rename
from zkconsumer.operate.offsets.offsetfiles import parse_offsets
from zkconsumer.operate.offsets.offsetimport import plan_copy, plan_import
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec, parse_datetime
from zkconsumer.operate.offsets.snapshot import SnapshotFile, read_snapshot

PATIENT = ("--timeout", "60000")  # a tool waits 5 s for a broker otherwise


@pytest.fixture
def run(jvm_tool):
    return jvm_tool


@pytest.fixture
def zkconsumer(sandbox):
    """Run the command line and return its standard output."""

    where = ("--zookeeper", sandbox.zookeeper_connect, *PATIENT_PROPERTIES)

    def command(*arguments, ends=0):
        done = subprocess.run(
            [sys.executable, "-m", "zkconsumer", *arguments, *where],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == ends, done.stderr
        return done.stdout

    return command


@pytest.fixture
def topic(topic_factory, produce):
    """Four partitions with 50 records each."""
    name = topic_factory(partitions=4)
    produce(name, spread(values(200), 4))
    return name


def consume(group, *members):
    """Consume everything, commit and leave."""
    eventually(lambda: len({record[3] for record in group.received()}) == 200)
    group.settle()
    for member in members:
        member.commit()
        group.leave(member)


@pytest.mark.parametrize("kind", ["static", "white list", "mixed"])
def test_an_export_is_that_of_the_jvm_tool(group, topic, run, zkconsumer, sandbox, tmp_path, kind):
    members = [group.join_jvm("j", {topic: 1}) if kind != "white list" else None]
    if kind == "white list":
        members = [group.join_jvm("j", topic_filter=("Whitelist", topic))]
    if kind == "mixed":
        members.append(group.join("o", topic_filter=("Whitelist", topic)))
    consume(group, *members)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    connect = ("--zkconnect", sandbox.zookeeper_connect)
    run("kafka.tools.ExportZkOffsets", *connect, "--group", group.name, "--output-file", str(theirs))
    zkconsumer("offsets", "export", "--group", group.name, "--output", str(ours))
    assert sorted(ours.read_text().splitlines()) == sorted(theirs.read_text().splitlines())
    assert len(ours.read_text().splitlines()) == 4


def test_an_export_goes_through_the_other_tool_unchanged(group, topic, run, zkconsumer, sandbox, zookeeper, tmp_path):
    znodes = OffsetGroup(group.name, zookeeper)
    znodes.store(topic, {0: 0, 1: 7, 2: 50, 3: 49})
    first, second = tmp_path / "first", tmp_path / "second"
    connect = ("--zkconnect", sandbox.zookeeper_connect)

    def exports_theirs(file):
        run("kafka.tools.ExportZkOffsets", *connect, "--group", group.name, "--output-file", str(file))

    zkconsumer("offsets", "export", "--group", group.name, "--output", str(first))
    zookeeper.delete(znodes.path(), recursive=True)
    run("kafka.tools.ImportZkOffsets", *connect, "--input-file", str(first))
    zkconsumer("offsets", "export", "--group", group.name, "--output", str(second))
    assert first.read_bytes() == second.read_bytes()
    exports_theirs(first)
    zookeeper.delete(znodes.path(), recursive=True)
    zkconsumer("offsets", "import", str(first), "--execute", "--snapshot", str(tmp_path / "snapshot"))
    exports_theirs(second)
    assert sorted(first.read_text().splitlines()) == sorted(second.read_text().splitlines())
    assert znodes.offsets(topic) == {0: 0, 1: 7, 2: 50, 3: 49}


def test_csv_goes_through_the_reset_of_the_jvm_tool(  # noqa: PLR0917
    group, topic, run, zkconsumer, sandbox, zookeeper, cluster, tool_session, tmp_path
):
    znodes = OffsetGroup(group.name, zookeeper)
    znodes.store(topic, {0: 0, 1: 7, 2: 50, 3: 49})
    file = tmp_path / "offsets.csv"
    file.write_text(zkconsumer("offsets", "export", "--group", group.name, "--format", "csv"))
    theirs = f"{group.name}-kafka"
    command = ("kafka.admin.ConsumerGroupCommand", "--bootstrap-server", sandbox.bootstrap_servers, *PATIENT)
    command += ("--group", theirs)
    run(*command, "--reset-offsets", "--from-file", str(file), "--execute")
    partitions = [TopicPartition(topic, number) for number in range(4)]
    stored = cluster.committed(theirs, partitions)
    assert {p.partition: one.offset for p, one in stored.items()} == znodes.offsets(topic)
    printed = run(*command, "--reset-offsets", "--to-current", "--all-topics", "--export")
    rows = [line for line in printed.splitlines() if line.startswith(f"{topic},")]
    assert sorted(rows) == sorted(file.read_text().splitlines())
    back = parse_offsets("f", "\n".join(rows).encode(), group.name)
    spec = ResetSpec("file", offsets={row.partition: row.offset for row in back.offsets})
    plan = plan_reset(tool_session, cluster, group.name, None, spec, store="zookeeper")
    assert plan.groups[0].change.nodes == (), "they are stored already"


@pytest.mark.parametrize(
    ("option", "spec"),
    [
        (("--to-earliest",), ResetSpec("earliest")),
        (("--to-latest",), ResetSpec("latest")),
        (("--to-current",), ResetSpec("current")),
        (("--to-offset", "20"), ResetSpec("offset", 20)),
        (("--to-offset", "70"), ResetSpec("offset", 70)),
        (("--shift-by", "-15"), ResetSpec("shift", -15)),
        (("--to-datetime", "2000-01-01T00:00:00.000"), ResetSpec("time", parse_datetime("2000-01-01T00:00:00.000"))),
        (("--to-datetime", "2100-01-01T00:00:00.000"), ResetSpec("time", parse_datetime("2100-01-01T00:00:00.000"))),
    ],
)
def test_a_reset_is_that_of_the_jvm_tool(topic, run, sandbox, tool_session, cluster, unique_name, option, spec):
    name = unique_name[-40:]
    file = {TopicPartition(topic, number): number * 10 for number in range(4)}
    both = plan_reset(tool_session, cluster, name, None, ResetSpec("file", offsets=file), store="kafka")
    assert cluster.commit(name, _stored(both)) == {}
    command = ("kafka.admin.ConsumerGroupCommand", "--bootstrap-server", sandbox.bootstrap_servers, *PATIENT)
    command += ("--group", name)
    printed = run(*command, "--reset-offsets", "--all-topics", *option, "--dry-run")
    theirs = [line for line in printed.splitlines() if line.startswith(topic)]
    plan = plan_reset(tool_session, cluster, name, {topic: None}, spec, store="kafka")
    ours = [line for line in plan_lines(plan) if line.startswith(topic)]
    assert len(theirs) == 4
    assert sorted(line[: len(theirs[0])] for line in ours) == sorted(theirs)


def _stored(plan):
    from zkconsumer.offsets.rules.storedoffsets import StoredOffset

    return {row.partition: StoredOffset(row.new, "") for row in plan.groups[0].rows}


@pytest.mark.parametrize(
    "text",
    [
        "2017-06-01T12:00:00.000",
        "2016-02-29T23:59:59.999",
        "2017-06-01T12:00:00.000Z",
        "2017-06-01T12:00:00.000+01",
        "2017-06-01T12:00:00.000-05:30",
    ],
)
def test_a_time_is_read_as_the_jvm_reads_it(jvm, text):
    java = jvm.gateway.jvm.java.text
    clock = text.split("T")[1]
    given = text if any(mark in clock for mark in "+-Z") else f"{text}Z"
    reads = []
    for pattern in ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "yyyy-MM-dd'T'HH:mm:ss.SSSX"):
        position = java.ParsePosition(0)
        date = java.SimpleDateFormat(pattern).parse(given, position)
        if date is not None:
            reads.append(date.getTime())
    assert parse_datetime(text) == reads[0]


# -- members that start while offsets are written ---------------------------------------------------------------------

ROUNDS = 20


class Writes:
    """Each kind of write, so that the group continues at new offsets."""

    def __init__(self, group, topic, session, cluster, znodes, directory) -> None:
        self._group, self._topic, self._session, self._cluster = group, topic, session, cluster
        self._znodes, self._directory = znodes, directory
        self._numbers = iter(range(10_000))

    def path(self):
        return self._directory / f"snapshot-{next(self._numbers)}"

    def plan(self, kind: str, offset: int):
        """A plan after which the group continues at ``offset`` in each partition."""
        name, topic = self._group.name, self._topic
        wanted = {TopicPartition(topic, number): offset for number in range(4)}
        if kind == "reset":
            spec = ResetSpec("offset", offset)
            return plan_reset(self._session, self._cluster, name, {topic: None}, spec, store="zookeeper")
        if kind == "import":
            lines = "".join(f"{topic},{p.partition},{offset}\n" for p in wanted)
            content = parse_offsets("f", lines.encode(), name)
            return plan_import(self._session, self._cluster, content, store="zookeeper")
        if kind == "delete":
            return plan_delete(self._session, self._cluster, [name], None, store="zookeeper")
        source = OffsetGroup(f"{name}-from", self._znodes.client)
        if source.tree():
            source.client.delete(source.path(), recursive=True)
        source.store(topic, {p.partition: offset for p in wanted})
        if kind == "copy":
            return plan_copy(self._session, self._cluster, source.name, name, store="zookeeper")
        if kind == "rename":
            self._znodes.client.delete(self._znodes.path(), recursive=True)
            return plan_rename(self._session, self._cluster, source.name, name, store="zookeeper")
        return self._restored(offset)

    def _restored(self, offset):
        snapshot = self.path()
        self._znodes.client.delete(self._znodes.path("offsets"), recursive=True)
        self._znodes.store(self._topic, dict.fromkeys(range(4), offset))
        assert execute(self._session, self._cluster, self.plan("reset", 1), SnapshotFile(snapshot)).faults == []
        return plan_restore(self._session, self._cluster, read_snapshot(snapshot))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["reset", "import", "copy", "restore", "rename", "delete"])
def test_a_member_that_starts_in_a_write_waits_for_its_end(
    group, topic, tool_session, cluster, zookeeper, tmp_path, kind
):
    znodes = OffsetGroup(group.name, zookeeper)
    writes = Writes(group, topic, tool_session, cluster, znodes, tmp_path)
    for number in range(ROUNDS):
        if not znodes.tree():
            znodes.store(topic, dict.fromkeys(range(4), 50))
        # A member that finds no offset begins at the log start.
        start_in_write(
            group, topic, tool_session, cluster, writes, kind, number, 0 if kind == "delete" else 30 + number % 10
        )


def start_in_write(group, topic, session, cluster, writes, kind, number, offset):
    plan = writes.plan(kind, offset)
    owners, threads = [], []

    def start_member(changes):
        if any(map(is_offset, changes)) and not threads:
            # However long a busy machine takes for the write, the member does not give up meanwhile.
            patient = {"rebalance_max_retries": 300}
            threads.append(threading.Thread(target=group.join_jvm, args=(f"j{number}", {topic: 1}), kwargs=patient))
            threads[0].start()
            eventually(lambda: len(group.children("ids")) == 1)
            owners.extend(group.owners().values())

    moment = "after" if kind == "delete" else "before"
    setattr(session, moment, start_member)
    report = execute(session, cluster, plan, SnapshotFile(writes.path()))
    setattr(session, moment, lambda _: None)
    threads[0].join()
    in_use = [fault for fault in report.faults if fault.endswith("a member or another client uses what is below")]
    assert report.faults == in_use
    assert (f"/consumers/{group.name}" in "".join(in_use)) == (kind == "delete"), "a group with a member is not deleted"
    assert len(owners) == 4
    assert {owner for owner in owners if "zkconsumer-hold" not in owner} == set()
    (member,) = group.members
    group.settle()
    eventually(lambda: offsets_received(member) == offsets_of(range(4), range(offset, 50)))
    group.leave(member)
    group.gone.clear()
    eventually(lambda: group.children("ids") == [] and group.owners() == {})
