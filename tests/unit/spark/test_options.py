import pytest

from zkconsumer.core.subscription import Whitelist
from zkconsumer.errors import ConfigError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.options import check_batch, check_streaming, parse_options

GOOD = {"zookeeper.connect": "h:2181/kafka", "group.id": "g", "subscribe": "t"}


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


def test_every_option_and_any_property_in_any_case():
    options = parse_options(
        {
            "Zookeeper.Connect": "h:1",
            "group.id": "g",
            "SUBSCRIBE": "b, a,b",
            "startingoffsets": '{"a":{"0":7}}',
            "endingOffsets": "latest",
            "maxoffsetspertrigger": "100",
            "minPartitions": "4",
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
    assert "give zookeeper.connect (host:port[,...][/chroot]) and group.id instead" in text


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "a/b"}, "cannot be the name of a topic"),
        ({"path": "/tmp"}, "load() takes no path"),
        ({"offsets.storage": "kafka"}, "offsets.storage=kafka is not available"),
        ({"kafka.fetch.min.bytes": "1"}, "write fetch.min.bytes"),
        ({"endingOffsets": "earliest"}, "endingOffsets must be one of latest or JSON"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot be earliest"),
        ({"startingOffsets": '{"u":{"0":1}}'}, "not subscribed: u"),
        ({"startingOffsets": '{"t":{"0":"x"}}'}, "'x' as the offset of t-0"),
    ],
)
def test_what_contradicts_is_refused(more, expected):
    assert expected in violations(GOOD | more)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a,b", "comma"), ("a{1,2}", "comma"), ("(", "not a valid regex"), (" ", "is empty")],
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


def test_what_only_the_other_kind_of_read_can_do():
    with pytest.raises(ConfigError, match="endingOffsets only applies to"):
        check_streaming(parse_options(GOOD | {"endingOffsets": "latest"}))
    with pytest.raises(ConfigError, match="cannot be latest"):
        check_batch(parse_options(GOOD | {"startingOffsets": "latest"}))
    with pytest.raises(ConfigError, match="cannot be latest"):
        check_batch(parse_options(GOOD | {"startingOffsets": '{"t":{"0":-1}}'}))
    check_streaming(parse_options(GOOD | {"startingOffsets": "latest"}))
    check_batch(parse_options(GOOD | {"startingOffsets": "earliest", "endingOffsets": "latest"}))
