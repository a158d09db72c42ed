"""What JVM consumers and ours write into ZooKeeper is the same, byte for byte."""

import json
import re

import pytest
from kazoo.exceptions import NoNodeError

from tests.fixtures.jvm import spread
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually

ANY_TIME = b'"timestamp":"<ms>"'


def snapshot(zookeeper, path):
    """Every znode below a path: data (without the time of registration), whether ephemeral, and ACL."""
    found = {}
    for name in zookeeper.get_children(path):
        below = f"{path}/{name}"
        try:
            data, stat = zookeeper.get(below)
            acl, _ = zookeeper.get_acls(below)
        except NoNodeError:
            continue
        data = data if data is None else re.sub(rb'"timestamp":"\d{13}"', ANY_TIME, data)
        found[below] = (data, stat.ephemeralOwner != 0, tuple(acl))
        found |= snapshot(zookeeper, below)
    return found


@pytest.fixture
def both(group, zookeeper):
    """Run a scenario with a JVM consumer and one of ours in turn; return what each left in ZooKeeper."""

    def owned():
        return {p: stat.czxid for p in group.owners() for _, stat in [group.node("owners", *p)] if stat}

    def undisturbed():
        """A snapshot while nothing is claimed or released: JVM members rebalance once more after they have joined."""
        while True:
            group.settle()
            before = owned()
            everything = snapshot(zookeeper, group.path())
            if before == owned() and before.keys() == group.owners().keys():
                return everything

    def run(scenario, **jvm):
        snapshots = []
        for join in (group.join_jvm, group.join):
            scenario(join, **(jvm if join == group.join_jvm else {}))
            everything = undisturbed()
            snapshots.append({p: n for p, n in everything.items() if not p.startswith(group.path("zkconsumer"))})
            for member in list(group.members):
                group.leave(member)
            eventually(lambda: not group.owners())
            zookeeper.delete(group.path(), recursive=True)
        return snapshots

    return run


def test_a_member_that_committed(both, group, topic_factory, produce):
    topic = topic_factory(partitions=3)
    produce(topic, spread(values(100), 2))

    def scenario(join):
        member = join("c", {topic: 2})
        group.settle()
        group.expect_all(values(100))
        eventually(lambda: len(member.received()) >= 100)
        group.commit_until(member, topic, {0: 50, 1: 50, 2: 0})

    jvm, ours = both(scenario)
    assert jvm == ours
    path = group.path
    assert ours[path("ids")][0] == b""
    parents = (path("owners"), path("owners", topic), path("offsets"), path("offsets", topic))
    assert [ours[parent][0] for parent in parents] == [None] * 4
    assert ours[path("owners", topic, 2)][:2] == (f"{group.name}_c-1".encode(), True)
    assert [ours[path("offsets", topic, p)][:2] for p in range(3)] == [(b"50", False), (b"50", False), (b"0", False)]
    assert ours[path("ids", f"{group.name}_c")][0] == (
        b'{"version":1,"subscription":{"%s":2},"pattern":"static",%s}' % (topic.encode(), ANY_TIME)
    )


def test_registrations_of_several_topics(both, group):
    """Topics that do not exist; beyond four the JVM's order depends on its hash tables, and no reader depends on it."""
    topics = {f"{group.name}-{n}": n for n in range(1, 7)}
    jvm, ours = both(lambda join: join("c", topics))
    node = group.path("ids", f"{group.name}_c")
    assert json.loads(jvm.pop(node)[0]) == json.loads(ours.pop(node)[0])
    assert jvm == ours


@pytest.mark.parametrize("kind", ["Whitelist", "Blacklist"])
def test_filters(both, group, topic_factory, kind):
    topic = topic_factory(partitions=2)
    regex = f"{topic}.*" if kind == "Whitelist" else f"(?!{topic}).*"

    def scenario(join):
        member = join("c", topic_filter=(kind, f" '{regex}, no' "), streams=2)
        group.commit_until(member, topic, {0: 0, 1: 0})  # as one does that rebalances again

    jvm, ours = both(scenario)
    assert jvm == ours
    assert f"{regex}|no".encode() in ours[group.path("ids", f"{group.name}_c")][0]
    assert len([path for path in ours if f"owners/{topic}/" in path]) == 2


def test_a_regex_with_a_backslash(both, group, old_jvm, topic_factory):
    """Up to 1.0.0 the JVM escaped it once; since then twice, and finds no topic any more: not copied.

    See jvm-consumer.md#registration.
    """
    topic = topic_factory()
    regex = topic.replace("-", r"\-")

    def scenario(join, **old):
        member = join("c", topic_filter=("Whitelist", regex), **old)
        group.commit_until(member, topic, {0: 0})  # as one does that rebalances again

    jvm, ours = both(scenario, jvm=old_jvm)
    assert jvm == ours
    new, _ = both(lambda join: join("c", topic_filter=("Whitelist", regex)))
    node = group.path("ids", f"{group.name}_c")
    assert new[node][0] == ours[node][0].replace(b"\\", b"\\\\")
    assert not [path for path in new if path.startswith(group.path("owners"))]


def test_each_reads_the_others_backslash(group, topic_factory):
    topic = topic_factory(partitions=2)
    group.join("a", topic_filter=("Whitelist", topic.replace("-", r"\-")))
    group.join_jvm("b", {topic: 1})
    assert set(group.settle().values()) == {f"{group.name}_a-0", f"{group.name}_b-0"}


@pytest.mark.parametrize(("reset", "offsets"), [("largest", {0: 20, 1: 0}), ("smallest", {0: 0, 1: 0})])
def test_a_fresh_group_commits_where_it_starts(both, group, topic_factory, produce, reset, offsets):
    """Also without consuming anything; what is there is deleted first, so smallest has nothing to read.

    See jvm-consumer.md#fetch-loop.
    """
    topic = topic_factory(partitions=2)
    if reset == "largest":
        produce(topic, spread(values(20), 1))

    def scenario(join):
        group.commit_until(join("c", {topic: 1}, auto_offset_reset=reset), topic, offsets)

    jvm, ours = both(scenario)
    assert jvm == ours


def test_after_leaving_only_persistent_nodes_stay(both, group, topic_factory, zookeeper):
    topic = topic_factory()

    def scenario(join):
        member = join("c", {topic: 1})
        group.commit_until(member, topic, {0: 0})
        group.leave(member)

    jvm, ours = both(scenario)
    assert jvm == ours
    assert not any(ephemeral for _, ephemeral, _ in ours.values())
