"""The sandbox itself: real servers that start, are killed, freeze, restart, and never outlive it."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fetch import brokers_of
from tests.fixtures.fork import in_forked_child, refused_in_forked_child
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import JarSource, Sandbox, ZooKeeperServer
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.lockfile import LockFile, parse_lock
from zkconsumer.sandbox.ports import HOST, free_port, is_free
from zkconsumer.sandbox.probes import four_letter_word, known_brokers
from zkconsumer.sandbox.producer import Record, produce
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.brokerclient import BrokerClient

pytestmark = pytest.mark.integration

COMMAND = [
    sys.executable,
    "-c",
    "import sys\n"
    "from zkconsumer.cli.sandbox import sandbox\n"
    "from zkconsumer.errors import ZkConsumerError\n"
    "try:\n    sandbox()\n"
    "except ZkConsumerError as error:\n    sys.exit(f'error: {error}')\n",
]
QUIET = Progress(quiet=True)


def read_values(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    config = {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()
    return values


def java_processes(directory: str) -> list[int]:
    """The servers of a sandbox: their command lines name its directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = path.read_bytes().split(b"\0")
            if arguments[0].endswith(b"java") and any(directory.encode() in argument for argument in arguments):
                found.append(int(path.parent.name))
    return found


def await_none(directory: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while left := java_processes(directory):
        assert time.monotonic() < deadline, f"processes {left} are still running"


@contextlib.contextmanager
def command(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """Run the command with --json until it is ready."""
    with subprocess.Popen([*COMMAND, "--json", *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()


# The session's servers and the fixtures around them


def test_the_command_runs_kafka_4_without_a_zookeeper() -> None:
    command = [*COMMAND, "--kafka-version", "4.2.0", "--zookeepers", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        places = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert places["zookeeper"] == ""
    assert places["kafka"]


def test_servers_of_tests_start_from_archives_that_fit(sandbox: Sandbox) -> None:
    """Java ignores one that does not, and says so."""
    for server in (*sandbox.brokers, sandbox.zookeeper):
        assert "[cds" not in server.log.read_text(), server.log


def test_records_go_through(
    sandbox: Sandbox, topic_factory: Callable[..., str], produce: Callable[..., list[tuple[int, int]]]
) -> None:
    topic = topic_factory(partitions=1)
    assert produce(topic, [b"a", (b"k", b"b"), {"value": b"c", "partition": 0}]) == [(0, 0), (0, 1), (0, 2)]
    assert read_values(sandbox.bootstrap_servers, topic, 3) == [b"a", b"b", b"c"]


def test_topics_grow_and_vanish(sandbox: Sandbox, topics: Topics, unique_name: str) -> None:
    topics.create(unique_name, partitions=2)
    topics.grow(unique_name, 5)
    topics.delete(unique_name)
    topics.create(unique_name)


def test_zookeeper_grants_short_sessions_and_knows_the_broker(sandbox: Sandbox) -> None:
    granted = {"tickTime=500", "minSessionTimeout=1000", "maxSessionTimeout=60000"}
    eventually(lambda: granted <= set(sandbox.zookeeper.ask("conf").splitlines()))
    eventually(lambda: "/brokers/ids/0" in (sandbox.zookeeper.ephemerals() or ()))


# Servers that are harmed


@pytest.mark.slow
def test_killed_broker_comes_back_with_its_data(private_sandbox: Callable[..., Sandbox], unique_name: str) -> None:
    box = private_sandbox()
    Topics(box.bootstrap_servers).create(unique_name)
    produce_records(box.bootstrap_servers, unique_name, [b"kept"])
    broker, address = box.brokers[0], box.bootstrap_servers
    broker.kill()
    assert not broker.running
    assert broker.known_brokers() == set()
    broker.start()
    assert box.bootstrap_servers == address
    assert read_values(address, unique_name, 1) == [b"kept"]


@pytest.mark.slow
def test_zookeeper_freezes_thaws_and_restarts(private_sandbox: Callable[..., Sandbox]) -> None:
    zookeeper = private_sandbox(brokers=0).zookeeper
    zookeeper.pause()
    assert zookeeper.running
    assert four_letter_word(zookeeper.port, "srvr", timeout_s=0.5) == ""
    zookeeper.resume()
    eventually(zookeeper.is_serving)
    address, first = zookeeper.address, zookeeper.pid
    zookeeper.restart()
    eventually(zookeeper.is_serving)
    assert (zookeeper.address == address, zookeeper.pid == first) == (True, False)


@pytest.mark.slow
def test_brokers_replicate_and_more_can_join(private_sandbox: Callable[..., Sandbox], unique_name: str) -> None:
    box = private_sandbox(brokers=2)
    eventually(lambda: box.brokers[0].known_brokers() == box.brokers[1].known_brokers() == {0, 1})
    Topics(box.bootstrap_servers).create(unique_name, partitions=2, replication=2)
    box.add_brokers()
    eventually(lambda: box.brokers[0].known_brokers() == {0, 1, 2})
    assert len(box.bootstrap_servers.split(",")) == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_producer_finds_leaders(private_sandbox: Callable[..., Sandbox]) -> None:
    """Each broker learns by itself which broker leads, itself or another; one that is started again leads again."""
    box = private_sandbox(brokers=2)
    live = partial(brokers_of, box.bootstrap_servers)
    with contextlib.closing(BrokerClient(live, client_id="test", timeout_ms=10_000)) as client:
        for number in range(20):
            partitions = [TopicPartition(f"t{number}", partition) for partition in range(4)]
            create_topics(client, {f"t{number}": len(partitions)})
            assert produce(live, {tp: [Record(b"v")] for tp in partitions}) == dict.fromkeys(partitions, 0)
        victim = box.brokers[1 - (client.metadata(["t0"]).controller or 0)]
        victim.kill()
        eventually(lambda: client.metadata([f"t{number}"]).leaderless)
        with ThreadPoolExecutor(1) as threads:
            producing = threads.submit(produce, live, {tp: [Record(b"v")] for tp in partitions})
            victim.start()
            assert producing.result(120) == dict.fromkeys(partitions, 1)


def test_failed_start_names_the_cause_and_keeps_the_log() -> None:
    box = Sandbox(kafka_properties={"log.segment.bytes": "nonsense"})
    with pytest.raises(
        SandboxError, match=r"(?s)Kafka broker 0 ended with exit code 1 .*log\.segment\.bytes"
    ) as raised:
        box.start()
    log = Path(str(raised.value).rpartition("see ")[2])
    assert "log.segment.bytes" in log.read_text()
    assert java_processes(str(log.parent)) == []
    assert not box.running
    shutil.rmtree(log.parent)


def test_server_that_ends_by_itself_is_noticed(private_sandbox: Callable[..., Sandbox]) -> None:
    box = private_sandbox(brokers=0)
    box.zookeeper.kill()
    with pytest.raises(SandboxError, match="ZooKeeper ended with exit code 137"):
        box.wait()


@pytest.mark.slow
def test_port_lost_to_another_program_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The port is bound after the server has checked it. So that Java cannot bind it first, the test binds it before.
    monkeypatch.setattr("zkconsumer.sandbox.server.require_free", lambda port, server: None)
    server = ZooKeeperServer(tmp_path)
    lost = server.port
    try:
        with socket_on(lost):
            server.start()
            assert server.port != lost
            eventually(server.is_serving)
    finally:
        server.kill()


@contextlib.contextmanager
def socket_on(port: int) -> Iterator[None]:
    import socket

    with socket.create_server((HOST, port)):
        yield


# The command


@pytest.mark.slow
def test_json_line_then_sigterm_leaves_nothing() -> None:
    with command() as (process, places):
        assert list(places) == ["zookeeper", "kafka", "directory"]
        zookeeper, kafka = (int(places[name].rpartition(":")[2]) for name in ("zookeeper", "kafka"))
        assert places["zookeeper"].startswith("127.0.0.1:")
        eventually(lambda: "Mode: standalone" in four_letter_word(zookeeper, "srvr"))
        eventually(lambda: known_brokers(kafka) == {0: ("127.0.0.1", kafka)})
        assert len(java_processes(places["directory"])) == 2
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=90)
        assert (process.returncode, rest) == (0, "")
    assert java_processes(places["directory"]) == []
    assert not Path(places["directory"]).exists()


def test_ctrl_c_is_the_ordinary_end() -> None:
    with command("--brokers", "0") as (process, places):
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
    assert not Path(places["directory"]).exists()


@pytest.mark.slow
def test_servers_do_not_outlive_a_command_killed_by_sigkill() -> None:
    with command() as (process, places):
        assert len(java_processes(places["directory"])) == 2
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        await_none(places["directory"])
    assert Path(places["directory"]).exists()
    with command("--brokers", "0") as (process, others):
        assert not Path(places["directory"]).exists()
        assert Path(others["directory"]).exists()


@pytest.mark.usefixtures("hangup_by_default")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("step", ["starting ZooKeeper", "starting Kafka"])
def test_a_signal_during_the_start_leaves_nothing(tmp_path: Path, number: signal.Signals, step: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        while step not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, rest = process.communicate(timeout=120)
        assert "stopped before the sandbox was ready" in rest
        assert process.returncode == 1
    await_none(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failed_start_leaves_only_its_logs_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = JarSource.from_environment()
    temporary, cache = tmp_path / "tmp", tmp_path / "cache"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(cache))
    for _ in range(2):
        with pytest.raises(SandboxError, match="ended with exit code 1") as failure:
            Sandbox(jars=jars, kafka_properties={"num.partitions": "none"}).start()
        assert list(temporary.iterdir()) == []
        named = Path(str(failure.value).rpartition("see ")[2])
        assert named.parent == cache / "failed-sandbox"
        assert "num.partitions" in named.read_text()


@pytest.mark.parametrize(("option", "server"), [("--zookeeper-port", "ZooKeeper"), ("--kafka-port", "Kafka")])
def test_port_in_use_is_one_line_that_names_what_to_check(option: str, server: str) -> None:
    port = free_port()
    with socket_on(port):
        done = subprocess.run([*COMMAND, option, str(port)], capture_output=True, text=True, timeout=120, check=False)
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert error.startswith(f"error: port {port} on 127.0.0.1 cannot be used for {server}")
    assert "check which process listens there" in error


@pytest.mark.slow
def test_given_ports_are_used() -> None:
    ports = free_port(), free_port()
    with command("--zookeeper-port", str(ports[0]), "--kafka-port", str(ports[1])) as (_, places):
        assert (places["zookeeper"], places["kafka"]) == (f"{HOST}:{ports[0]}", f"{HOST}:{ports[1]}")


# Jars


@pytest.mark.slow
def test_kafka_runs_from_a_directory_of_jars_and_a_flipped_bit_is_refused(tmp_path: Path, sandbox: Sandbox) -> None:
    source = JarSource.from_environment()
    directory = tmp_path / "jars"
    shutil.copytree((source.jars_dir or (source.cache or tmp_path) / "jars" / "kafka-3.9.1"), directory)
    with Sandbox(jars=JarSource(jars_dir=directory)) as box:
        eventually(box.brokers[0].is_serving)
    victim = directory / "kafka_2.13-3.9.1.jar"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    done = subprocess.run(
        [*COMMAND, "--jars-dir", str(directory)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert f"error: refused {victim}: its SHA-256 is {hashlib.sha256(content).hexdigest()}" in done.stderr


class Mirror:
    """A Maven repository on loopback that counts what is fetched from it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fetched: list[str] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://{HOST}:{self._server.server_address[1]}/repository/"

    def publish(self, contents: dict[str, bytes]) -> LockFile:
        lines = [f"{hashlib.sha256(content).hexdigest()} {name}" for name, content in contents.items()]
        lock = parse_lock("\n".join(lines), "sample")
        for jar, content in zip(lock.jars, contents.values(), strict=True):
            path = self.directory / "repository" / jar.repository_path
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        return lock

    def __enter__(self) -> "Mirror":
        mirror = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith(".jar"):
                    mirror.fetched.append(self.path.rpartition("/")[2])
                super().do_GET()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), partial(Handler, directory=str(self.directory)))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()


CONTENTS = {"org.example:alpha:1.0": b"alpha" * 1000, "org.example.deep:beta_2.13:2.0-1": b"beta" * 1000}


def test_fetch_from_a_mirror_then_offline(tmp_path: Path) -> None:
    with Mirror(tmp_path / "mirror") as mirror:
        lock = mirror.publish(CONTENTS)
        source = JarSource(maven_url=mirror.url, cache=tmp_path / "cache")
        paths = source.provide(lock, QUIET)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert mirror.fetched == ["alpha-1.0.jar", "beta_2.13-2.0-1.jar"]
    assert source.provide(lock, QUIET) == paths  # the mirror is gone
    left = {path.name for path in (tmp_path / "cache" / "jars").iterdir()}
    assert left == {"sample", "sample.lock"}


def test_wrong_bytes_from_a_mirror_never_reach_the_cache(tmp_path: Path) -> None:
    with Mirror(tmp_path / "mirror") as mirror:
        lock = mirror.publish(CONTENTS)
        (mirror.directory / "repository" / lock.jars[1].repository_path).write_bytes(b"something else")
        source = JarSource(maven_url=mirror.url, cache=tmp_path / "cache")
        with pytest.raises(SandboxError, match=r"refused .*beta_2\.13-2\.0-1\.jar: .*it came from http"):
            source.provide(lock, QUIET)
    assert list((tmp_path / "cache").rglob("*.jar")) == []


def test_first_runs_at_the_same_time_fetch_once(tmp_path: Path) -> None:
    with Mirror(tmp_path / "mirror") as mirror, ThreadPoolExecutor(3) as pool:
        lock = mirror.publish(CONTENTS)
        source = JarSource(maven_url=mirror.url, cache=tmp_path / "cache")
        answers = list(pool.map(lambda _: source.provide(lock, QUIET), range(3)))
    assert answers[0] == answers[1] == answers[2]
    assert sorted(mirror.fetched) == ["alpha-1.0.jar", "beta_2.13-2.0-1.jar"]


def test_unreachable_mirror_names_what_to_do(tmp_path: Path) -> None:
    port = free_port()
    assert is_free(port)
    source = JarSource(maven_url=f"http://{HOST}:{port}/", cache=tmp_path)
    lock = parse_lock(f"{'0' * 64} org.example:alpha:1.0", "sample")
    with pytest.raises(SandboxError) as raised:
        source.provide(lock, QUIET)
    message = str(raised.value)
    assert "1 of 1 are missing (org.example:alpha:1.0)" in message
    assert f"check that http://{HOST}:{port}/ can be reached, or set --maven-url or --jars-dir" in message
    assert (tmp_path / "jars" / "sample.fetch.log").exists()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_ends_no_server_of_its_parent() -> None:
    with Sandbox(brokers=0) as box:
        for ending in (partial(box.__exit__, None, None, None), box.zookeeper.stop, box.zookeeper.kill):
            assert in_forked_child(ending)
        assert refused_in_forked_child(box.add_brokers, f"sandbox {box.directory}")
        assert "Mode:" in box.zookeeper.ask("srvr")
        assert box.zookeeper.log.exists()
