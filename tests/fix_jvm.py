"""Groups that JVM consumers and ours share: members of both kinds, who owns what, and what the JVM says should be."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.exceptions import NoNodeError

from tests.fix_waiting import eventually
from zkconsumer import Blacklist, ConsumerConfig, ConsumerConnector, TopicPartition, Whitelist
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.jvmconsumer import ConsumerJvm
from zkconsumer.sandbox.progress import Progress

# Small, but as in production the attempts outlast a session: or a crash leaves partitions unowned (SPEC 4.4).
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "20000",
    "zookeeper.sync.time.ms": "300",
    "rebalance.backoff.ms": "300",
    "rebalance.max.retries": "30",
    "auto.offset.reset": "smallest",
}
_FILTERS = {"Whitelist": Whitelist, "Blacklist": Blacklist}
_SETTLING_S = 60.0


def values(count, start=0):
    """Consecutive numbers, as records."""
    return [b"%d" % number for number in range(start, start + count)]


def spread(records, partitions):
    """Records dealt to partitions in turn."""
    return [{"value": value, "partition": number % partitions} for number, value in enumerate(records)]


class JvmMember:
    """A member of a mixed group that is a JVM consumer."""

    def __init__(self, jvm: ConsumerJvm, properties):
        self.jvm = jvm
        self._consumer = jvm.consumer(properties)
        self.consumer_id = self._consumer.consumer_id
        self._last: list = []

    def subscribe(self, topics, topic_filter, streams):
        if topic_filter is None:
            self._consumer.create_streams(topics)
        else:
            kind, regex = topic_filter
            self._consumer.create_streams_by_filter(kind, regex, streams)

    def received(self):
        if self.jvm.running:
            self._last = [(*tuple(record)[:3], record.value) for record in self._consumer.received()]
        return self._last

    def commit(self):
        self._consumer.commit()

    def leave(self):
        self._consumer.shutdown()
        self.received()

    def kill(self):
        self.jvm.kill()


class OurMember:
    """A member of a mixed group that is ours, in this process; a thread per stream reads all the time."""

    def __init__(self, properties):
        self.connector = ConsumerConnector(ConsumerConfig.from_properties(properties))
        self.consumer_id = self.connector.consumer_id
        self._received: list = []

    def subscribe(self, topics, topic_filter, streams):
        if topic_filter is None:
            made = self.connector.create_message_streams(topics)
            each = [stream for of_topic in made.values() for stream in of_topic]
        else:
            kind, regex = topic_filter
            each = self.connector.create_message_streams_by_filter(_FILTERS[kind](regex), streams)
        for stream in each:
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for message in stream:
            self._received.append((message.topic, message.partition, message.offset, message.value))

    def received(self):
        return list(self._received)

    def commit(self):
        self.connector.commit_offsets()

    def leave(self):
        self.connector.shutdown()


class OurProcess:
    """A member of a mixed group that is ours, as the process ``zkconsumer consume``: it can be killed and paused."""

    def __init__(self, properties, output: Path):
        self.consumer_id = f"{properties['group.id']}_{properties['consumer.id']}"
        self._properties = properties
        self._output = output
        self._process: subprocess.Popen | None = None

    def subscribe(self, topics, topic_filter, streams):
        assert topic_filter is None
        command = [sys.executable, "-m", "zkconsumer", "consume", "--format", "json", "--output", str(self._output)]
        for name, value in self._properties.items():
            command += ["-p", f"{name}={value}"]
        for topic, count in topics.items():
            command += ["--topic", f"{topic}:{count}"]
        self._process = subprocess.Popen(command)

    def received(self):
        lines = self._output.read_bytes().split(b"\n")[:-1] if self._output.exists() else []
        found = [json.loads(line) for line in lines]
        return [(one["topic"], one["partition"], one["offset"], one["value"].encode()) for one in found]

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def leave(self):
        self._process.terminate()
        assert self._process.wait(60) == 0

    def stop_anyhow(self):
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()


class MixedGroup:
    """One group, its members of both kinds, and what ZooKeeper says of it.

    ``jvm`` hosts the JVM members unless one brings its own, and computes what the assignment should be.
    """

    def __init__(self, name, sandbox, zookeeper, jvm, directory):
        self.name = name
        self.members = []
        self.gone = []
        self._sandbox = sandbox
        self._zookeeper = zookeeper
        self._jvm = jvm
        self._directory = directory
        self._settings = {
            **SETTINGS,
            "zookeeper.connect": sandbox.zookeeper_connect,
            "group.id": name,
        }

    # -- members --------------------------------------------------------------------------------------------------

    def join_jvm(self, consumer, topics=None, topic_filter=None, streams=1, jvm=None, **properties):
        """A JVM consumer joins; ``topic_filter`` is e.g. ("Whitelist", "a.*")."""
        return self._join(
            JvmMember(jvm or self._jvm, self._properties(consumer, properties)), topics, topic_filter, streams
        )

    def join(self, consumer, topics=None, topic_filter=None, streams=1, **properties):
        """One of ours joins, in this process."""
        return self._join(OurMember(self._properties(consumer, properties)), topics, topic_filter, streams)

    def join_process(self, consumer, topics, **properties):
        """One of ours joins, as a process of its own; returns at once."""
        output = self._directory / f"{consumer}.json"
        return self._join(OurProcess(self._properties(consumer, properties), output), topics, None, 1)

    def _properties(self, consumer, properties):
        given = {name.replace("_", "."): str(value) for name, value in properties.items()}
        return {**self._settings, "consumer.id": consumer, **given}

    def _join(self, member, topics, topic_filter, streams):
        self.members.append(member)
        member.subscribe(topics, topic_filter, streams)
        return member

    def leave(self, member):
        member.leave()
        self._is_gone(member)

    def kill(self, member):
        """SIGKILL; the group notices when the session has expired."""
        member.kill()
        self._is_gone(member)

    def _is_gone(self, member):
        self.members.remove(member)
        self.gone.append(member)

    def close(self):
        """Whatever happened before, leave nothing running."""
        for member in list(self.members):
            if isinstance(member, OurProcess):
                member.stop_anyhow()
            elif not isinstance(member, JvmMember) or member.jvm.running:
                member.leave()

    # -- what ZooKeeper and the members say -------------------------------------------------------------------------

    def path(self, *parts):
        return "/".join(("/consumers", self.name, *map(str, parts)))

    def children(self, *parts):
        try:
            return sorted(self._zookeeper.get_children(self.path(*parts)))
        except NoNodeError:
            return []

    def node(self, *parts):
        """Data and stat of a znode below the group, (None, None) if there is none."""
        try:
            return self._zookeeper.get(self.path(*parts))
        except NoNodeError:
            return None, None

    def owners(self):
        """Text of every owner znode."""
        found = {}
        for topic in self.children("owners"):
            for partition in self.children("owners", topic):
                data, _ = self.node("owners", topic, partition)
                if data is not None:
                    found[TopicPartition(topic, int(partition))] = data.decode()
        return found

    def offsets(self, topic):
        """Committed offset by partition."""
        return {int(p): int(self.node("offsets", topic, p)[0]) for p in self.children("offsets", topic)}

    def settle(self, strategy="range", jvm=None, seconds=_SETTLING_S):
        """Wait until exactly our members are registered and own what the JVM's assignor says; return the owners."""
        wanted = sorted(member.consumer_id for member in self.members)
        oracle = jvm or self._jvm
        owners = {}

        def settled():
            nonlocal owners
            if self.children("ids") != wanted:
                return False
            owners = self.owners()
            try:
                return owners == oracle.assignment(self._sandbox.zookeeper_connect, self.name, strategy)
            except SandboxError:
                if not oracle.running:
                    raise
                return False  # the JVM listed a member, say a nudge, that was gone when its registration was read

        eventually(settled, seconds)
        return owners

    def received(self):
        """Everything that anybody received: (topic, partition, offset, value)."""
        return [record for member in (*self.members, *self.gone) for record in member.received()]

    def expect_all(self, produced):
        """Wait until every value was received by somebody; return how often each (topic, partition, offset) was."""
        wanted = set(produced)
        eventually(lambda: wanted <= {record[3] for record in self.received()}, _SETTLING_S)
        return Counter(record[:3] for record in self.received())


class Feed(threading.Thread):
    """Produces numbered values to some topics, all the time."""

    def __init__(self, bootstrap_servers, *topics):
        super().__init__(daemon=True)
        self.values = []
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        self._topics = topics
        self._ended = threading.Event()
        self.start()

    def run(self):
        while not self._ended.wait(0.05):
            for topic in self._topics:
                for _ in range(20):
                    self.values.append(b"%d" % len(self.values))
                    self._producer.produce(topic, self.values[-1])
            assert self._producer.flush(30) == 0

    def stop(self):
        """End it and return all values produced."""
        self._ended.set()
        self.join()
        return self.values


@pytest.fixture(scope="session")
def make_jvm(tmp_path_factory):
    """Start JVMs: ``make_jvm(version="1.1.1")``."""
    started = []

    def start(**arguments) -> ConsumerJvm:
        jvm = ConsumerJvm(tmp_path_factory.mktemp("jvm"), progress=Progress(), **arguments)
        started.append(jvm)
        jvm.start()
        return jvm

    yield start
    for jvm in started:
        jvm.kill()


@pytest.fixture(scope="session")
def jvm(make_jvm):
    """A JVM with consumers of 1.1.1 that nobody may kill or pause."""
    return make_jvm()


@pytest.fixture
def private_jvm(make_jvm):
    """A JVM of one test, to kill and pause."""
    jvm = make_jvm(name="JVM to harm")
    yield jvm
    jvm.resume()
    jvm.kill()


@pytest.fixture(scope="session")
def old_jvm(make_jvm):
    """A JVM with consumers of 0.11.0.3, the last to hash as 0.8.2 did."""
    return make_jvm(version="0.11.0.3", name="Old JVM consumer")


@pytest.fixture
def group(sandbox, zookeeper, jvm, unique_name, tmp_path):
    """A group for members of both kinds."""
    mixed = MixedGroup(unique_name, sandbox, zookeeper, jvm, tmp_path)
    yield mixed
    mixed.close()


@pytest.fixture
def feed(sandbox):
    """Produce all the time: ``feed(*topics)``."""
    started = []

    def start(*topics):
        started.append(Feed(sandbox.bootstrap_servers, *topics))
        return started[-1]

    yield start
    for one in started:
        one.stop()
