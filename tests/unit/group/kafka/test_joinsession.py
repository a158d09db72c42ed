"""A member of a group that brokers coordinate, and a coordinator whose error codes the tests choose."""

import threading

import pytest

from tests.fixtures.assignors import Switchable
from tests.fixtures.followingmember import FollowingMember, KnownCluster, silent_brokers, topic
from tests.fixtures.groupprotocol import IdleThread
from tests.fixtures.scriptedcoordinator import BEAT, COMMIT, FIND, JOIN, LEAVE, SYNC, running_scripted_coordinator
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AssignorFailed,
    CoordinatorMoved,
    GroupAuthorizationFailed,
    InstanceIdInUse,
    MemberRefused,
    MembershipLost,
    ProtocolError,
    RebalanceAwaited,
    StrategyConflict,
)
from zkconsumer.group.kafka.rules.generationmember import MembershipState
from zkconsumer.group.kafka.subscriptionbytes import decode_subscription
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode

PARTITIONS = frozenset(TopicPartition("t", number) for number in range(3))
MOVED = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
COOPERATIVE, EAGER = "cooperative-sticky", "range"
SESSION_S = 60
"""A session timeout that passes only when the test skips it."""


class Member(FollowingMember):
    """A member with one of the strategies."""

    def __init__(self, coordinator, *, weight=1, subscription=None, lease_changed=lambda: None, **properties):
        config = ConsumerConfig(
            bootstrap_servers=f"127.0.0.1:{coordinator.port}",
            group_id="g",
            group_protocol="kafka",
            **{
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 10,
                "partition_assignment_strategy": COOPERATIVE,
                **properties,
            },
        )
        subscription = subscription or Subscription({"t": 2}, weight=weight)
        super().__init__(config, KnownCluster(coordinator.broker), subscription)
        self.group.open(IdleThread(), lease_changed)

    def owns_everything(self):
        return self.owns(PARTITIONS)


@pytest.fixture
def coordinator():
    with running_scripted_coordinator() as made:
        yield made


@pytest.fixture
def make(coordinator):
    """Make members and wait until they own everything: ``make(**properties)``."""
    made = []

    def start(*, joins=True, **properties):
        member = Member(coordinator, **properties)
        made.append(member)
        if joins:
            member.until(member.owns_everything)
            await_heartbeats(coordinator)
        return member

    yield start
    for member in made:
        member.group.leave()


def ids(coordinator):
    return [request.member_id for request in coordinator.asked(JOIN)]


def declared_in(join):
    return decode_subscription(join.protocols[0].name, "", None, join.protocols[0].metadata)


def owned_in(join):
    return declared_in(join).owned


def subscribed_in(join):
    return set(declared_in(join).topics)


def rejoin(coordinator, member, count):
    """Let the member join again, and wait until it has joined by this many JoinGroup requests and owns everything."""
    views = member.group.describe().views
    coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(
        lambda: len(ids(coordinator)) >= count and member.group.describe().views > views and member.owns_everything()
    )
    await_heartbeats(coordinator)


def await_heartbeats(coordinator):
    """Wait until the next heartbeat is one that was sent after the member has joined.

    1. A heartbeat is sent; 2. the member joins; 3. a test sets an error code; 4. the heartbeat of 1 gets it. The member
    ignores that answer, as one about the generation before: a real coordinator gives it to the next heartbeat, too.
    """
    seen = len(coordinator.asked(BEAT))
    eventually(lambda: len(coordinator.asked(BEAT)) >= seen + 2)


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_new_member_joins_at_once_with_the_id_that_it_is_given(coordinator, make):
    coordinator.codes[JOIN].append(ErrorCode.MEMBER_ID_REQUIRED)
    make()
    assert ids(coordinator) == ["", "m1"]


@pytest.mark.parametrize("weight", [1, 3])
def test_a_member_counts_for_its_streams_times_its_weight(coordinator, make, weight):
    member = make(partition_assignment_strategy="zkconsumer", weight=weight)
    (join,) = coordinator.asked(JOIN)
    (announced,) = join.protocols
    assert decode_subscription(announced.name, "", None, announced.metadata).streams == {"t": 2 * weight}
    assert {thread.number for thread in member.group.held.partitions.values()} == {0, 1}, (
        "it is divided over the streams only"
    )


def test_a_second_demand_for_an_id_is_an_error_and_not_followed_at_once(coordinator, make):
    coordinator.codes[JOIN] += [ErrorCode.MEMBER_ID_REQUIRED] * 2
    make()
    assert ids(coordinator) == ["", "m1", "m1"]


@pytest.mark.parametrize("api", [JOIN, SYNC])
@pytest.mark.parametrize("code", MOVED)
def test_a_member_that_joins_finds_a_coordinator_that_has_moved(coordinator, make, api, code):
    member = make()
    found = len(coordinator.asked(FIND))
    coordinator.codes[api].append(code)
    rejoin(coordinator, member, 3)
    assert ids(coordinator) == ["", "m1", "m1"]
    assert len(coordinator.asked(FIND)) > found
    assert member.losses == 0
    assert owned_in(coordinator.asked(JOIN)[-1]) == PARTITIONS, "nothing was given up"


@pytest.mark.parametrize(
    ("api", "code", "member_id", "losses"),
    [
        (JOIN, ErrorCode.UNKNOWN_MEMBER_ID, "", 1),
        (SYNC, ErrorCode.UNKNOWN_MEMBER_ID, "", 1),
        (SYNC, ErrorCode.ILLEGAL_GENERATION, "m1", 1),
        (SYNC, ErrorCode.REBALANCE_IN_PROGRESS, "m1", 0),
    ],
)
@pytest.mark.parametrize("strategy", [COOPERATIVE, EAGER])
def test_a_refused_member_joins_again(coordinator, make, strategy, api, code, member_id, losses):
    member = make(partition_assignment_strategy=strategy)
    coordinator.codes[api].append(code)
    rejoin(coordinator, member, 3)
    assert ids(coordinator) == ["", "m1", member_id]
    assert member.losses == losses


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, MemberRefused),
        (ErrorCode.INVALID_SESSION_TIMEOUT, MemberRefused),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, StrategyConflict),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.INVALID_GROUP_ID, ProtocolError),
    ],
)
def test_what_an_operator_has_to_change_is_reported_until_it_is_changed(coordinator, make, code, kind):
    coordinator.codes[JOIN] += [code] * 1000
    member = make(joins=False)
    member.until(lambda: member.errors)
    coordinator.codes[JOIN].clear()
    member.until(member.owns_everything)
    assert {type(error) for error in member.errors} == {kind}
    assert set(ids(coordinator)) == {""}


@pytest.mark.parametrize("api", [JOIN, SYNC, BEAT])
def test_a_fenced_member_stays_out(coordinator, make, api):
    member = make(group_instance_id="one")
    coordinator.codes[api].append(ErrorCode.FENCED_INSTANCE_ID)
    if api is not BEAT:
        coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(lambda: member.errors)
    joins = len(ids(coordinator))
    assert (member.group.held.partitions, member.losses) == ({}, 1)
    for _ in range(3):
        member.follow()
    assert {type(error) for error in member.errors} == {InstanceIdInUse}
    assert len(ids(coordinator)) == joins


# -- heartbeats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", MOVED)
def test_heartbeats_find_a_coordinator_that_has_moved_and_nothing_else_changes(coordinator, make, code):
    member = make()
    found = len(coordinator.asked(FIND))
    coordinator.codes[BEAT].append(code)
    member.until(lambda: len(coordinator.asked(FIND)) > found)
    beats = len(coordinator.asked(BEAT))
    member.until(lambda: len(coordinator.asked(BEAT)) > beats)
    assert {(one.member_id, one.generation_id) for one in coordinator.asked(BEAT)} == {("m1", 1)}
    assert (ids(coordinator), member.losses) == ([""], 0)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m1")]
)
def test_a_removed_member_owns_nothing_and_joins_again(coordinator, make, code, member_id):
    member = make()
    coordinator.codes[BEAT].append(code)
    member.until(lambda: len(ids(coordinator)) == 2 and member.owns_everything())
    assert ids(coordinator) == ["", member_id]
    assert member.losses == 1
    assert owned_in(coordinator.asked(JOIN)[-1]) == frozenset()


def test_heartbeats_are_sent_while_a_request_to_join_waits(coordinator, make):
    """A coordinator answers it when the slowest member has joined, too."""
    member = make()
    coordinator.held[JOIN] = threading.Event()
    coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(lambda: len(ids(coordinator)) == 2)
    await_heartbeats(coordinator)
    assert len(coordinator.asked(SYNC)) == 1, "the member has not joined yet"
    coordinator.held[JOIN].set()
    member.until(member.owns_everything)


@pytest.mark.parametrize("api", [JOIN, SYNC])
def test_an_answer_that_comes_after_the_removal_is_not_one_to_the_new_member(coordinator, make, api):
    """1. It is on its way; 2. a heartbeat reports the removal; 3. the member begins as a new one; 4. it arrives."""
    member = make()
    coordinator.held[api] = threading.Event()
    coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(lambda: len(coordinator.asked(api)) == 2)
    await_heartbeats(coordinator)
    coordinator.codes[BEAT].append(ErrorCode.UNKNOWN_MEMBER_ID)
    member.until(lambda: member.losses)
    assert len(ids(coordinator)) == 2
    coordinator.held[api].set()
    member.until(member.owns_everything)
    assert (ids(coordinator), member.losses) == (["", "m1", ""], 1)
    await_heartbeats(coordinator)


@pytest.mark.parametrize(("strategy", "declared"), [(COOPERATIVE, PARTITIONS), (EAGER, frozenset())])
def test_a_rebalance_takes_from_an_eager_member_only(coordinator, make, strategy, declared):
    member = make(partition_assignment_strategy=strategy)
    rejoin(coordinator, member, 2)
    assert ids(coordinator) == ["", "m1"]
    assert owned_in(coordinator.asked(JOIN)[-1]) == declared
    assert any(need.share == {} for need in member.needs) is (strategy == EAGER)


def test_only_the_leader_asks_for_topics_when_it_keeps_what_it_has(coordinator, make):
    member = make()
    before = member.cluster.reads
    rejoin(coordinator, member, 2)
    assert member.cluster.reads == before + 1, "for the assignment"


def test_topics_are_read_again_before_partitions_are_gained(coordinator, make):
    """Otherwise a partition of a topic that was created again begins at a position, and is then reset."""
    member = make(partition_assignment_strategy=EAGER)
    views = []
    member.cluster.on_read = lambda: views.append(member.group.describe().views)
    member.cluster.topics = {"t": topic("second")}  # which no poll has noticed yet
    rejoin(coordinator, member, 2)
    assert views[-1] == 1, "before the second assignment is published"
    assert [need.recreated for need in member.needs if need.share] == [frozenset(), PARTITIONS]


def test_a_member_with_a_filter_declares_new_topics_whenever_it_joins(coordinator, make):
    member = make(subscription=Subscription.by_filter(Whitelist("t.*"), 1))
    member.cluster.topics = {**member.cluster.topics, "tu": topic("other"), "v": topic("not selected")}
    coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(lambda: len(member.group.held.partitions) == 6)
    assert [subscribed_in(join) for join in coordinator.asked(JOIN)] == [{"t"}, {"t", "tu"}]


def test_a_topic_that_is_noticed_when_partitions_are_gained_is_declared_then(coordinator, make):
    """1. The member declares t; 2. topic tu is created; 3. it gains partitions, and reads the topics again."""
    coordinator.held[JOIN] = threading.Event()
    member = make(joins=False, subscription=Subscription.by_filter(Whitelist("t.*"), 1))
    member.until(lambda: coordinator.asked(JOIN))
    member.cluster.topics = {**member.cluster.topics, "tu": topic("other")}
    coordinator.held[JOIN].set()
    member.until(lambda: len(member.group.held.partitions) == 6)
    assert [subscribed_in(join) for join in coordinator.asked(JOIN)] == [{"t"}, {"t", "tu"}]


def test_a_failure_is_over_when_the_next_request_to_join_waits(coordinator, make):
    """A coordinator waits for other members, up to a rebalance timeout."""
    coordinator.codes[JOIN] += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    coordinator.held[JOIN] = threading.Event()
    member = make(joins=False)
    member.until(lambda: member.errors)
    member.until(lambda: len(coordinator.asked(JOIN)) == 3)
    member.errors.clear()
    member.follow()
    assert member.errors == []
    coordinator.held[JOIN].set()
    member.until(member.owns_everything)


def test_the_lease_lapses_on_time_while_silent_brokers_are_asked(coordinator, make):
    """The coordinator has moved, and no broker answers where it is."""
    asked, silent = [], []
    member = make(
        session_timeout_ms=SESSION_S * 1000, lease_changed=lambda: asked.append(sum(one.asked for one in silent))
    )
    assert member.group.describe().lapses == 0
    with silent_brokers(member.cluster, 6) as brokers:
        silent += brokers
        coordinator.codes[BEAT].append(ErrorCode.NOT_COORDINATOR)
        eventually(lambda: any(one.asked for one in silent))
        member.skip(SESSION_S)
        eventually(lambda: asked)
        assert member.group.describe().lapses == 1
        assert not member.group.lease.holds()
        assert asked[0] < 6


def test_brokers_without_a_rebalance_timeout_wait_a_session_timeout(coordinator, make):
    """Those before 0.10.1: a member that has to release first is removed then, though its heartbeats are answered."""
    coordinator.versions[JOIN] = 0
    member = make(session_timeout_ms=SESSION_S * 1000)
    coordinator.held[JOIN] = threading.Event()
    coordinator.codes[BEAT] += [ErrorCode.REBALANCE_IN_PROGRESS] * 10_000
    member.skip(SESSION_S)
    await_heartbeats(coordinator)
    assert not member.group.lease.holds()
    assert member.group.held.partitions
    assert coordinator.codes[BEAT], "the coordinator answers"
    coordinator.codes[BEAT].clear()
    coordinator.held[JOIN].set()
    member.until(member.group.lease.holds)


# -- topics, leaving, commits ------------------------------------------------------------------------------------------


def test_a_rebalance_that_follows_an_assignment_is_noticed_before_the_next_interval(coordinator, make):
    member = make(session_timeout_ms=1_800_000, heartbeat_interval_ms=600_000)
    coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(lambda: len(coordinator.asked(SYNC)) == 2)


def test_the_leader_joins_again_when_a_topic_gets_partitions(coordinator, make):
    member = make()
    member.cluster.change(t=topic("first", partitions=5))
    member.until(lambda: len(member.group.held.partitions) == 5)
    assert ids(coordinator) == ["", "m1"]


def test_a_topic_with_another_id_is_taken_again_without_joining(coordinator, make):
    member = make()
    member.cluster.change(t=topic("second"))
    member.until(lambda: len(member.needs) > 1 and member.owns_everything())
    assert member.needs[-1].recreated == PARTITIONS
    assert ids(coordinator) == [""]
    member.cluster.change(t=topic("second"), u=topic("other"))
    rejoin(coordinator, member, 2)
    assert [need.recreated for need in member.needs] == [frozenset(), PARTITIONS], "once"


@pytest.mark.parametrize(("instance_id", "left"), [(None, ["m1"]), ("one", [])])
def test_a_dynamic_member_leaves_and_a_static_one_does_not(coordinator, make, instance_id, left):
    make(group_instance_id=instance_id).group.leave()
    assert [one.member_id for one in coordinator.asked(LEAVE)] == left


@pytest.mark.parametrize(("code", "left"), [(ErrorCode.ILLEGAL_GENERATION, ["m1"]), (ErrorCode.UNKNOWN_MEMBER_ID, [])])
def test_a_removed_member_leaves_if_the_coordinator_knows_its_id(coordinator, make, code, left):
    """Otherwise the other members wait for its session timeout."""
    member = make()
    coordinator.codes[BEAT].append(code)
    eventually(lambda: member.session.membership.read(lambda one: one.state) is MembershipState.FENCED)
    member.group.leave()
    assert [one.member_id for one in coordinator.asked(LEAVE)] == left


@pytest.mark.parametrize(
    ("code", "kind"), [(ErrorCode.UNKNOWN_MEMBER_ID, MembershipLost), (ErrorCode.FENCED_INSTANCE_ID, InstanceIdInUse)]
)
def test_a_refused_commit_ends_the_membership_before_a_heartbeat_does(coordinator, make, code, kind):
    member = make(session_timeout_ms=60_000, heartbeat_interval_ms=20_000)
    client = BrokerClient(lambda: (coordinator.broker,), client_id="test", timeout_ms=10_000)
    offsets = OffsetCoordinator(client, "g", member.group.identity, member.group.commit_membership)
    coordinator.held[BEAT] = threading.Event()
    coordinator.codes[COMMIT].append(code)
    with pytest.raises(kind):
        offsets.commit({TopicPartition("t", 0): StoredOffset(1)})
    assert not member.group.lease.holds(), "what it holds may belong to others"
    if kind is MembershipLost:
        member.until(lambda: member.losses and member.owns_everything())
    coordinator.held[BEAT].set()
    client.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceAwaited),
        (ErrorCode.ILLEGAL_GENERATION, RebalanceAwaited),
        (ErrorCode.UNKNOWN_MEMBER_ID, MembershipLost),
        (ErrorCode.FENCED_INSTANCE_ID, InstanceIdInUse),
        *((code, CoordinatorMoved) for code in MOVED),
    ],
)
def test_refused_commits_are_errors_of_the_membership(coordinator, code, kind):
    client = BrokerClient(lambda: (coordinator.broker,), client_id="test", timeout_ms=10_000)
    offsets = OffsetCoordinator(client, "g", lambda: CommitIdentity("m1", 7))
    coordinator.codes[COMMIT].append(code)
    with pytest.raises(kind):
        offsets.commit({TopicPartition("t", 0): StoredOffset(1)})
    assert offsets.commit({TopicPartition("t", 0): StoredOffset(1)}).accepted == {TopicPartition("t", 0)}
    assert [(one.member_id, one.generation_id_or_member_epoch) for one in coordinator.asked(COMMIT)] == [("m1", 7)] * 2
    client.close()


# -- an assignor of the application ------------------------------------------------------------------------------------


def test_a_leader_reports_that_its_own_assignor_fails_until_it_works_again(coordinator, make, monkeypatch):
    """It keeps what it has meanwhile."""
    member = make(partition_assignment_strategy="tests.fixtures.assignors:Switchable")
    monkeypatch.setattr(Switchable, "is_wrong", True)
    coordinator.codes[BEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    member.until(lambda: any("partition t-0 is given to no member" in str(error) for error in member.errors))
    assert {type(error) for error in member.errors} == {AssignorFailed}
    assert member.owns_everything()
    monkeypatch.setattr(Switchable, "is_wrong", False)
    member.until(lambda: member.session.membership.read(lambda state: state.failure) is None)
    assert member.owns_everything()
    (announced,) = coordinator.asked(JOIN)[-1].protocols
    assert announced.name == "switchable"
    assert decode_subscription("switchable", "", None, announced.metadata, is_own=True).user_data == b"r0"


def test_user_data_that_cannot_be_written_is_reported(coordinator, make, monkeypatch):
    monkeypatch.setattr(Switchable, "user_data", lambda *_: 1 / 0)
    member = make(joins=False, partition_assignment_strategy="tests.fixtures.assignors:Switchable")
    member.until(lambda: member.errors)
    assert "user_data() of assignor switchable failed: ZeroDivisionError" in str(member.errors[0])
