"""Consumers that subscribe to other topics while they are in their group, on real servers."""

import threading
import time
from functools import partial

import pytest

from tests.fixtures.consumers import (
    IN_BROKER_GROUP,
    IN_ZOOKEEPER,
    change_topics_while_removed,
    collect,
    consumers,
    leave_in_its_name,
    owned,
    parts,
    wake_and_end,
)
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import break_connection, expire
from zkconsumer import ConsumerClosed, ConsumerRebalanceListener, Whitelist
from zkconsumer.errors import UsageError
from zkconsumer.group.rules.memberstate import illegal_transitions

pytestmark = pytest.mark.integration

SETTINGS = {
    "zookeeper": IN_ZOOKEEPER,
    "coordinator": {**IN_ZOOKEEPER, "group_protocol": "coordinator"},
    "eager": {**IN_BROKER_GROUP, "partition_assignment_strategy": "range"},
    "cooperative": {**IN_BROKER_GROUP, "partition_assignment_strategy": "cooperative-sticky"},
}


@pytest.fixture
def member(sandbox, unique_name, request):
    """Make members of one group, by the protocol that the test has as its parameter."""
    settings = SETTINGS[request.param]
    connection = dict(sandbox.connection)
    if "group_protocol" in settings and settings["group_protocol"] == "kafka":
        connection = {"bootstrap.servers": sandbox.bootstrap_servers}
    with consumers(connection, unique_name, **settings) as make:
        make.group = unique_name
        yield make


every_protocol = pytest.mark.parametrize("member", SETTINGS, indirect=True)
in_zookeeper = pytest.mark.parametrize("member", ["zookeeper", "coordinator"], indirect=True)


def whitelist(*topics):
    return Whitelist("|".join(topics))


@every_protocol
def test_topics_that_stay_are_not_disturbed_and_others_are_shared_anew(member, topic_factory, produce):
    stays, goes, comes = (topic_factory(2) for _ in range(3))
    first, second = member(auto_commit_enable=False), member(auto_commit_enable=False)
    received = collect(first.create_message_streams_by_filter(whitelist(stays, goes), 1))
    more = collect(second.create_message_streams_by_filter(whitelist(stays, goes), 1))
    eventually(lambda: owned(first) | owned(second) == parts(stays, 0, 1) | parts(goes, 0, 1))
    eventually(lambda: not owned(first) & owned(second) and len(owned(first)) == len(owned(second)) == 2)
    for number, topic in enumerate((stays, goes, comes)):
        produce(topic, values(20, start=20 * number))
    eventually(lambda: sorted(map(int, [*received, *more])) == [*range(40)])
    first.subscribe([stays, comes])
    eventually(lambda: owned(first) >= parts(comes, 0, 1) and owned(second) >= parts(goes, 0, 1))
    assert not owned(first) & parts(goes, 0, 1)
    eventually(lambda: owned(first) | owned(second) == parts(stays, 0, 1) | parts(goes, 0, 1) | parts(comes, 0, 1))
    eventually(lambda: {*range(60)} <= {*map(int, [*received, *more])})
    for number, topic in enumerate((stays, goes, comes)):
        produce(topic, values(20, start=60 + 20 * number))
    eventually(lambda: {*range(120)} <= {*map(int, [*received, *more])})
    # Nothing was committed: a partition that moved is read again, one that stayed is not.
    assert len([one for one in received if int(one) >= 40]) == len({one for one in received if int(one) >= 40})
    for one in (first, second):
        assert illegal_transitions(one.describe().states) == []


@in_zookeeper
def test_partitions_that_stay_keep_owner_znode_and_position(member, topic_factory, produce, zookeeper):
    stays, goes, comes = (topic_factory(2) for _ in range(3))
    alone = member(auto_commit_enable=False)
    received = collect(alone.create_message_streams_by_filter(whitelist(stays, goes), 2))
    produce(stays, values(20))
    eventually(lambda: len(received) == 20)
    root = f"/consumers/{member.group}"
    owners = [f"{root}/owners/{stays}/{number}" for number in (0, 1)]
    before = [zookeeper.get(path)[1].czxid for path in owners]
    (name,) = zookeeper.get_children(f"{root}/ids")
    session = zookeeper.get_children(f"{root}/zkconsumer/members")
    alone.subscribe(whitelist(stays, comes))
    eventually(lambda: owned(alone) == parts(stays, 0, 1) | parts(comes, 0, 1))
    assert [zookeeper.get(path)[1].czxid for path in owners] == before
    assert zookeeper.get_children(f"{root}/ids") == [name]
    assert zookeeper.get_children(f"{root}/zkconsumer/members") == session
    assert b"white_list" in zookeeper.get(f"{root}/ids/{name}")[0]
    assert zookeeper.get_children(f"{root}/owners/{goes}") == []
    produce(stays, values(20, start=20))
    produce(comes, values(20, start=40))
    eventually(lambda: len(received) >= 60)
    time.sleep(0.2)  # what would come twice
    assert sorted(map(int, received)) == [*range(60)]
    alone.subscribe([stays])
    eventually(lambda: owned(alone) == parts(stays, 0, 1))
    assert [zookeeper.get(path)[1].czxid for path in owners] == before
    assert b'"pattern":"static"' in zookeeper.get(f"{root}/ids/{name}")[0]
    assert alone.describe().last_cause is not None


@in_zookeeper
def test_a_session_that_is_lost_in_the_middle(member, topic_factory, produce, zookeeper):
    before, after = topic_factory(2), topic_factory(2)
    one, other = member(), member()
    received = collect(one.create_message_streams_by_filter(whitelist(before), 1))
    received_by_other = collect(other.create_message_streams_by_filter(whitelist(before), 1))
    one.subscribe([after])
    expire(one)
    eventually(lambda: owned(one) == parts(after, 0, 1) and owned(other) == parts(before, 0, 1))
    break_connection(one)
    one.subscribe([before, after])
    registration = f"/consumers/{member.group}/ids/{one.consumer_id}"
    eventually(lambda: before.encode() in zookeeper.get(registration)[0])
    eventually(lambda: owned(one) | owned(other) == parts(before, 0, 1) | parts(after, 0, 1))
    produce(before, values(20))
    produce(after, values(20, start=20))
    eventually(lambda: sorted(map(int, [*received, *received_by_other])) == [*range(40)])


@pytest.mark.slow
@every_protocol
def test_topics_change_in_the_moment_of_a_removal(member, sandbox, topic_factory, produce, request):
    in_zookeeper = request.node.callspec.params["member"] in ("zookeeper", "coordinator")
    remove = expire if in_zookeeper else partial(leave_in_its_name, sandbox.bootstrap_servers)
    change_topics_while_removed(member, remove, topic_factory, produce)


@every_protocol
def test_subscriptions_that_follow_each_other_in_rebalances(member, topic_factory, produce):
    topics = [topic_factory(1) for _ in range(4)]
    changed = threading.Event()

    class Changes(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id, assignment):
            if not changed.is_set():
                changed.set()
                one.subscribe([topics[1], topics[2]])  # by the rebalance itself

    one, other = member(), member()
    one.set_rebalance_listener(Changes())
    received = collect(one.create_message_streams_by_filter(whitelist(topics[0]), 1))
    eventually(lambda: owned(one) == parts(topics[1], 0) | parts(topics[2], 0))
    received_by_other = collect(other.create_message_streams_by_filter(whitelist(*topics), 1))
    for last in (0, 1, 2):
        one.subscribe([topics[last]])
    one.subscribe(whitelist(topics[3]))
    eventually(lambda: len(owned(one) | owned(other)) == 4 and owned(one) <= parts(topics[3], 0))
    for number, topic in enumerate(topics):
        produce(topic, values(10, start=10 * number))
    eventually(lambda: sorted(map(int, [*received, *received_by_other])) == [*range(40)])


@pytest.mark.parametrize("member", ["zookeeper"], indirect=True)
def test_what_cannot_be_subscribed_to(member, topic_factory):
    topic = topic_factory(1)
    one = member()
    with pytest.raises(UsageError, match="create_message_streams_by_filter"):
        one.subscribe([topic])
    one.create_message_streams({topic: 1})
    with pytest.raises(UsageError, match="several topics"):
        one.subscribe([topic])
    other = member()
    other.create_message_streams_by_filter(whitelist(topic), 1)
    for nothing in ([], topic):
        with pytest.raises(UsageError, match="at least one topic"):
            other.subscribe(nothing)
    other.shutdown()
    with pytest.raises(ConsumerClosed):
        other.subscribe([topic])


@every_protocol
def test_a_stream_is_woken_and_ended_by_threads_and_signals(member, topic_factory, produce):
    wake_and_end(member, topic_factory(2), produce)
