"""JVM consumers in groups with a coordinator: it assigns as they do, and they need to know nothing of it."""

import json
from collections import Counter
from contextlib import suppress

import pytest
from click.testing import CliRunner

from tests.fixtures.jvm import CRASHES, spread
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer import ConfigError
from zkconsumer.cli.main import command
from zkconsumer.errors import SandboxError

COORDINATED = {"group_protocol": "coordinator"}


def loads(group):
    """Number of partitions of each consumer thread that owns any."""
    return sorted(Counter(group.owners().values()).values())


def test_a_coordinator_assigns_as_jvm_consumers_do(group, topic_factory, produce):
    topic = topic_factory(partitions=7)
    for name in ("C2", "C3"):
        group.join(name, {topic: 2}, **COORDINATED)
    eventually(lambda: loads(group) == [1, 2, 2, 2])
    jvm = group.join_jvm("C1", {topic: 2})
    assert group.settle()[topic, 0] == f"{jvm.consumer_id}-0"
    produce(topic, spread(values(700), 7))
    group.expect_all(values(700))
    assert group.repeated_by_ours() == set()
    group.leave(jvm)
    eventually(lambda: loads(group) == [1, 2, 2, 2])


def test_round_robin_of_a_coordinator_is_that_of_the_jvm(group, topic_factory):
    first, second = topic_factory(partitions=4), topic_factory(partitions=3)
    topics, strategy = {first: 2, second: 2}, {"partition_assignment_strategy": "roundrobin"}
    group.join("C2", topics, **COORDINATED, **strategy)
    group.join_jvm("C1", topics, **strategy)
    assert len(group.settle("roundrobin")) == 7


def test_members_of_all_kinds_come_and_go_while_records_flow(group, topic_factory, feed):
    topic = topic_factory(partitions=7)
    flowing = feed(topic)
    group.join_jvm("stays", {topic: 2})
    group.settle()
    leads = group.join("a", {topic: 2}, **COORDINATED)
    group.settle()
    computes = group.join("b", {topic: 1})
    group.settle()
    group.join("c", {topic: 1}, **COORDINATED)
    group.settle()
    group.leave(leads)
    group.settle()
    group.leave(computes)
    group.settle()
    produced = flowing.stop()
    group.expect_all(produced)


def test_a_topic_that_grows_is_shared_with_jvm_consumers(group, topics, topic_factory, produce):
    topic = topic_factory(partitions=2)
    group.join_jvm("a", {topic: 1})
    group.join("b", {topic: 1}, **COORDINATED)
    group.settle()
    topics.grow(topic, 5)
    assert len(group.settle()) == 5
    produce(topic, spread(values(100), 5))
    group.expect_all(values(100))


def test_what_a_killed_jvm_consumer_owned_is_consumed(group, topic_factory, produce, private_jvm):
    topic = topic_factory(partitions=4)
    group.join("a", {topic: 1}, **COORDINATED)
    killed = group.join_jvm("b", {topic: 1}, jvm=private_jvm, **CRASHES)
    group.settle()
    group.kill(killed)
    group.settle()
    produce(topic, spread(values(100), 4))
    eventually(lambda: {value for *_, value in group.members[0].received()} == set(values(100)))


OWN = {**COORDINATED, "partition_assignment_strategy": "tests.fixtures.assignors:R0"}


def test_an_own_assignor_is_refused_beside_a_jvm_consumer(group, topic_factory, produce):
    topic = topic_factory(partitions=4)
    group.join_jvm("a", {topic: 1})
    group.settle()
    with pytest.raises(ConfigError, match=r"while members are in it that assign by themselves: .*_a"):
        group.join("b", {topic: 1}, **OWN, rebalance_max_retries=2)
    group.members.pop().connector.shutdown()
    assert set(group.settle().values()) == {f"{group.name}_a-0"}
    produce(topic, spread(values(40), 4))
    group.expect_all(values(40))


def test_a_jvm_consumer_that_joins_members_with_an_own_assignor_is_reported(group, sandbox, topic_factory, produce):
    """It assigns by itself, so the coordinator commands no member. It fails; without it the group continues."""
    topic = topic_factory(partitions=4)
    group.join("b", {topic: 1}, **OWN)
    eventually(lambda: len(group.owners()) == 4)
    with suppress(SandboxError):
        group.join_jvm("a", {topic: 1})
    explain = ["groups", "explain", "--group", group.name, "--json", "--zookeeper", sandbox.zookeeper_connect]
    found = json.loads(CliRunner().invoke(command, explain).stdout)["findings"]
    assert "coordinator-refuses" in {finding["kind"] for finding in found}
    group.leave(group.members[1])
    produce(topic, spread(values(40), 4))
    group.expect_all(values(40))
