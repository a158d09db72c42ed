import re
from pathlib import Path

import pytest

from zkconsumer.config.consumerconfig import PROPERTIES
from zkconsumer.errors import ConfigError
from zkconsumer.group.rules.subscription import Whitelist
from zkconsumer.model import TopicPartition
from zkconsumer.spark.rules.kafkasecurity import JavaStore
from zkconsumer.spark.rules.kafkasource import INSTEAD
from zkconsumer.spark.rules.options import (
    OPTION_NAMES,
    SourceOptions,
    Timestamps,
    check_batch,
    check_streaming,
    parse_options,
)

GOOD = {"zookeeper.connect": "h:2181/kafka", "group.id": "g", "subscribe": "t"}

SPARKS_OPTIONS = (
    "assign",
    "subscribe",
    "subscribePattern",
    "kafka.bootstrap.servers",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafka.group.id",
    "includeHeaders",
    "startingOffsetsByTimestampStrategy",
)
"""Options of a query that the documentation of Spark 4's Kafka source names."""


def violations(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    return "\n".join(caught.value.violations)


def test_defaults():
    options = parse_options(GOOD)
    assert (options.config.zookeeper_connect, options.config.group_id) == ("h:2181/kafka", "g")
    assert options.topics == ("t",)
    assert options.pattern is None
    assert (options.starting, options.ending) == ("group", None)
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert (options.num_streams, options.min_partitions, options.max_offsets_per_trigger) == (None, None, None)
    assert (options.min_offsets_per_trigger, options.max_records_per_partition) == (None, None)
    assert options.max_trigger_delay_ms == 15 * 60_000


def test_options_that_are_not_given_have_the_documented_defaults():
    options = SourceOptions(parse_options(GOOD).config, ("t",), None)
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert Timestamps() == Timestamps(None, {}, or_latest=False)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("startingOffsets", "earliest", "startingOffsets=earliest"),
        ("startingOffsets", '{"t":{"0":7}}', "startingOffsets"),
        ("startingTimestamp", "0", "startingTimestamp"),
        ("startingOffsetsByTimestamp", '{"t":{"0":7}}', "startingOffsetsByTimestamp"),
    ],
)
def test_messages_name_the_option_of_the_start(name, value, named):
    assert parse_options({**GOOD, name: value}).starting_option == named


def test_topics_are_sorted():
    assert parse_options({**GOOD, "subscribe": "f,b,d,a,e,c"}).topics == tuple("abcdef")
    assert SourceOptions(parse_options(GOOD).config, tuple("fbdaec"), None).select(frozenset()) == list("abcdef")
    offsets = ",".join(f'"{name}":{{"0":1}}' for name in "fbdaec")
    assert "a, b, c, d, e, f" in violations({**GOOD, "startingOffsets": f"{{{offsets}}}"})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7", 7), ("7ms", 7), ("2s", 2000), ("3m", 180_000), ("2 min", 120_000), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_durations_have_sparks_units(text, ms):
    options = parse_options({**GOOD, "maxTriggerDelay": text, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5"})
    assert options.max_trigger_delay_ms == ms


def test_every_option_and_any_property_in_any_case():
    options = parse_options(
        {
            "Zookeeper.Connect": "h:1",
            "group.id": "g",
            "SUBSCRIBE": "b, a,b",
            "startingoffsets": '{"a":{"0":7}}',
            "endingOffsets": "latest",
            "maxoffsetspertrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "minPartitions": "4",
            "maxRecordsPerPartition": "50",
            "failOnDataLoss": "False",
            "includeHeaders": "true",
            "numStreams": "3",
            "fetch.message.max.bytes": "2097152",
        }
    )
    assert options.topics == ("a", "b")
    assert options.starting == {TopicPartition("a", 0): 7}
    assert options.ending == "latest"
    assert (options.max_offsets_per_trigger, options.min_partitions, options.num_streams) == (100, 4, 3)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (10, 30_000)
    assert options.max_records_per_partition == 50
    assert options.fail_on_data_loss is False
    assert options.include_headers is True
    assert options.config.fetch_message_max_bytes == 2_097_152


def test_all_mistakes_are_named_in_one_message():
    text = violations(
        {
            "kafka.bootstrap.servers": "h:9092",
            "subscribe": "t",
            "subscribePattern": "t.*",
            "startingOffsets": "earlier",
            "maxOffsetsPerTrigger": "0",
            "includeHeaders": "yes",
            "starttingOffsets": "earliest",
            "socket.timeout.ms": "soon",
        }
    )
    for name in (
        "kafka.bootstrap.servers",
        "exactly one of subscribe and subscribePattern",
        "startingOffsets must be one of group, earliest, latest or JSON, not 'earlier'",
        "maxOffsetsPerTrigger must be a positive integer, not '0'",
        "includeHeaders must be true or false, not 'yes'",
        "did you mean startingOffsets?",
        "socket.timeout.ms must be an integer, not 'soon'",
        "group.id is missing",
        "zookeeper.connect is missing",
    ):
        assert name in text


def test_bootstrap_servers_get_the_hint():
    text = violations({"kafka.bootstrap.servers": "h:9092", "subscribe": "t"})
    assert "set zookeeper.connect (host:port[,...][/chroot]) and group.id instead" in text


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "a/b"}, "cannot be the name of a topic"),
        ({"path": "/tmp"}, "load() takes no path"),
        ({"kafka.fetch.min.bytes": "1"}, "use fetch.min.bytes"),
        ({"endingOffsets": "earliest"}, "endingOffsets must be one of latest or JSON"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot be earliest"),
        ({"startingOffsets": '{"u":{"0":1}}'}, "not subscribed: u"),
        ({"startingOffsets": '{"t":{"0":"x"}}'}, "'x' as the offset of t-0"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be a number of milliseconds, not 'yesterday'"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-2}}'}, "-2 as the timestamp of t-0"),
        ({"startingOffsetsByTimestamp": '{"u":{"0":1}}'}, "not subscribed: u"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "startingOffsets and startingTimestamp contradict"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "only applies together with startingTimestamp or"),
        ({"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "last"}, "must be error or latest"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "endingOffsets and endingTimestamp contradict"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "(6) exceeds maxOffsetsPerTrigger (5)"),
        ({"minOffsetsPerTrigger": "6", "maxTriggerDelay": "1 week"}, "must be a duration such as 30s"),
        ({"maxTriggerDelay": "1m"}, "only applies together with minOffsetsPerTrigger"),
        ({"assign": '{"t":[0]}'}, "set exactly one of subscribe and subscribePattern (a batch read: or assign)"),
        ({"groupidprefix": "p"}, "groupIdPrefix cannot be used"),
        ({"kafka.group.id": "p"}, "use group.id"),
        ({"kafka.enable.auto.commit": "p"}, "kafka.enable.auto.commit cannot be used"),
        ({"kafka.Receive.Buffer.Bytes": "1"}, "use socket.receive.buffer.bytes"),
        ({"request.timeout.ms": "1"}, "use socket.timeout.ms"),
        ({"kafkaconsumer.polltimeoutms": "1"}, "use socket.timeout.ms"),
        ({"asyncProgressTrackingEnabled": "true"}, "asyncProgressTrackingEnabled cannot be used"),
        ({"kafka.no.such.thing": "1"}, "kafka.no.such.thing is of Kafka's Java client, and has no counterpart here"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config must end with a semicolon"),
        ({"kafka.ssl.truststore.location": "/t", "ssl.ca.location": "/ca"}, "ssl.ca.location is given twice"),
        ({"kafka.security.protocol": "SSL", "security.protocol": "SSL"}, "security.protocol is given twice"),
        ({"kafka.ssl.keystore.key": "hunter2"}, "set ssl.key.location"),
        ({"kafka.sasl.oauthbearer.token.endpoint.url": "u"}, "set sasl.oauthbearer.token.provider=module:function"),
    ],
)
def test_contradicting_options_are_refused(more, expected):
    assert expected in violations(GOOD | more)


def test_a_job_with_the_security_options_of_sparks_kafka_source_is_understood():
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required username='u' password='hunter2';"
    options = parse_options(
        GOOD
        | {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
        | {"kafka.sasl.jaas.config": login, "kafka.ssl.truststore.location": "/t.jks"}
    )
    config = options.config
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (config.sasl_username, config.sasl_password) == ("u", "hunter2")
    assert (options.trust, options.key) == (JavaStore("/t.jks"), None)
    assert "hunter2" not in repr(options)


def test_a_token_is_the_one_that_python_provides():
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    }
    assert "needs either sasl.oauthbearer.token or sasl.oauthbearer.token.provider" in violations(GOOD | given)
    options = parse_options(GOOD | given | {"sasl.oauthbearer.token.provider": "tokens:newest"})
    assert options.config.sasl_mechanism == "OAUTHBEARER"


def test_a_secret_that_spark_would_show_is_refused():
    text = violations(GOOD | {"zookeeper.digest": "user:hunter2"})
    assert "zookeeper.digest cannot be an option" in text
    assert "set zookeeper.digest.username and zookeeper.digest.password" in text
    assert "hunter2" not in text
    digest = {"zookeeper.digest.username": "user", "zookeeper.digest.password": "hunter2"}
    assert parse_options(GOOD | digest).config.zookeeper_digest == "user:hunter2"


@pytest.mark.parametrize("name", [row.name for row in PROPERTIES.values() if row.secret])
def test_every_secret_is_hidden_by_spark_or_refused(name):
    """The expression is the default of ``spark.redaction.regex``; a test with Spark looks at what it shows."""
    hidden = re.search(r"(?i)secret|password|token|access[.]?key", name) is not None
    complete = {"zookeeper.digest.username": "u"} if name == "zookeeper.digest.password" else {}
    if hidden:
        parse_options(GOOD | complete | {name: "hunter2"})
    else:
        assert f"{name} cannot be an option" in violations(GOOD | {name: "u:hunter2"})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a,b", "comma"), ("a{1,2}", "comma"), ("(", "no closing one"), (" ", "is empty")],
)
def test_patterns_that_jvm_members_would_read_differently_are_refused(pattern, expected):
    assert expected in violations({"zookeeper.connect": "h:1", "group.id": "g", "subscribePattern": pattern})


def test_a_pattern_selects_topics_and_is_registered_as_a_whitelist():
    options = parse_options({"zookeeper.connect": "h:1", "group.id": "g", "subscribePattern": "t.*|__.*"})
    assert options.select(frozenset({"t1", "u", "__consumer_offsets"})) == ["t1"]
    subscription = options.subscription({}, 2)
    assert (subscription.topic_filter, subscription.streams) == (Whitelist("t.*|__.*"), 2)


def test_names_are_registered_with_their_own_number_of_threads():
    options = parse_options(GOOD | {"subscribe": "a,b"})
    assert options.subscription({"a": 2, "b": 1}, 2).topics == {"a": 2, "b": 1}


ASSIGNED = {name: value for name, value in GOOD.items() if name != "subscribe"}


def test_a_batch_read_may_name_its_partitions():
    options = parse_options(ASSIGNED | {"ASSIGN": '{"u":[0],"t":[1,0]}', "startingOffsets": '{"t":{"1":5}}'})
    assert options.topics == ("t", "u")
    assert options.assigned == {TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)}
    check_batch(options)
    with pytest.raises(ConfigError, match=r"assign only applies to spark.read: .* Set subscribe=t,u instead"):
        check_streaming(options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"assign": "t:0"}, "assign is not JSON"),
        ({"assign": '{"t":{"0":1}}'}, 'assign must look like {"topic":[0,1]}'),
        ({"assign": '{"t":[]}'}, "assign must look like"),
        ({"assign": "{}"}, "assign must look like"),
        ({"assign": '{"t":[-1]}'}, "assign must look like"),
        ({"assign": '{"a/b":[0]}'}, "cannot be the name of a topic"),
        ({"assign": '{"t":[0]}', "startingOffsets": '{"u":{"0":1}}'}, "topics that are not subscribed: u"),
        ({"assign": '{"t":[0]}', "endingOffsets": '{"t":{"0":7,"3":1}}'}, "partitions that are not in assign: t-3"),
    ],
)
def test_an_assignment_that_cannot_be_read_is_refused(given, expected):
    assert expected in violations(ASSIGNED | given)


def test_options_of_the_other_kind_of_read_are_refused():
    with pytest.raises(ConfigError, match="only apply to"):
        check_streaming(parse_options(GOOD | {"endingOffsets": "latest"}))
    with pytest.raises(ConfigError, match="cannot be latest"):
        check_batch(parse_options(GOOD | {"startingOffsets": "latest"}))
    with pytest.raises(ConfigError, match="cannot be latest"):
        check_batch(parse_options(GOOD | {"startingOffsets": '{"t":{"0":-1}}'}))
    check_streaming(parse_options(GOOD | {"startingOffsets": "latest"}))
    check_batch(parse_options(GOOD | {"startingOffsets": "earliest", "endingOffsets": "latest"}))


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250", 250), ("250ms", 250), ("2 s", 2000), ("15M", 900_000), ("1h", 3_600_000), ("2d", 172_800_000)],
)
def test_durations_are_written_as_in_spark(text, ms):
    options = parse_options(GOOD | {"minOffsetsPerTrigger": "1", "maxTriggerDelay": text})
    assert options.max_trigger_delay_ms == ms


def test_times_to_begin_and_to_end_at():
    options = parse_options(GOOD | {"startingTimestamp": "5", "endingOffsetsByTimestamp": '{"t":{"1":9}}'})
    assert options.starting == Timestamps(everywhere=5, or_latest=False)
    assert options.ending == Timestamps(given={TopicPartition("t", 1): 9}, or_latest=True)
    options = parse_options(GOOD | {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "Latest"})
    assert options.starting == Timestamps(everywhere=5, or_latest=True)


def documented_names() -> set[str]:
    """The names in back quotes in the first column of a table of docs/spark.md."""
    lines = (Path(__file__).parents[4] / "docs" / "spark.md").read_text(encoding="utf-8").splitlines()
    first_columns = [line.split("|")[1] for line in lines if line.startswith("| `")]
    return {name for column in first_columns for name in re.findall(r"`([^`]+)`", column)}


def test_every_option_that_the_code_knows_is_in_the_tables():
    missing = {*OPTION_NAMES, *INSTEAD, *SPARKS_OPTIONS} - documented_names()
    assert not missing, f"docs/spark.md does not mention {sorted(missing)}"


@pytest.mark.parametrize("name", SPARKS_OPTIONS)
def test_every_option_of_sparks_kafka_source_is_accepted_or_answered(name):
    if name not in OPTION_NAMES:
        assert name.partition(" ")[0] in violations(GOOD | {name: "1"})
        assert "neither an option" not in violations(GOOD | {name: "1"})


@pytest.mark.parametrize(
    ("given", "strategy"),
    [({}, "zkconsumer,cooperative-sticky"), ({"partition.assignment.strategy": "range"}, "range")],
)
def test_a_group_that_brokers_coordinate_is_cooperative_unless_a_strategy_is_given(given, strategy):
    values = {"bootstrap.servers": "h:1", "group.id": "g", "group.protocol": "kafka", "subscribe": "t"}
    config = parse_options(values | given).config
    assert (config.partition_assignment_strategy, config.offsets_storage) == (strategy, "kafka")
    assert config.dual_commit_enabled is False
    assert parse_options(GOOD).config.partition_assignment_strategy == "range"


@pytest.mark.parametrize(
    ("old", "new"), [("zk.connect", "zookeeper.connect"), ("fetch.size", "fetch.message.max.bytes")]
)
def test_former_names_of_properties_are_answered(old, new):
    assert f"{old} is not an option of this source: use {new}" in violations(GOOD | {old: "1"})
