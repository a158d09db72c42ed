"""Times of a group, on a ZooKeeper in memory whose clock the test moves."""

import json

import pytest
from kazoo.protocol.serialization import Delete

from tests.fixtures.groupmodel import PATHS, SUBSCRIPTIONS, GroupModel
from tests.fixtures.membersinturns import SESSION_S
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.attempts import RebalanceCause
from zkconsumer.model import TopicPartition


@pytest.fixture
def group():
    made = GroupModel()
    yield made
    for member in made.members:
        member.end()


def begin(group, *, members, partitions):
    group.begin(strategy="range", subscriptions=SUBSCRIPTIONS[:1] * members, partitions=partitions, settled=True)
    return list(group.members)


def put_stranger(group, name):
    """Register a member that never claims anything."""
    registration = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"}
    group._write(f"{PATHS.ids}/{name}", json.dumps(registration).encode())


def state_of(member):
    """What a rebalance would change."""
    return member.group.held, member.loop.counts, set(member.fetch.fetched)


def test_members_that_join_one_after_another_cause_one_rebalance(group):
    """They come 40 ms apart; a group is settled after 50 ms, or at the latest after a second."""
    (member,) = begin(group, members=1, partitions=12)
    for number in range(11):
        put_stranger(group, f"g_z{number:02d}")
        group.run(0, 12, informed=True)
        group.pass_time(0.04)
    assert len(member.group.held.partitions) == 12
    group.run_in_turns(200)
    assert member.group.held.partitions.keys() == {TopicPartition("t", 0)}
    assert member.loop.counts.by_cause[RebalanceCause.MEMBERS] == 1


def test_a_rebalance_waits_no_longer_while_members_keep_coming_and_going(group):
    (member,) = begin(group, members=1, partitions=12)
    put_stranger(group, "g_z")
    for number in range(50):  # two seconds
        put_stranger(group, f"g_y{number}")
        group.run(0, 12, informed=True)
        group.pass_time(0.04)
        group.server.perform(group.outsider, Delete(f"{PATHS.ids}/g_y{number}", -1))
    assert len(member.group.held.partitions) < 12


def test_a_zookeeper_that_is_away_for_less_than_the_session_changes_nothing(group):
    members = begin(group, members=2, partitions=4)
    before = [state_of(member) for member in members]
    for member in members:
        member.client.lose_connection()
    group.pass_time(0.9 * SESSION_S)
    assert not any(member.group.describe().connected or member.group.lease.holds() for member in members)
    group.settle()
    assert all(member.group.describe().connected and member.group.lease.holds() for member in members)
    assert [state_of(member) for member in members] == before


def test_a_zookeeper_that_is_away_for_longer_ends_the_session(group):
    members = begin(group, members=2, partitions=4)
    for member in members:
        member.client.lose_connection()
    group.pass_time(1.1 * SESSION_S)
    group.settle()
    assert [member.loop.counts.by_cause[RebalanceCause.SESSION] for member in members] == [1, 1]


class Committing(ConsumerRebalanceListener):
    """Commits what the user holds, also of partitions that were lost meanwhile."""

    def __init__(self, member):
        self._member = member

    def before_releasing_partitions(self, owned):
        self._member.committer.commit(None, force=False)


def test_a_listener_that_fails_is_counted_and_logged(group, caplog, monkeypatch):
    """Its commit concerns a partition that another client has taken: no wait for an assignment of the group."""
    monkeypatch.setattr(
        GroupModel, "no_partition_is_delivered_by_two_members_or_without_its_owner_znode", lambda self: None
    )
    (member,) = begin(group, members=1, partitions=2)
    member.loop._rebalancer.listener = Committing(member)
    for partition in sorted(member.delivers()):
        member.fetch.advance(partition, 3)
    group.server.perform(group.outsider, Delete(PATHS.owner(TopicPartition("t", 0)), -1))
    member.commit_soon()
    for _ in range(20):
        group._tick(0.5)
        group.run_in_turns(20)
    assert member.loop.counts.failures["2 release ownership"] > 1
    assert "failed in step 2 release ownership: group g: not committed" in caplog.text
