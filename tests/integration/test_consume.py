"""``zkconsumer consume`` and ``groups describe`` as the processes that an operator runs."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fixtures.commands import run_command
from tests.fixtures.jvm import PATIENT_PROPERTIES
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-m", "zkconsumer")


def executed(words, **options):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.fixture
def run(sandbox, unique_name):
    """Run a command of zkconsumer to its end: ``run("groups", "describe", ...)``."""

    def command(*arguments, **options):
        words = [*map(str, arguments), "--zookeeper", sandbox.zookeeper_connect]
        words += ["-p", "zookeeper.session.timeout.ms=30000"]
        if words[0] == "groups":
            return run_command(words)
        return executed(words, **options)

    return command


@pytest.fixture
def start(sandbox, unique_name):
    """Start ``consume`` in the background; processes that still run at the end are killed."""
    running = []

    def process(*arguments, session_ms=30_000, **options):
        full = [*COMMAND, "consume", "--zookeeper", sandbox.zookeeper_connect, "--group", unique_name]
        properties = {
            "zookeeper.session.timeout.ms": session_ms,
            "zookeeper.connection.timeout.ms": 20_000,
            "rebalance.backoff.ms": 600,
            "rebalance.max.retries": 20,
        }
        for name, value in properties.items():
            full += ["-p", f"{name}={value}"]
        started = subprocess.Popen([*full, *map(str, arguments)], **options)
        running.append(started)
        return started

    yield process
    for each in running:
        if each.poll() is None:
            each.kill()
        each.wait()


def records(count, start=0):
    return [(b"k%d" % n, b"%d" % n) for n in range(start, start + count)]


def lines_of(path):
    """Complete lines of a file that may be growing."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def committed(zookeeper, group, topic, partitions):
    paths = [f"/consumers/{group}/offsets/{topic}/{p}" for p in range(partitions)]
    return sum(int(zookeeper.get(path)[0]) for path in paths if zookeeper.exists(path))


def test_json_lines_until_the_timeout(run, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(
        topic,
        [
            {"key": b"k", "value": "ü".encode(), "timestamp": 1234567890123},
            {"key": b"\xff", "value": None, "headers": [("h", b"1"), ("h", None)], "timestamp": 5},
        ],
    )
    arguments = ("--topic", topic, "--from-beginning", "--format", "json")
    ended = run("consume", "--group", unique_name, *arguments, "--max-messages", 2)
    assert ended.returncode == 0, ended.stderr
    common = {"topic": topic, "partition": 0}
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        {**common, "offset": 0, "timestamp": 1234567890123, "key": "k", "value": "ü"},
        {
            **common,
            "offset": 1,
            "timestamp": 5,
            "key_base64": "/w==",
            "value": None,
            "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
        },
    ]
    again = run("consume", "--group", unique_name, *arguments, "--timeout-ms", 1500)
    assert (again.returncode, again.stdout) == (0, "")


def test_max_messages_commits_exactly_what_was_written(run, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(topic, records(10))
    arguments = ("consume", "--group", unique_name, "--topic", topic, "--from-beginning", "--max-messages", 4)
    assert run(*arguments).stdout.split() == ["0", "1", "2", "3"]
    assert run(*arguments).stdout.split() == ["4", "5", "6", "7"]


@pytest.mark.slow
def test_commit_on_done_of_a_shared_file_does_not_stop_the_command(run, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(topic, records(10))
    arguments = ("consume", "--group", unique_name, "--topic", topic, "--from-beginning", "--timeout-ms", 3000)
    properties = ("--property", "commit.on=done", "--property", "max.unfinished.records=2")
    assert len(run(*arguments, *properties).stdout.split()) == 10
    assert run(*arguments, *properties).stdout == ""


@pytest.mark.usefixtures("hangup_by_default")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_commits_everything_written_and_leaves(
    start, zookeeper, topic_factory, produce, unique_name, tmp_path, number
):
    topic = topic_factory(partitions=2)
    produce(topic, records(1000))
    output = tmp_path / "out"
    process = start("--topic", f"{topic}:2", "--from-beginning", "--output", output)
    eventually(lambda: len(lines_of(output)) == 1000)
    process.send_signal(number)
    assert process.wait(120) == 0
    assert committed(zookeeper, unique_name, topic, 2) == 1000
    assert zookeeper.get_children(f"/consumers/{unique_name}/ids") == []


def test_sigusr1_logs_what_the_consumer_does(start, topic_factory, produce, tmp_path):
    topic = topic_factory()
    produce(topic, records(3))
    log, output = tmp_path / "log", tmp_path / "out"
    with log.open("w") as errors:
        process = start("--topic", topic, "--from-beginning", "--output", output, stderr=errors)
    eventually(lambda: len(lines_of(output)) == 3)
    for count in (1, 2):
        process.send_signal(signal.SIGUSR1)
        eventually(lambda count=count: log.read_text().count(f"fetching; generation 1, owns {topic} 0;") == count)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["signal", "timeout"])
def test_an_impossible_last_commit_is_reported_and_fails(private_sandbox, unique_name, tmp_path, end):
    box = private_sandbox(tick_time_ms=2000)
    topic = Topics(box.bootstrap_servers).create(unique_name)
    produce_records(box.bootstrap_servers, topic, records(40))
    output = tmp_path / "out"
    full = [*COMMAND, "consume", "--zookeeper", box.zookeeper_connect, "--group", "g", "--topic", topic]
    full += ["--from-beginning", "--output", output, "-p", "zookeeper.connection.timeout.ms=20000"]
    full += ["--timeout-ms", "8000"] if end == "timeout" else []
    process = subprocess.Popen(full, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: len(lines_of(output)) == 40)
        process.send_signal(signal.SIGSTOP)  # its timeout may pass, but it does nothing before ZooKeeper has ended
        box.zookeeper.stop()
        if end == "signal":
            process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, errors
    assert f"not committed: {topic}-0 position 40 (stored: none)" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_the_loss_of_zookeeper_and_its_end_are_logged(private_sandbox, tmp_path):
    box = private_sandbox(tick_time_ms=500)
    Topics(box.bootstrap_servers).create("t")
    log = tmp_path / "log"
    full = [*COMMAND, "consume", "--zookeeper", box.zookeeper_connect, "--group", "g", "--topic", "t"]
    full += ["-p", "zookeeper.session.timeout.ms=3000", "-p", "zookeeper.connection.timeout.ms=20000"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        eventually(lambda: "group g: joined as g_" in log.read_text())
        assert "owns t" in log.read_text()
        box.zookeeper.pause()
        lost = f"no ZooKeeper server of {box.zookeeper_connect} has answered for"
        eventually(lambda: log.read_text().count(lost) >= 2)
        assert "no record is delivered" in log.read_text()
        box.zookeeper.resume()
        eventually(lambda: f"ZooKeeper {box.zookeeper_connect} answers again" in log.read_text())
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_loss_of_brokers_and_its_end_are_logged(private_sandbox, tmp_path):
    box = private_sandbox(tick_time_ms=500)
    Topics(box.bootstrap_servers).create("t")
    log = tmp_path / "log"
    full = [*COMMAND, "consume", "--zookeeper", box.zookeeper_connect, "--group", "g", "--topic", "t"]
    full += ["-p", "zookeeper.connection.timeout.ms=20000"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        eventually(lambda: "group g: joined as g_" in log.read_text())
        box.brokers[0].stop()
        lost = "no broker is registered in ZooKeeper; check that brokers run"
        eventually(lambda: log.read_text().count(lost) >= 2)  # the second one comes 5 s later at the earliest
        assert log.read_text().count("cannot look up partition leaders") < 10
        box.brokers[0].start()
        eventually(lambda: "brokers answer again" in log.read_text())
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_a_consumer_that_waits_for_zookeeper(number):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        full = [*COMMAND, "consume", "--zookeeper", f"127.0.0.1:{silent.getsockname()[1]}", "--group", "g"]
        full += ["--topic", "t", "-p", "zookeeper.connection.timeout.ms=600000"]
        process = subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            silent.settimeout(60)
            connection, _ = silent.accept()
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
            connection.close()
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, errors) == (0, "")


def test_a_signal_sent_to_a_stopped_process_ends_it_when_it_continues(start, topic_factory, produce, tmp_path):
    """The kernel may then give the signal to any thread, and the main thread must wake."""
    topic = topic_factory()
    produce(topic, records(1))
    output = tmp_path / "out"
    process = start("--topic", topic, "--from-beginning", "--output", output)
    eventually(lambda: lines_of(output))
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(120) == 0


def test_kill_loses_nothing_and_completes_the_cut_line(start, zookeeper, topic_factory, produce, unique_name, tmp_path):
    topic = topic_factory(partitions=2)
    output = tmp_path / "out"
    arguments = ("--topic", topic, "--output", output, "-p", "auto.commit.interval.ms=100")
    first = start(*arguments, "--from-beginning", session_ms=3000)  # as long as it keeps its partitions when killed
    produce(topic, records(2000))
    eventually(lambda: len(lines_of(output)) > 100)
    # Where nothing is committed, the next member starts at the end.
    eventually(lambda: all(zookeeper.exists(f"/consumers/{unique_name}/offsets/{topic}/{p}") for p in range(2)))
    first.kill()
    first.wait()
    with output.open("ab") as cut:
        cut.write(b"cut")
    produce(topic, records(1000, start=2000))
    start(*arguments)
    wanted = {b"%d" % n for n in range(3000)}
    eventually(lambda: wanted <= set(lines_of(output)))
    assert Counter(lines_of(output))[b"cut"] == 1


def test_parquet_parts_hold_what_was_committed(start, zookeeper, topic_factory, produce, unique_name, tmp_path):
    import pyarrow.parquet as pq

    topic = topic_factory()
    produce(topic, records(500))
    directory = tmp_path / "parts"
    interval = ("-p", "auto.commit.interval.ms=200")
    start("--topic", topic, "--from-beginning", "--format", "parquet", "--output", directory, *interval)
    eventually(lambda: committed(zookeeper, unique_name, topic, 1) == 500)
    table = pq.read_table(directory)
    assert sorted(int(value) for value in table.column("value").to_pylist()) == list(range(500))
    assert not list(directory.glob("*.tmp"))


def test_a_closed_pipe_is_a_normal_end(sandbox, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(topic, records(5))
    reader, writer = os.pipe()
    os.close(reader)
    full = [*COMMAND, "consume", "--zookeeper", sandbox.zookeeper_connect, "--group", unique_name]
    patience = (*PATIENT_PROPERTIES, "-p", "rebalance.max.retries=50")
    process = subprocess.run(
        [*full, *patience, "--topic", topic, "--from-beginning"],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    os.close(writer)
    lines = process.stderr.decode().splitlines()
    assert process.returncode == 0, lines
    assert [line for line in lines if " INFO zkconsumer.events: " not in line] == []


def test_head_of_a_pipe_commits_the_one_record_it_takes(start, zookeeper, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(topic, records(249))
    consumer = start("--topic", topic, "--from-beginning", "--commit-each", stdout=subprocess.PIPE)
    head = subprocess.run(["head", "-1"], stdin=consumer.stdout, capture_output=True, timeout=120, check=True)
    consumer.stdout.close()
    assert (head.stdout, consumer.wait(60)) == (b"0\n", 0)
    assert committed(zookeeper, unique_name, topic, 1) == 1


def test_commit_each_commits_exactly_what_the_reader_took(start, zookeeper, topic_factory, produce, unique_name):
    topic = topic_factory(partitions=2)
    produce(topic, records(100))
    consumer = start("--topic", f"{topic}:2", "--from-beginning", "--commit-each", stdout=subprocess.PIPE, bufsize=0)
    taken = b""
    while taken.count(b"\n") < 7:
        taken += consumer.stdout.read(1)
    eventually(lambda: committed(zookeeper, unique_name, topic, 2) >= 6)
    consumer.stdout.close()
    assert consumer.wait(120) == 0
    assert committed(zookeeper, unique_name, topic, 2) == 7


def test_commit_each_leaves_at_most_one_record_uncommitted(
    start, zookeeper, topic_factory, produce, unique_name, tmp_path
):
    topic = topic_factory()
    produce(topic, records(2000))
    output = tmp_path / "out"
    consumer = start("--topic", topic, "--from-beginning", "--commit-each", "--output", output)
    eventually(lambda: len(lines_of(output)) > 20)
    consumer.kill()
    consumer.wait()
    assert len(lines_of(output)) - committed(zookeeper, unique_name, topic, 1) in (0, 1)


def test_a_closed_pipe_commits_the_batches_that_it_took(start, zookeeper, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(topic, records(3))
    consumer = start("--topic", topic, "--from-beginning", stdout=subprocess.PIPE)
    assert [consumer.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    consumer.stdout.close()
    produce(topic, records(5))
    assert consumer.wait(120) == 0
    assert committed(zookeeper, unique_name, topic, 1) == 3


def test_a_closed_pipe_does_not_hide_a_commit_that_failed(start, zookeeper, topic_factory, produce, unique_name):
    topic = topic_factory()
    produce(topic, records(3))
    consumer = start("--topic", topic, "--from-beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert [consumer.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    zookeeper.delete(f"/consumers/{unique_name}/owners/{topic}/0")
    consumer.stdout.close()
    produce(topic, records(5))
    assert consumer.wait(120) == 1
    assert f"not committed: {topic}-0 position 3 (stored: none)" in consumer.stderr.read().decode()
    consumer.stderr.close()


def describe(run, *arguments):
    """What ``groups describe`` prints when all servers answer in time; it waits 2 s for them and warns otherwise."""
    answers = []

    def complete():
        answers.append(run("groups", "describe", *arguments))
        return answers[-1].stderr == ""

    eventually(complete)
    return answers[-1].stdout


def test_describe(run, start, zookeeper, topic_factory, produce, unique_name, tmp_path):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": 0} for _ in range(7)])
    process = start(
        "--topic", f"{topic}:3", "--from-beginning", "--output", tmp_path / "out", "-p", "auto.commit.interval.ms=50"
    )
    eventually(lambda: committed(zookeeper, unique_name, topic, 1) == 7)
    described = json.loads(describe(run, "--group", unique_name, "--json"))
    (member,) = described["members"]
    assert (member["client"], member["threads"], member["pattern"]) == ("zkconsumer", {topic: 3}, "static")
    assert member["registered_ms"] > 1_700_000_000_000
    first, second = described["partitions"]
    assert first == {
        "topic": topic,
        "partition": 0,
        "owner": f"{member['id']}-0",
        "owner_live": True,
        "committed": 7,
        "log_end": 7,
        "lag": 0,
    }
    assert (second["owner"], second["log_end"]) == (f"{member['id']}-1", 0)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    _, *table = describe(run, "--group", unique_name).splitlines()  # the JVM's tool begins with an empty line, too
    assert table[0].split() == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"]
    assert table[1].split() == [topic, "0", "7", "7", "0", "-"]


@pytest.mark.parametrize("dual", [True, False])
def test_describe_offsets_in_kafka(run, start, zookeeper, topic_factory, produce, unique_name, tmp_path, dual):
    topic = topic_factory()
    produce(topic, [b"v"] * 7)
    storage = ("-p", "offsets.storage=kafka", "-p", f"dual.commit.enabled={str(dual).lower()}")
    process = start("--topic", topic, "--from-beginning", "--max-messages", 5, "--output", tmp_path / "out", *storage)
    assert process.wait(120) == 0
    path = f"/consumers/{unique_name}/offsets/{topic}/0"
    assert (zookeeper.exists(path) is not None) == dual
    zookeeper.ensure_path(path)
    zookeeper.set(path, b"2")  # the offset in Kafka is used if there is one, as in the JVM's tool
    (partition,) = json.loads(describe(run, "--group", unique_name, "--json"))["partitions"]
    assert (partition["committed"], partition["lag"]) == (5, 2)


@pytest.mark.slow
def test_describe_without_a_coordinator_shows_zookeepers_offsets(private_sandbox, unique_name):
    # The paused broker has to stay registered until all has been asked.
    box = private_sandbox(tick_time_ms=2000, kafka_properties={"zookeeper.session.timeout.ms": "40000"})
    Topics(box.bootstrap_servers).create("t")
    box.brokers[0].pause()
    with connected(box.zookeeper_connect) as zookeeper:
        zookeeper.create(f"/consumers/{unique_name}/offsets/t/0", b"3", makepath=True)
        # Without this topic no group has an offset in Kafka.
        zookeeper.create("/brokers/topics/__consumer_offsets", b'{"version":1,"partitions":{}}')
    full = [*COMMAND, "groups", "describe", "--group", unique_name, "--json", "--zookeeper", box.zookeeper_connect]
    ended = subprocess.run(full, capture_output=True, text=True, timeout=120, check=False)
    (partition,) = json.loads(ended.stdout)["partitions"]
    assert (ended.returncode, partition["committed"], partition["log_end"]) == (3, 3, None)  # not all can be read
    assert "offsets in Kafka are unknown" in ended.stderr
    assert "log ends are unknown: none of 1 brokers answers" in ended.stderr
    box.brokers[0].resume()


def test_bad_input_is_reported_in_one_line(run, sandbox, topic_factory, unique_name, tmp_path):
    topic = topic_factory()

    def fails(code, *arguments, zookeeper=sandbox.zookeeper_connect):
        words = [*map(str, arguments), "--zookeeper", zookeeper]
        ended = run_command(words) if words[0] == "groups" else executed(words)
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stderr

    consume = ("consume", "--group", unique_name, "--topic", topic)
    quick = ("-p", "zookeeper.connection.timeout.ms=300")
    resolving = ("-p", "zookeeper.connection.timeout.ms=5000")
    assert "zookeeper.connect" in fails(1, *consume, *quick, zookeeper="127.0.0.1:1")
    assert "/missing does not exist" in fails(1, *consume, zookeeper=f"{sandbox.zookeeper_connect}/missing")
    assert "no.such.property" in fails(2, *consume, "-p", "no.such.property=1")
    assert "does not exist" in fails(1, "groups", "describe", "--group", unique_name)
    unknown = fails(0, "consume", "--group", unique_name, "--topic", "no-such", "--timeout-ms", 300)
    assert unknown.count("topic no-such is not found") == 1
    assert "cannot write" in fails(1, *consume, "--output", tmp_path / "no" / "such" / "file")
    nowhere = fails(1, *consume, *resolving, zookeeper="no-such-host.invalid:1")
    assert "Cannot resolve no-such-host.invalid" in nowhere


def test_tls_to_a_server_without_is_reported(run, unique_name):
    tls = ("-p", "zookeeper.ssl.client.enable=true", "-p", "zookeeper.connection.timeout.ms=3000")

    def failed():
        ended = run("consume", "--group", unique_name, "--topic", "t", *tls)
        assert ended.returncode == 1, ended.stderr
        assert "Traceback" not in ended.stderr
        assert "zookeeper.ssl.client.enable" in ended.stderr
        return "last failure: Connection dropped" in ended.stderr  # three seconds may end before the first attempt has

    eventually(failed)


@pytest.mark.parametrize("commit_on", ["next", "delivery"])
def test_a_failed_write_names_the_file_and_commits_nothing(
    run, zookeeper, topic_factory, produce, unique_name, commit_on
):
    topic = topic_factory()
    produce(topic, records(3))
    arguments = ("consume", "--group", unique_name, "--topic", topic, "--from-beginning", "--output", "/dev/full")
    ended = run(*arguments, "--property", f"commit.on={commit_on}")
    assert ended.returncode == 1
    assert "records could not be written to /dev/full: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert committed(zookeeper, unique_name, topic, 1) == 0


def test_describe_explains_offsets_before_the_first_commit(run, start, topic_factory, unique_name, tmp_path):
    process = start("--topic", topic_factory(), "--output", tmp_path / "out")
    hint = "hint: the offset of an owned partition is shown as -"
    eventually(lambda: hint in run("groups", "describe", "--group", unique_name).stderr)
    process.terminate()
    assert process.wait(120) == 0


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_describe_ends_normally_when_its_reader_closes_the_pipe(sandbox, zookeeper, unique_name, form):
    zookeeper.ensure_path(f"/consumers/{unique_name}/ids")
    reader, writer = os.pipe()
    os.close(reader)
    full = [*COMMAND, "groups", "describe", "--zookeeper", sandbox.zookeeper_connect, "--group", unique_name, *form]
    ended = subprocess.run(full, stdout=writer, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_describe_shows_a_member_whose_filter_matches_nothing(run, start, zookeeper, unique_name, tmp_path):
    process = start("--whitelist", f"{unique_name}.none", "--output", tmp_path / "out")
    ids = f"/consumers/{unique_name}/ids"
    eventually(lambda: zookeeper.exists(ids) and zookeeper.get_children(ids))
    properties = tmp_path / "consumer.properties"
    properties.write_text(f"group.id={unique_name}\n")
    _, *table = describe(run, "--config", properties).splitlines()
    (consumer,) = zookeeper.get_children(ids)
    assert table[1].split() == ["-", "-", "-", "-", "-", consumer]
    process.terminate()
    assert process.wait(120) == 0
