"""Snapshots of a cluster: what they describe, how they differ, and which of two answers is believed."""

from dataclasses import replace

import pytest

from zkconsumer.cluster.rules.clustercatalog import (
    ClusterSnapshot,
    next_snapshot,
    poll_seconds,
    read_if_any,
    read_known,
)
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import Broker, Topic, TopicIdentity

BROKERS = (Broker(1, "one", 9092),)


class Source:
    """What a cluster answers."""

    def __init__(self, snapshot):
        self.snapshot = snapshot

    def read(self, topics, *, for_others=True):
        return self.snapshot


@pytest.mark.parametrize(
    ("brokers", "asked_for", "known"),
    [(True, {"t"}, True), (True, None, True), (True, {"u"}, False), (False, {"t"}, False), (False, set(), False)],
)
def test_a_reader_takes_no_unknown_topic_for_a_missing_one(brokers, asked_for, known):
    snapshot = ClusterSnapshot(
        (Broker(1, "h", 9092),) if brokers else (), {}, None if asked_for is None else frozenset(asked_for)
    )
    if known:
        assert read_known(Source(snapshot), ["t"]) is snapshot
    else:
        with pytest.raises(BrokerUnavailable):
            read_known(Source(snapshot), ["t"])
    if known or not brokers:
        assert read_if_any(Source(snapshot), ["t"]) is snapshot
    else:
        with pytest.raises(BrokerUnavailable):
            read_if_any(Source(snapshot), ["t"])


def topic(partitions, topic_id="id"):
    return Topic(tuple(range(partitions)), TopicIdentity(topic_id, None))


def snapshot(asked_for=None, brokers=BROKERS, **described):
    return ClusterSnapshot(brokers, described, asked_for if asked_for is None else frozenset(asked_for))


def test_a_snapshot_is_a_catalog():
    one = snapshot(t=topic(2), u=topic(1))
    assert one.live_brokers() == BROKERS
    assert one.topics() == {"t", "u"}
    assert one.describe_topics(["u", "missing"]) == {"u": topic(1)}


@pytest.mark.parametrize(
    ("asked_for", "wanted", "expected"),
    [(None, ["t"], True), (None, None, True), (["t"], ["t"], True), (["t"], ["t", "u"], False), (["t"], None, False)],
)
def test_a_snapshot_covers_what_was_asked_for(asked_for, wanted, expected):
    assert snapshot(asked_for).covers(wanted) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (snapshot(t=topic(2)), snapshot(t=topic(2)), False),
        (snapshot(t=topic(2)), snapshot(t=topic(3)), True),
        (snapshot(t=topic(2)), snapshot(t=topic(2, "another")), True),
        (snapshot(t=topic(2)), snapshot(), True),
        (snapshot(), snapshot(t=topic(2)), True),
        (snapshot(["t"], t=topic(2)), snapshot(["t", "u"], t=topic(2), u=topic(1)), False),
        (snapshot(["t"]), snapshot(None, t=topic(2), u=topic(1)), True),
        (snapshot(["t"], t=topic(2)), snapshot(None, t=topic(2), u=topic(1)), False),
        (ClusterSnapshot(), snapshot(), True),
        (snapshot(), snapshot(brokers=(*BROKERS, Broker(2, "two", 9092))), False),
    ],
    ids=["same", "grown", "created again", "deleted", "created", "asked", "of both", "of one", "first", "broker"],
)
def test_snapshots_differ_in_topics_that_both_cover(before, after, expected):
    assert after.differs(before) is expected


def test_a_topic_never_loses_partitions():
    answer = snapshot(t=topic(2), u=topic(2, "another"), v=topic(2, None))
    before = snapshot(t=topic(4), u=topic(4), v=topic(4, None))
    believed = next_snapshot(before, answer, now=5)
    assert believed.described == {"t": topic(4), "u": topic(2, "another"), "v": topic(2, None)}


def test_a_topic_was_deleted_when_brokers_have_denied_it_for_long():
    """Not when one that has just started, or that has not learned of the topic, denies it in between."""
    believed = [snapshot(t=topic(2))]
    for now, known in [(0, False), (4, False), (5, True), (6, False), (10, False), (11, False)]:
        answer = snapshot(t=topic(2)) if known else snapshot()
        believed.append(next_snapshot(believed[-1], answer, now=now))
    assert [set(each.topics()) for each in believed] == [{"t"}] * 6 + [set()]
    assert [dict(each.denied) for each in believed] == [{}, {"t": 0}, {"t": 0}, {}, {"t": 6}, {"t": 6}, {}]


def test_a_topic_that_was_created_again_is_believed_at_once():
    denied = next_snapshot(snapshot(t=topic(4)), snapshot(), now=0)
    assert next_snapshot(denied, snapshot(t=topic(2, "another")), now=1).described == {"t": topic(2, "another")}


def believed_ids(*answers, start=""):
    """The id of the topic that is believed after each answer (time, id); it is absent where the id is empty."""
    believed, ids = snapshot(**({"t": topic(2, start)} if start else {})), ""
    for now, topic_id in answers:
        answer = snapshot(t=topic(2, topic_id)) if topic_id else snapshot()
        believed = next_snapshot(believed, answer, now=now)
        ids += believed.described["t"].identity.topic_id if "t" in believed.described else "-"
    return ids


def test_a_broker_that_has_not_learned_that_a_topic_was_created_again_is_outdated():
    assert believed_ids((0, "b"), (1, "a"), (2, "b"), (6, "a"), (7, "a"), (8, "b"), start="a") == "bbbbbb"
    assert believed_ids((0, "b"), (1, "c"), (2, "a"), (3, "b"), (4, "c"), (5, "d"), start="a") == "bccccd"


def test_a_former_topic_is_believed_when_no_broker_has_described_the_later_one_for_long():
    """As if the broker that had not learned of it was the second to be asked."""
    answers = [(0, "new"), (1, "old"), (2, "new"), (6, "old"), (7, "new"), (11, "new"), (12, "new"), (13, "old")]
    assert believed_ids(*((now, name[0]) for now, name in answers)) == "nooooonn"


def test_the_ids_of_former_topics_are_forgotten_with_the_topic():
    believed = snapshot(t=topic(1, "0"))
    for number in range(1, 9):
        believed = next_snapshot(believed, snapshot(t=topic(1, str(number))), now=number)
    assert believed.replaced == {"t": ("4", "5", "6", "7")}
    for now in (10, 15):
        believed = next_snapshot(believed, snapshot(), now=now)
    assert (believed.described, believed.replaced) == ({}, {})


def test_a_topic_that_was_not_described_keeps_its_description():
    answer = replace(snapshot(u=topic(1)), undescribed=frozenset({"t", "unknown"}))
    believed = next_snapshot(snapshot(t=topic(2)), answer, now=5)
    assert believed.described == {"t": topic(2), "u": topic(1)}
    assert not believed.denied
    assert believed.undescribed == {"t", "unknown"}


@pytest.mark.parametrize(
    ("failures", "soon", "expected"),
    [(0, False, 30), (0, True, 1), (1, True, 0.2), (2, False, 0.4), (9, False, 30), (5000, False, 30)],
)
def test_failures_and_readings_shorten_the_pause(failures, soon, expected):
    assert poll_seconds(30, failures=failures, soon=soon) == expected
    assert poll_seconds(0.1, failures=failures, soon=soon) <= 0.1


@pytest.mark.parametrize(
    ("brokers", "wanted", "for_others", "expected"),
    [
        (1, ["t"], True, False),
        (2, ["t"], True, True),
        (2, ["t"], False, False),
        (2, None, False, False),
        (1, ["t", "u"], False, True),
    ],
)
def test_when_another_broker_may_know_more(brokers, wanted, for_others, expected):
    known = tuple(Broker(number, "host", 9092) for number in range(brokers))
    snapshot = ClusterSnapshot(known, {"t": Topic((0,), TopicIdentity(None, None))})
    assert snapshot.may_be_outdated(wanted, for_others=for_others) == expected
