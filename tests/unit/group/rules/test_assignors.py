"""Assignors against the JVM's own answers, and the worked examples of its documentation."""

import json
from functools import partial
from pathlib import Path

import pytest

from zkconsumer.group.rules.assignors import ASSIGNORS, assignor_name, natural_roundrobin_assignor, range_assignor
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.stickyassignor import sticky_assignor
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.java.javastring import java_hash
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.rules.znodes import Registration

VECTORS = json.loads((Path(__file__).parents[3] / "golden" / "assignors.json").read_text())["vectors"]


def view_of(vector):
    members = {
        consumer: Subscription.from_registration(Registration(given["subscription"], given["pattern"]))
        for consumer, given in vector["consumers"].items()
    }
    partitions = {topic: tuple(range(count)) for topic, count in vector["topics"].items()}
    return GroupView(members=members, partitions=partitions, topics=frozenset(partitions))


def by_thread(assignment):
    result: dict[str, dict[str, dict[str, list[int]]]] = {}
    for partition, thread in sorted(assignment.items()):
        of_consumer = result.setdefault(thread.consumer_id, {}).setdefault(str(thread), {})
        of_consumer.setdefault(partition.topic, []).append(partition.partition)
    return result


def expected_of(vector, key="expected"):
    """The vectors also name threads that get nothing; an assignment does not."""
    return {
        consumer: kept
        for consumer, threads in vector[key].items()
        if (kept := {thread: topics for thread, topics in threads.items() if topics})
    }


def has_equal_hashes(vector):
    """Two of its partitions hash alike; their order depends on the JVM's release and is not specified.

    See jvm-consumer.md#assignment.
    """
    hashes = [java_hash(f"{topic}-{n}") for topic, count in vector["topics"].items() for n in range(count)]
    return vector["strategy"] == "roundrobin" and len(set(hashes)) < len(hashes)


SPECIFIED = [vector for vector in VECTORS if not has_equal_hashes(vector)]


@pytest.mark.parametrize("vector", SPECIFIED, ids=lambda vector: vector["name"])
def test_assignment_is_the_jvms(vector):
    view = view_of(vector)
    threads = view.threads_by_topic(exclude_internal=vector.get("exclude_internal_topics", True))
    assignment = ASSIGNORS[vector["strategy"]](threads, view.partitions)
    assert by_thread(assignment) == expected_of(vector)


OLD_ERA = [vector for vector in VECTORS if "expected_before_1_0" in vector]


@pytest.mark.parametrize("vector", OLD_ERA, ids=lambda vector: vector["name"])
def test_round_robin_of_members_before_1_0(vector):
    view = view_of(vector)
    threads = view.threads_by_topic(exclude_internal=True)
    assignment = ASSIGNORS["roundrobin-0.8"](threads, view.partitions)
    assert by_thread(assignment) == expected_of(vector, "expected_before_1_0")


def test_no_vector_got_lost():
    assert (len(VECTORS), len(SPECIFIED), len(OLD_ERA)) == (24, 22, 2)


def test_range_of_ten_partitions_over_three_threads():
    threads = {"t": [ConsumerThreadId("g_c", number) for number in range(3)]}
    assignment = range_assignor(threads, {"t": range(10)})
    shares = [[p.partition for p, owner in assignment.items() if owner == thread] for thread in threads["t"]]
    assert shares == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_a_topic_that_does_not_exist_is_not_assigned():
    threads = {"missing": [ConsumerThreadId("g_c", 0)], "t": [ConsumerThreadId("g_c", 0)]}
    for assignor in ASSIGNORS.values():
        assert assignor(threads, {"t": (0,)}) == {TopicPartition("t", 0): ConsumerThreadId("g_c", 0)}


def test_a_topic_that_nobody_consumes_is_not_assigned():
    for assignor in (*ASSIGNORS.values(), partial(sticky_assignor, previous={})):
        assert assignor({"t": []}, {"t": (0,)}) == {}


@pytest.mark.parametrize(
    ("strategy", "era", "name"),
    [
        ("range", "0.8", "range"),
        ("roundrobin", "0.8", "roundrobin-0.8"),
        ("roundrobin", "1.0", "roundrobin"),
        ("roundrobin-natural", "0.8", "roundrobin-natural"),
    ],
)
def test_the_era_of_hashes_concerns_only_round_robin(strategy, era, name):
    assert assignor_name(strategy, era) == name


def threads_of(subscriptions):
    """One thread a consumer, from consumer to topics."""
    threads = {}
    for consumer, topics in subscriptions.items():
        for topic in topics:
            threads.setdefault(topic, []).append(ConsumerThreadId(consumer, 0))
    return threads


def shares_of(assignment):
    shares: dict[str, str] = {}
    for partition, thread in sorted(assignment.items()):
        shares[thread.consumer_id] = f"{shares.get(thread.consumer_id, '')} {partition}".strip()
    return shares


def test_range_over_two_consumers_of_two_threads():
    threads = {"P": [ConsumerThreadId(consumer, n) for consumer in ("g_C1", "g_C2") for n in range(2)]}
    assignment = range_assignor(threads, {"P": range(5)})
    assert [[p.partition for p, o in assignment.items() if o == t] for t in threads["P"]] == [[0, 1], [2], [3], [4]]


UNEQUAL = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
UNEQUAL_PARTITIONS = {"t0": (0,), "t1": (0, 1), "t2": (0, 1, 2)}


def test_natural_round_robin_examples():
    threads = threads_of({"C0": ["T0", "T1"], "C1": ["T1", "T2"], "C2": ["T0", "T2"]})
    partitions = {"T0": range(3), "T1": range(2), "T2": range(4)}
    assert shares_of(natural_roundrobin_assignor(threads, partitions)) == {
        "C0": "T0-0 T0-2 T1-1",
        "C1": "T1-0 T2-0 T2-2",
        "C2": "T0-1 T2-1 T2-3",
    }
    assert shares_of(natural_roundrobin_assignor(threads_of(UNEQUAL), UNEQUAL_PARTITIONS)) == {
        "C0": "t0-0",
        "C1": "t1-0",
        "C2": "t1-1 t2-0 t2-1 t2-2",
    }


def test_sticky_examples():
    assert shares_of(sticky_assignor(threads_of(UNEQUAL), UNEQUAL_PARTITIONS, {})) == {
        "C0": "t0-0",
        "C1": "t1-0 t1-1",
        "C2": "t2-0 t2-1 t2-2",
    }
    partitions = {"T0": range(3), "T1": range(3)}
    both = ["T0", "T1"]
    before = sticky_assignor(threads_of({"C0": both, "C1": both, "C2": both}), partitions, {})
    assert shares_of(before) == {"C0": "T0-0 T1-0", "C1": "T0-1 T1-1", "C2": "T0-2 T1-2"}
    after = sticky_assignor(threads_of({"C0": both, "C1": both}), partitions, before)
    assert shares_of(after) == {"C0": "T0-0 T0-2 T1-0", "C1": "T0-1 T1-1 T1-2"}


def members(*numbers):
    return [ConsumerThreadId(f"C{number}", 0) for number in numbers]


def held(**shares):
    """Assignment from text, such as ``C0="a-0 b-1"``."""
    return {
        TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])): ConsumerThreadId(consumer, 0)
        for consumer, names in shares.items()
        for name in names.split()
    }


def test_sticky_does_not_depend_on_the_order_of_topics_and_threads():
    ordered, mixed = members(0, 1, 2), members(2, 0, 1)
    for number in (1, 2, 3):
        partitions = {"a": range(number), "b": range(2)}
        first = sticky_assignor({"a": ordered, "b": ordered}, partitions, {})
        assert sticky_assignor({"b": mixed, "a": mixed}, partitions, {}) == first
    assert shares_of(first) == {"C0": "a-0 b-0", "C1": "a-1 b-1", "C2": "a-2"}


def test_sticky_places_topics_with_few_subscribers_first():
    threads = {"a": members(0, 1, 2), "b": members(0)}
    assert shares_of(sticky_assignor(threads, {"a": range(4), "b": range(1)}, {})) == {
        "C0": "a-2 b-0",
        "C1": "a-0 a-3",
        "C2": "a-1",
    }


def test_sticky_takes_a_topic_from_a_thread_that_does_not_subscribe_to_it_any_more():
    threads = {"a": members(0), "b": members(1)}
    assert sticky_assignor(threads, {"a": range(1), "b": range(1)}, held(C1="a-0", C0="b-0")) == held(
        C0="a-0", C1="b-0"
    )


def test_sticky_takes_from_the_fullest_thread():
    previous = held(C0="a-0 a-1", C1="a-2 a-3 a-4 a-5 a-6")
    assert shares_of(sticky_assignor({"a": members(0, 1, 2)}, {"a": range(7)}, previous)) == {
        "C0": "a-0 a-1",
        "C1": "a-4 a-5 a-6",
        "C2": "a-2 a-3",
    }


def test_sticky_evens_out_each_set_of_subscribers():
    threads = {"a": members(0, 1), "b": members(2, 3)}
    previous = held(C0="a-0 a-1 a-2 a-3 a-4 a-5", C2="b-0 b-1")
    assert shares_of(sticky_assignor(threads, {"a": range(6), "b": range(2)}, previous)) == {
        "C0": "a-3 a-4 a-5",
        "C1": "a-0 a-1 a-2",
        "C2": "b-1",
        "C3": "b-0",
    }
