"""The configuration of the next client, from values."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.config.consumerconfig import PROPERTIES
from zkconsumer.errors import ConfigError
from zkconsumer.operate.migrate.rules.nextconfig import next_config
from zkconsumer.operate.migrate.rules.nextproperties import TARGETS

LEAST = {"group.id": "g", "zookeeper.connect": "h:2181", "bootstrap.servers": "b1:9092"}


def successors(target, **properties):
    """What one file becomes, without what it lacks."""
    lines = next_config({name.replace("_", "."): value for name, value in properties.items()}, target)
    return {name: value for line in lines if line.name for name, value in line.successors.items()}


def whole(target, properties):
    return {name: value for line in next_config(properties, target) for name, value in line.successors.items()}


@pytest.mark.parametrize(
    ("given", "java", "confluent", "spark", "mm2"),
    [
        (
            {"auto_offset_reset": "smallest"},
            {"auto.offset.reset": "earliest"},
            {"auto.offset.reset": "earliest"},
            {"startingOffsets": "earliest"},
            {"source.consumer.auto.offset.reset": "earliest"},
        ),
        (
            {"fetch_wait_max_ms": "250"},
            {"fetch.max.wait.ms": "250"},
            {"fetch.wait.max.ms": "250"},
            {"kafka.fetch.max.wait.ms": "250"},
            {"source.consumer.fetch.max.wait.ms": "250"},
        ),
        ({"auto_commit_enable": "false"}, {"enable.auto.commit": "false"}, {"enable.auto.commit": "false"}, {}, {}),
        (
            {"fetch_message_max_bytes": "7"},
            {"max.partition.fetch.bytes": "7"},
            {"max.partition.fetch.bytes": "7"},
            {"kafka.max.partition.fetch.bytes": "7"},
            {"source.consumer.max.partition.fetch.bytes": "7"},
        ),
        (
            {"partition_assignment_strategy": "roundrobin"},
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"},
            {"partition.assignment.strategy": "roundrobin"},
            {},
            {},
        ),
        (
            {"mirror_topics_whitelist": "a.*,b"},
            {},
            {},
            {},
            {"source->target.topics": "a.*,b"},
        ),
        (
            {"ssl_endpoint_identification_algorithm": "none"},
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
            {"kafka.ssl.endpoint.identification.algorithm": ""},
            {"source.ssl.endpoint.identification.algorithm": ""},
        ),
        ({"consumer_timeout_ms": "5000", "zookeeper_connect": "h:2181"}, {}, {}, {}, {}),
    ],
)
def test_a_property_becomes_its_successor(given, java, confluent, spark, mm2):
    assert successors("java", **given) == java
    assert successors("confluent", **given) == confluent
    assert successors("spark", **given) == spark
    assert successors("mm2", **given) == mm2


def test_a_short_session_shortens_the_heartbeats():
    assert successors("java", zookeeper_session_timeout_ms="6000") == {
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "2000",
    }
    assert successors("java", zookeeper_session_timeout_ms="30000") == {"session.timeout.ms": "30000"}


def test_a_user_and_password_become_one_property_in_java():
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": 'a"b\\c'}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert successors("java", **login) == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="u" password="a\\"b\\\\c";',
    }
    assert successors("confluent", **login) == {name.replace("_", "."): value for name, value in login.items()}


@pytest.mark.parametrize("target", TARGETS)
def test_every_property_has_a_successor_or_a_reason(target):
    values = {row.name: _legal(row) for row in PROPERTIES.values()}
    lines = {line.name: line for line in next_config(values, target) if line.name}
    assert lines.keys() == values.keys()
    assert [name for name, line in lines.items() if not line.successors and not line.note] == []


def _legal(row):
    if row.kind is bool:
        return "true"
    if row.kind is int:
        return str(min(max(row.minimum or 0, 10_000), row.maximum))
    return row.kind[0] if isinstance(row.kind, tuple) else "h:1"


def test_names_that_the_jvm_consumer_ignores_are_not_carried_over():
    lines = {line.name: line for line in next_config({**LEAST, "zk.connect": "h", "max.poll.records": "5"}, "java")}
    assert (lines["zk.connect"].successors, lines["max.poll.records"].successors) == ({}, {})
    assert "zookeeper.connect" in lines["zk.connect"].note


def test_defaults_that_differ_are_written():
    lacking = whole("java", LEAST)
    assert lacking["client.id"] == "g"
    assert lacking["auto.commit.interval.ms"] == "60000"
    assert lacking["partition.assignment.strategy"].endswith("RangeAssignor")
    assert "auto.commit.interval.ms" not in whole("java", {**LEAST, "auto.commit.enable": "false"})


def test_defaults_of_librdkafka_that_differ_are_written():
    expected = {
        "isolation.level": "read_uncommitted",
        "check.crcs": "true",
        "topic.blacklist": "^__consumer_offsets$,^__transaction_state$",
    }
    lacking = whole("confluent", LEAST)
    assert {name: lacking.get(name) for name in expected} == expected
    assert not expected.keys() & whole("java", LEAST).keys()
    given = {"isolation.level": "read_committed", "check.crcs": "false", "exclude.internal.topics": "false"}
    lines = next_config(LEAST | given, "confluent")
    assert [name for line in lines if not line.name for name in line.successors if name in expected] == []
    assert (
        whole("confluent", LEAST | given).items()
        >= {"isolation.level": "read_committed", "check.crcs": "false"}.items()
    )


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_operator_has_to_give_is_marked(target):
    missing = [name for line in next_config({}, target) if line.is_missing for name in line.successors]
    assert ("source." if target == "mm2" else "kafka." if target == "spark" else "") + "bootstrap.servers" in missing
    given = next_config({"bootstrap.servers": "old:1"}, target, "b:9092")
    assert "b:9092" in [value for line in given for value in line.successors.values()]
    assert "old:1" not in [value for line in given for value in line.successors.values()]


def test_illegal_values_are_refused_together():
    with pytest.raises(ConfigError) as refused:
        next_config({"fetch.min.bytes": "x", "auto.offset.reset": "newest"}, "java")
    assert [text.split()[0] for text in refused.value.violations] == ["fetch.min.bytes", "auto.offset.reset"]


INTEGERS = [row for row in PROPERTIES.values() if row.kind is int and not row.ours]


FILES = st.fixed_dictionaries(
    {},
    optional={
        row.name: st.integers(row.minimum if row.minimum is not None else -5, row.maximum).map(str) for row in INTEGERS
    },
)


@settings(max_examples=5)
@given(st.lists(FILES, min_size=10, max_size=10))
def test_librdkafka_accepts_what_the_jvm_consumer_accepts(files):
    least = {**LEAST, "bootstrap.servers": "127.0.0.1:9"}  # needs no name server
    made = [Consumer(whole("confluent", least | properties)) for properties in files]
    with ThreadPoolExecutor(len(made)) as closing:  # each waits for its threads
        list(closing.map(Consumer.close, made))
