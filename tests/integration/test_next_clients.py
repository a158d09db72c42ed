"""The configuration that ``migrate config`` writes, read by the clients that it is for."""

import ast
import subprocess

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from jvmclients.zookeeperconsumer import ConsumerJvm
from zkconsumer.cli.migrateconfig import config_command

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

VALUES = ["a", "b", "c"]


@pytest.fixture
def jvm_file(sandbox, unique_name, tmp_path):
    """The properties of a JVM consumer, none of which has its default."""
    path = tmp_path / "consumer.properties"
    path.write_text(
        f"""
# of the old cluster
group.id = {unique_name}
zookeeper.connect = {sandbox.zookeeper_connect}
zookeeper.session.timeout.ms = 7000
auto.offset.reset = smallest
auto.commit.interval.ms = 1500
fetch.message.max.bytes = 65536
fetch.min.bytes = 2
fetch.wait.max.ms = 50
socket.timeout.ms = 40000
refresh.leader.backoff.ms = 150
partition.assignment.strategy = roundrobin
offsets.storage = kafka
exclude.internal.topics = true
queued.max.message.chunks = 4
""",
        encoding="utf-8",
    )
    return path


@pytest.fixture
def filled(topic_factory, produce):
    """A topic of one partition with a record of each value."""
    topic = topic_factory(partitions=1)
    produce(topic, [{"value": value.encode(), "partition": 0} for value in VALUES])
    return topic


def converted(file, target, sandbox):
    done = CliRunner().invoke(
        config_command, [str(file), "--target", target, "--bootstrap-server", sandbox.bootstrap_servers]
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_librdkafka_consumes_with_it(jvm_file, filled, sandbox, capfd):
    consumer = Consumer(ast.literal_eval(converted(jvm_file, "confluent", sandbox)))
    consumer.subscribe([filled])
    received = []
    try:
        while len(received) < len(VALUES):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            received.append(message.value().decode())
    finally:
        consumer.close()
    assert received == VALUES
    assert "CONFWARN" not in capfd.readouterr().err


def test_the_new_java_consumer_consumes_with_it(jvm_file, filled, sandbox, tmp_path):
    next_file = tmp_path / "next.properties"
    next_file.write_text(converted(jvm_file, "java", sandbox), encoding="utf-8")
    tool = ConsumerJvm(tmp_path / "jvm").tool(
        "kafka.tools.ConsoleConsumer",
        *("--bootstrap-server", sandbox.bootstrap_servers, "--topic", filled, "--max-messages", str(len(VALUES))),
        *("--consumer.config", str(next_file)),
    )
    done = subprocess.run(tool, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == VALUES
    assert "isn't a known config" not in done.stderr + done.stdout
