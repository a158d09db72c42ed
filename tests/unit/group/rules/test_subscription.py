import pytest

from zkconsumer.errors import ConfigError
from zkconsumer.group.rules.subscription import Blacklist, Subscription, Whitelist, all_topics, normalise_regex
from zkconsumer.zookeeper.rules.znodes import Registration

TOPICS = {"spx-a", "spx-b", "other", "__consumer_offsets", "__transaction_state"}

NO_TOPICS = [{name: 1} for name in ("", ".", "..", "a/b", "a b", "a,b", "ü", "a\n", "a" * 256)]


def test_regex_is_normalised_as_the_jvm_does():
    assert normalise_regex(" 'spx-a, spx-b' ") == "spx-a|spx-b"


def test_filters_match_the_whole_name():
    assert Whitelist("spx").select(TOPICS, exclude_internal=True) == []
    assert Whitelist("spx-a,spx-b").select(TOPICS, exclude_internal=True) == ["spx-a", "spx-b"]
    assert Blacklist("spx.*").select(TOPICS, exclude_internal=True) == ["other"]


def test_internal_topics_are_excluded_only_when_asked():
    assert Whitelist("__.*").select(TOPICS, exclude_internal=True) == []
    assert Whitelist("__.*").select(TOPICS, exclude_internal=False) == ["__consumer_offsets", "__transaction_state"]


def test_static_subscription_to_an_internal_topic_is_allowed():
    subscription = Subscription.static({"__consumer_offsets": 1})
    assert subscription.expand(TOPICS, exclude_internal=True) == {"__consumer_offsets": 1}


@pytest.mark.parametrize("regex", ["spx(", "a{2,3}", "(?P<n>a)", "a**"])
def test_a_regex_that_would_stop_jvm_members_is_refused(regex):
    with pytest.raises(ConfigError, match="JVM members"):
        Whitelist(regex)


def test_a_filter_is_registered_as_it_was_given():
    topic_filter = Whitelist(r"[a-z&&[^b]]++")
    assert topic_filter.regex == r"[a-z&&[^b]]++"
    assert topic_filter.select(["ac", "ab"], exclude_internal=True) == ["ac"]


@pytest.mark.parametrize("regex", [f"{'(' * 3000}a{')' * 3000}", f"{'[' * 3000}a{']' * 3000}", "a{99999999999}"])
def test_a_filter_that_cannot_be_compiled_is_refused(regex):
    """Any other error would stop every member that reads such a registration."""
    with pytest.raises(ConfigError, match=r"too large|recursion"):
        Whitelist(regex)


@pytest.mark.parametrize(
    "topics", [["t"], "t", {"t": "1"}, {"t": 1.5}, {"t": True}, {1: 1}, {"t": 0}, {"t": -1}, *NO_TOPICS]
)
def test_illegal_static_subscriptions(topics):
    with pytest.raises(ConfigError, match=r"stream|name of a topic"):
        Subscription.static(topics)


@pytest.mark.parametrize(("topic_filter", "streams"), [(Whitelist("a"), 0), (Whitelist("a"), "2"), ("a", 1)])
def test_illegal_subscriptions_by_filter(topic_filter, streams):
    with pytest.raises(ConfigError, match=r"number of streams|topic_filter"):
        Subscription.by_filter(topic_filter, streams)


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription.static({"a": 2, "b": 1}),
        Subscription.static({}),
        Subscription.by_filter(Whitelist("a.*"), 3),
        Subscription.by_filter(Blacklist("a.*"), 1),
    ],
)
def test_registration_round_trip(subscription):
    assert Subscription.from_registration(subscription.to_registration(5)) == subscription


def test_readers_take_the_first_entry_of_a_filter():
    registered = Registration({"a.*": 2, "b.*": 1}, "white_list")
    assert Subscription.from_registration(registered) == Subscription.by_filter(Whitelist("a.*"), 2)


def test_a_filter_gives_each_topic_its_number_of_streams():
    subscription = Subscription.by_filter(Whitelist("spx.*"), 3)
    assert subscription.expand(TOPICS, exclude_internal=True) == {"spx-a": 3, "spx-b": 3}


def test_subscriptions_without_a_filter_have_no_streams_of_it_and_count_once():
    subscription = Subscription.static({"a": 2})
    assert (subscription.streams, subscription.weight) == (0, 1)


def test_streams_that_read_a_topic():
    named, filtered = Subscription.static({"a": 2}), Subscription.by_filter(Whitelist("spx.*"), 3)
    assert [named.has_stream("a", number) for number in (0, 1, 2)] == [True, True, False]
    assert not named.has_stream("b", 0)
    assert [filtered.has_stream("spx-a", number) for number in (0, 2, 3)] == [True, True, False]
    assert not filtered.has_stream("a", 0)


def test_all_topics_are_those_of_any_subscription():
    subscriptions = [
        Subscription.static({"a": 1}),
        Subscription.static({"b": 2, "missing": 1}),
        Subscription.by_filter(Whitelist("__con.*"), 1),
        Subscription.by_filter(Whitelist("spx.*"), 2),
        Subscription.by_filter(Whitelist("spx.*"), 2),
    ]
    assert all_topics(subscriptions, TOPICS) == {"a", "b", "missing", "__consumer_offsets", "spx-a", "spx-b"}
    assert subscriptions[3].key == subscriptions[4].key
    assert len({one.key for one in subscriptions}) == 4


@pytest.mark.parametrize(
    ("topic_filter", "regex"),
    [
        (Whitelist("click.*,view[a-z&&[^b]]"), r"click.*|view[acdefghijklmnopqrstuvwxyz]"),
        (Whitelist("a(?!b).*"), ""),
        (Whitelist(""), ""),
        (Blacklist("click.*"), ""),
        (Whitelist(".*"), ""),
        (Whitelist("__consumer.*"), ""),
    ],
)
def test_a_coordinator_selects_by_a_regex_what_the_filter_selects(topic_filter, regex):
    assert topic_filter.broker_regex(exclude_internal=True) == regex


def test_a_coordinator_selects_internal_topics_if_they_are_not_excluded():
    assert Whitelist(".*").broker_regex(exclude_internal=False) == ".*"
