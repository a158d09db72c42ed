"""GroupMember over a group, a store and fetchers in memory."""

import dataclasses
import threading

import pytest

from tests.fixtures.groupprotocol import CommandedGroup, FetchInMemory, StoreInMemory
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AuthenticationFailed,
    CommitRefused,
    ConfigError,
    ConsumerClosed,
    ConsumerIdInUse,
    GroupMigrated,
    InstanceIdInUse,
    MemberRefused,
    MembershipLost,
    RebalanceAwaited,
    RebalanceFailed,
    RegistrationLost,
    StrategyConflict,
    UsageError,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.group.groupprotocol import Standing
from zkconsumer.group.member import GroupMember, MemberParts
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.process.wakeup import Latch

BOUND_S = 30


class Group(CommandedGroup):
    """A group that a member can join and leave."""

    def __init__(self, *, incremental):
        super().__init__(incremental=incremental)
        self.losses = 0

    def join(self, subscription):
        pass

    def leave(self):
        pass

    def pause(self, failure=None, *, starting=False):
        pass

    def lose(self):
        self.losses += 1
        super().lose()

    def describe(self):
        return Standing(True, 0, 0, 0, 0)


@pytest.fixture
def hanging():
    """Called by user code; returns when ``end`` is set, at the latest at the end of the test."""
    end = threading.Event()

    def call():
        end.wait(BOUND_S)

    call.end = end
    yield call
    end.set()


class Consumer:
    """A member that has joined and owns the partition 0; its user code, and what ended it."""

    def __init__(self, *, before_commit=None, listener=None, **settings):
        self.group, self.fetch, self.store = Group(incremental=False), FetchInMemory(), StoreInMemory()
        self.group.command(0)
        self.signal, self.failures = RebalanceSignal(), []
        config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", commit_on="delivery", **settings)
        parts = MemberParts(self.group, None, self.store, self.signal, Latch())
        self.member = GroupMember(
            config, "g_c", self.fetch, parts, before_commit=before_commit, on_failure=self.failures.append
        )
        if listener is not None:
            self.member.set_listener(listener)
        self.member.join(Subscription.static({"t": 1}))
        self.fetch.move(p0=50)

    def rebalance(self, *numbers):
        self.group.command(*numbers)
        self.signal.raise_flag()


class RaisingOnce(ConsumerRebalanceListener):
    """Raises an error at the first release, or at the first start after it."""

    def __init__(self, error, *, at_a_start):
        self._error, self._at_a_start = error, at_a_start
        self.calls = 0

    def _call(self):
        self.calls += 1
        if self.calls == 1:
            raise self._error

    def before_releasing_partitions(self, owned):
        if owned and not self._at_a_start:
            self._call()

    def before_starting_fetchers(self, consumer_id, assignment):
        if self._at_a_start and len(assignment) == 2:
            self._call()


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (AuthenticationFailed("wrong password"), AuthenticationFailed),
        (ZooKeeperRefused("no permission"), ZooKeeperRefused),
        (ConfigError("no such file"), ConfigError),
        (MemberRefused("another strategy"), RebalanceFailed),
        (ZooKeeperUnavailable("no answer"), RebalanceFailed),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_joining_raises_what_an_operator_has_to_change(failure, raised, monkeypatch):
    def join(_group, _subscription):
        raise failure

    monkeypatch.setattr(Group, "join", join)
    with pytest.raises(raised, match=str(failure)):
        Consumer(rebalance_max_retries=1, rebalance_backoff_ms=10)


def test_a_member_without_a_zookeeper_is_described_without_a_session():
    description = Consumer().member.describe()
    assert "; session 0xab connected, lease" in str(dataclasses.replace(description, session=0xAB, connected=True))
    assert "none yet; connected, lease" in str(
        dataclasses.replace(description, session=0, last_cause=None, connected=True)
    )


def test_a_refused_strategy_is_raised_at_once_in_a_group_of_brokers(monkeypatch, caplog):
    """Other members use another strategy, and will; in ZooKeeper they may be about to leave."""
    attempts = []

    def join(_group, _subscription):
        attempts.append(1)
        raise StrategyConflict("no common strategy")

    monkeypatch.setattr(Group, "join", join)
    with pytest.raises(RebalanceFailed) as refused:
        Consumer(group_protocol="kafka", bootstrap_servers="unused:1", rebalance_backoff_ms=10)
    assert len(attempts) == 1
    assert str(refused.value).endswith("can't rebalance after 1 attempt (attempt 1: no common strategy)")
    assert "no common strategy" not in caplog.text, "it is raised"
    with pytest.raises(RebalanceFailed, match=r"after 2 attempts \(attempts 1, 2: no common strategy\); check that"):
        Consumer(rebalance_max_retries=2, rebalance_backoff_ms=10)


FOREIGN = [
    ConsumerClosed("shut down"),
    MembershipLost("removed"),
    RegistrationLost("deleted"),
    InstanceIdInUse("taken"),
    GroupMigrated("moved"),
    ConsumerIdInUse("live"),
    RebalanceAwaited("in progress"),
]
"""Of another consumer, which user code uses."""
NAMES = [type(error).__name__ for error in FOREIGN]


@pytest.mark.parametrize("at_a_start", [False, True], ids=["release", "start"])
@pytest.mark.parametrize("error", FOREIGN, ids=NAMES)
def test_errors_of_another_consumer_in_a_listener_only_fail_the_attempt(error, at_a_start, caplog):
    listener = RaisingOnce(error, at_a_start=at_a_start)
    one = Consumer(listener=listener)
    one.rebalance(0, 1)
    eventually(lambda: len(one.fetch.fetched) == 2)
    assert listener.calls
    assert (one.group.losses, one.failures) == (0, [])
    assert f"rebalance attempt failed in step {'5' if at_a_start else '2'}" in caplog.text
    one.member.leave()
    assert one.store.offsets[TopicPartition("t", 0)] == 50


@pytest.mark.parametrize("error", FOREIGN, ids=NAMES)
def test_errors_of_another_consumer_in_before_commit_only_fail_the_commit(error, caplog):
    raised = []

    def before_commit():
        if not raised:
            raised.append(error)
            raise error

    one = Consumer(before_commit=before_commit, auto_commit_interval_ms=50)
    eventually(lambda: one.store.offsets)
    assert (one.group.losses, one.failures) == (0, [])
    assert f"before_commit failed: {error}" in caplog.text
    one.member.leave()


def test_what_before_commit_raised_is_the_cause_of_a_refused_commit():
    error = ConsumerClosed("of another consumer")

    def before_commit():
        raise error

    one = Consumer(before_commit=before_commit)
    with pytest.raises(CommitRefused) as caught:
        one.member.commit()
    assert caught.value.__cause__ is error
    one.member.leave()


@pytest.mark.parametrize("raises", [None, ValueError("boom")], ids=["returns", "raises"])
def test_a_consumer_that_is_closed_while_its_listener_runs_ends(hanging, raises):
    """Without waiting for the listener, which may wait for the thread that closes it."""
    entered, returned = threading.Event(), threading.Event()

    class Hanging(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if owned:
                entered.set()
                hanging()
                returned.set()
                if raises is not None:
                    raise raises

    one = Consumer(listener=Hanging(), zookeeper_session_timeout_ms=100)
    one.rebalance(0, 1)
    assert entered.wait(BOUND_S)
    one.member.leave()
    assert not returned.is_set()
    hanging.end.set()
    one.member._thread._thread.join(BOUND_S)
    assert not one.member._thread._thread.is_alive()
    assert one.failures == []


def test_leaving_before_joining_can_be_repeated_after_an_interrupt():
    class Interrupted(Group):
        attempts = 0

        def leave(self):
            self.attempts += 1
            if self.attempts == 1:
                raise KeyboardInterrupt

    group = Interrupted(incremental=False)
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    parts = MemberParts(group, None, StoreInMemory(), RebalanceSignal(), Latch())
    member = GroupMember(config, "g_c", FetchInMemory(), parts)
    with pytest.raises(KeyboardInterrupt):
        member.leave()
    for _ in range(2):
        member.leave()
    assert group.attempts == 2
    with pytest.raises(UsageError):
        member.require_latent()


def test_a_member_that_leaves_without_its_last_commit_reports_what_is_not_committed(hanging):
    group, fetch = Group(incremental=False), FetchInMemory()
    group.command(0)
    config = ConsumerConfig(
        zookeeper_connect="unused:1", group_id="g", zookeeper_session_timeout_ms=100, commit_on="delivery"
    )
    parts = MemberParts(group, None, StoreInMemory(), RebalanceSignal(), Latch())
    member = GroupMember(config, "g_c", fetch, parts, before_commit=hanging)
    member.join(Subscription.static({"t": 1}))
    fetch.move(p0=50)
    member.leave()
    assert member.uncommitted == {TopicPartition("t", 0): (None, 50)}
