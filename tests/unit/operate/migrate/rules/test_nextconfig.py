"""The configuration of the next client, from values."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.config.consumerconfig import PROPERTIES
from zkconsumer.errors import ConfigError
from zkconsumer.operate.migrate.rules.nextconfig import _LIBRDKAFKA_LIMITS, next_config
from zkconsumer.operate.migrate.rules.nextproperties import RULES, TARGETS, NextLine

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


def line_of(target, name, value, **more):
    given = {name: value, **{other.replace("_", "."): one for other, one in more.items()}}
    return next(line for line in next_config(given, target) if line.name == name)


@pytest.mark.parametrize(
    ("timeout", "heartbeat", "is_short"),
    [("3", "1", True), ("5999", "1999", True), ("6000", "2000", False), ("8999", "2999", False), ("9000", None, False)],
)
def test_a_session_is_one_with_the_coordinator(timeout, heartbeat, is_short):
    line = line_of("java", "zookeeper.session.timeout.ms", timeout)
    assert line.successors.get("heartbeat.interval.ms") == heartbeat
    assert ("group.min.session.timeout.ms (6000)" in line.note) is is_short


@pytest.mark.parametrize(
    ("name", "value", "more", "note"),
    [
        ("zookeeper.connect", "h:2181", {}, "no successor: the next client does not use ZooKeeper"),
        ("offsets.storage", "zookeeper", {}, "no successor: offsets are stored in Kafka; move them"),
        ("offsets.storage", "kafka", {}, "no successor: offsets are stored in Kafka, where they are already; first"),
        (
            "offsets.storage",
            "kafka",
            {"dual_commit_enabled": "true"},
            "no successor: offsets are stored in Kafka, where they are already; first",
        ),
        ("auto.commit.enable", "true", {}, "records that poll() has returned"),
        ("sasl.username", "u", {"sasl_mechanism": "GSSAPI"}, "no successor: only sasl.mechanism PLAIN and SCRAM"),
        ("ssl.key.location", "/k", {}, "in Java one file has the key"),
    ],
)
def test_notes_name_what_changes(name, value, more, note):
    assert line_of("java", name, value, **more).note.startswith(note)


@pytest.mark.parametrize(
    ("name", "value", "more", "note"),
    [
        (
            "offsets.storage",
            "kafka",
            {"dual_commit_enabled": "false"},
            "no successor: offsets are stored in Kafka, where they are already",
        ),
        ("auto.commit.enable", "false", {}, ""),
        ("max.poll.records", "5", {}, "not carried over: the JVM consumer ignores it"),
        ("client_id", "c", {}, "not carried over: the JVM consumer ignores it"),
    ],
)
def test_a_note_says_no_more_than_that(name, value, more, note):
    assert (
        next(
            line
            for line in next_config({name: value, **{k.replace("_", "."): v for k, v in more.items()}}, "java")
            if line.name == name
        ).note
        == note
    )


def test_only_round_robin_changes_its_order():
    for value, changes in (("roundrobin", True), ("range", False), ("roundrobin-natural", False)):
        assert ("another order" in line_of("java", "partition.assignment.strategy", value).note) is changes


def test_a_property_that_only_zkconsumer_has_is_not_carried_over():
    name = next(row.name for row in PROPERTIES.values() if row.name not in RULES)
    value = _legal(PROPERTIES[name.replace(".", "_")])
    assert line_of("java", name, value).note == "no successor: only zkconsumer has it"


def test_files_of_pem_are_named_otherwise_in_java():
    assert successors("java", ssl_ca_location="/ca") == {"ssl.truststore.location": "/ca", "ssl.truststore.type": "PEM"}
    assert successors("confluent", ssl_ca_location="/ca") == {"ssl.ca.location": "/ca"}
    assert successors("mm2", ssl_ca_location="/ca") == {
        "source.ssl.truststore.location": "/ca",
        "source.ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize(("target", "name"), [("spark", "subscribe"), ("mm2", "target.bootstrap.servers")])
def test_what_only_one_target_needs(target, name):
    needing = {other for other in TARGETS for line in next_config({}, other) if name in line.successors}
    assert needing == {target}


def test_a_value_that_librdkafka_refuses_is_changed():
    line = line_of("confluent", "socket.timeout.ms", "1")
    assert line.successors == {"socket.timeout.ms": "10"}
    assert line.note == "also limits requests that are not a fetch; changed to what librdkafka accepts"
    line = line_of("confluent", "fetch.wait.max.ms", "300001")
    assert (line.successors, line.note) == ({"fetch.wait.max.ms": "300000"}, "changed to what librdkafka accepts")


@pytest.mark.parametrize("name", _LIBRDKAFKA_LIMITS)
def test_limits_are_those_of_librdkafka(name):
    least, most = _LIBRDKAFKA_LIMITS[name]
    for value in (least, most):
        Consumer({"group.id": "g", name: value}).close()
    for value in (least - 1, most + 1):
        with pytest.raises(KafkaException, match=r"outside allowed range|must be"):
            Consumer({"group.id": "g", name: value})


def test_nothing_else_is_missing():
    def missing(target, given):
        return {name for line in next_config(given, target) if line.is_missing for name in line.successors}

    assert missing("java", {}) == missing("confluent", {}) == {"bootstrap.servers", "group.id"}
    assert missing("spark", {}) == {"kafka.bootstrap.servers", "subscribe"}
    assert missing("mm2", {}) == {"source.bootstrap.servers", "target.bootstrap.servers", "source->target.topics"}
    assert missing("mm2", {**LEAST, "mirror.topics.whitelist": "a"}) == {"target.bootstrap.servers"}
    assert missing("java", LEAST) == set()
    assert not NextLine("a").is_missing


def test_a_default_is_written_only_where_the_file_has_no_value():
    assert whole("java", LEAST)["session.timeout.ms"] == "45000"
    assert "it was 6 s" in "".join(line.note for line in next_config(LEAST, "java"))


def test_defaults_are_those_of_the_protocol_of_the_file():
    """Members of both kinds share the group until the last one has been replaced."""
    lines = next_config({**LEAST, "group.protocol": "kafka"}, "java")
    (strategy,) = [line for line in lines if "partition.assignment.strategy" in line.successors]
    assert strategy.successors["partition.assignment.strategy"].endswith(".CooperativeStickyAssignor")
    assert [line for line in lines if "session.timeout.ms" in line.successors] == [], "it is 45 s for both"
    assert whole("java", {**LEAST, "zookeeper.session.timeout.ms": "7000"})["session.timeout.ms"] == "7000"
    for target, name in (("spark", "startingOffsets"), ("mm2", "source.consumer.auto.offset.reset")):
        assert whole(target, LEAST)[name] == "latest"
        assert whole(target, {**LEAST, "auto.offset.reset": "smallest"})[name] == "earliest"


def test_an_own_assignor_has_to_be_written_again():
    line = line_of("java", "partition.assignment.strategy", "racks:Racks,cooperative-sticky")
    assert "racks:Racks has to be written again" in line.note
    assert line.successors == {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    }
    alone = line_of("java", "partition.assignment.strategy", "racks:Racks")
    assert alone.successors["partition.assignment.strategy"].endswith(".RangeAssignor")
