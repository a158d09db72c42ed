"""A member of a group in which the broker assigns, and a coordinator whose answers the tests choose."""

import logging

import pytest

from tests.fixtures.followingmember import FollowingMember, KnownCluster, silent_brokers, topic
from tests.fixtures.groupprotocol import IdleThread
from tests.fixtures.scriptedconsumercoordinator import LOST, running_consumer_coordinator
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    ConfigError,
    GroupAuthorizationFailed,
    InstanceIdInUse,
    MemberRefused,
    ProtocolError,
)
from zkconsumer.group.consumer import heartbeatsession as consumersession
from zkconsumer.group.consumer.heartbeatmessages import CONSUMER_GROUP_HEARTBEAT
from zkconsumer.group.consumer.rules.epochmember import IdPartition
from zkconsumer.group.kafka.rules.generationmember import MembershipState
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode

ID, OTHER = "AQIDBAUGBwgJCgsMDQ4PEA", "__________4AAAAAAAAAAw"
PARTITIONS = frozenset(TopicPartition("t", number) for number in range(3))
MOVED = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
ANOTHER = "another"
SESSION_S = 60
"""A session timeout that passes only when the test skips it."""


def ids(*numbers, topic_id=ID):
    return frozenset(IdPartition(topic_id, number) for number in numbers)


def parts(*numbers):
    return {TopicPartition("t", number) for number in numbers}


class Member(FollowingMember):
    """A member that subscribes to topic t, or as the test wants."""

    def __init__(self, coordinator, subscription=None, **properties):
        config = ConsumerConfig(
            bootstrap_servers=f"127.0.0.1:{coordinator.port}",
            group_id="g",
            group_protocol="consumer",
            **properties,
        )
        cluster = KnownCluster(coordinator.broker)
        cluster.topics = {"t": topic(ID)}
        super().__init__(config, cluster, subscription or Subscription({"t": 2}))


@pytest.fixture
def coordinator():
    with running_consumer_coordinator(ID, 3) as made:
        yield made


@pytest.fixture
def make(coordinator):
    """Make members and wait until they own everything: ``make(**properties)``."""
    made = []

    def start(*, joins=True, lease_changed=lambda: None, **properties):
        member = Member(coordinator, **properties)
        made.append(member)
        member.group.open(IdleThread(), lease_changed)
        if joins:
            member.until(lambda: member.owns(PARTITIONS))
        return member

    yield start
    for member in made:
        member.group.leave()


def joins(coordinator):
    return [beat for beat in coordinator.beats if beat.member.generation == 0]


def await_beats(coordinator, member, count=2):
    """Follow until the coordinator has received this many further heartbeats."""
    reached = len(coordinator.beats) + count
    member.until(lambda: len(coordinator.beats) >= reached)


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_member_joins_in_epoch_0_and_reports_later_only_what_has_changed(coordinator, make):
    member = make()
    await_beats(coordinator, member)
    first, *others = coordinator.beats
    assert (first.member.generation, first.full, first.topics, first.owned) == (0, True, ("t",), frozenset())
    assert {beat.member.member_id for beat in others} == {first.member.member_id}
    assert [beat.owned for beat in others if beat.owned is not None] == [ids(0, 1, 2)]
    assert {beat.topics for beat in others} == {None}
    assert {thread.number for thread in member.group.held.partitions.values()} == {0, 1}, (
        "it is divided over the streams"
    )


@pytest.mark.parametrize("code", MOVED)
@pytest.mark.parametrize("count", [0, 3])
def test_a_coordinator_that_has_moved_is_found_again_and_nothing_is_lost(coordinator, make, code, count):
    if count:
        member = make()
        coordinator.codes.append(code)
    else:
        coordinator.codes.append(code)
        member = make()
    await_beats(coordinator, member, 3)
    assert member.losses == 0
    assert len(joins(coordinator)) == (1 if count else 2)
    assert member.owns(PARTITIONS)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, MemberRefused),
        (ErrorCode.UNRELEASED_INSTANCE_ID, MemberRefused),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, MemberRefused),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, MemberRefused),
        (ErrorCode.GROUP_ID_NOT_FOUND, MemberRefused),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.INVALID_GROUP_ID, ProtocolError),
    ],
)
def test_what_an_operator_has_to_change_is_reported_until_it_is_changed(coordinator, make, code, kind):
    coordinator.codes += [code] * 1000
    member = make(joins=False)
    member.until(lambda: member.errors)
    coordinator.codes.clear()
    member.until(lambda: member.owns(PARTITIONS))
    assert {type(error) for error in member.errors} == {kind}


@pytest.mark.parametrize(
    ("code", "instance_id"), [(ErrorCode.FENCED_MEMBER_EPOCH, None), (ErrorCode.UNRELEASED_INSTANCE_ID, "one")]
)
def test_a_member_that_the_coordinator_still_knows_leaves_and_joins_again(coordinator, make, code, instance_id):
    """Before Kafka 4.2 a coordinator refuses epoch 0 of a member that it has, of a static one in every release."""
    coordinator.codes.append(code)
    member = make(group_instance_id=instance_id)
    assert [beat.member.generation for beat in coordinator.beats[:3]] == [0, -1, 0]
    assert member.owns(PARTITIONS)


def test_a_refusal_that_lasts_is_reported_once(coordinator, make, caplog):
    caplog.set_level(logging.INFO)
    coordinator.codes += [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    make()
    texts = [record.getMessage() for record in caplog.records]
    assert sum("a heartbeat failed" in text for text in texts) == 1
    assert sum("answers again" in text for text in texts) == 1


# -- assignments -------------------------------------------------------------------------------------------------------


def test_partitions_are_released_reported_and_gained_step_by_step(coordinator, make):
    member = make()
    group = coordinator.group
    group.members[ANOTHER] = type(next(iter(group.members.values())))()
    group.epoch += 1
    group.target = {name: ids(0) for name in group.members} | {ANOTHER: ids(1, 2)}
    member.until(lambda: member.owns(parts(0)))
    eventually(lambda: coordinator.beats[-1].member.generation == group.epoch)
    assert [beat.owned for beat in coordinator.beats if beat.owned is not None][-1] == ids(0)
    group.remove(ANOTHER)
    member.until(lambda: member.owns(PARTITIONS))
    assert member.losses == 0


def test_an_answer_that_is_lost_is_asked_for_with_all_fields(coordinator, make):
    member = make()
    await_beats(coordinator, member)
    before = len(coordinator.beats)
    coordinator.codes.append(LOST)
    await_beats(coordinator, member)
    again = coordinator.beats[before:]
    assert any((beat.full, beat.owned) == (True, ids(0, 1, 2)) for beat in again)
    assert (member.losses, len(joins(coordinator))) == (0, 1)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_removed_member_owns_nothing_and_joins_with_the_same_id(coordinator, make, code):
    member = make()
    coordinator.codes.append(code)
    member.until(lambda: len(joins(coordinator)) == 2 and member.owns(PARTITIONS))
    first, again = joins(coordinator)
    assert again == first
    assert member.losses == 1


def test_a_fenced_member_stays_out(coordinator, make):
    member = make(group_instance_id="one")
    coordinator.codes.append(ErrorCode.FENCED_INSTANCE_ID)
    member.until(lambda: member.errors)
    assert (member.group.held.partitions, member.losses) == ({}, 1)
    for _ in range(3):
        member.follow()
    assert {type(error) for error in member.errors} == {InstanceIdInUse}
    assert len(joins(coordinator)) == 1


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_filter_that_re2_does_not_have_subscribes_to_the_names_that_it_selects(coordinator, make):
    member = make(subscription=Subscription.by_filter(Whitelist("(?=t).*"), 1))
    member.cluster.change(t=topic(ID), tu=topic(OTHER), v=topic("x"))
    member.until(lambda: [beat.topics for beat in coordinator.beats if beat.topics] == [("t",), ("t", "tu")])
    coordinator.group.partitions |= ids(0, topic_id=OTHER)
    coordinator.group.assign([0])
    member.until(lambda: member.owns(PARTITIONS | {TopicPartition("tu", 0)}))


def test_a_filter_subscribes_by_a_regex_and_the_coordinator_adds_topics(coordinator, make):
    member = make(subscription=Subscription.by_filter(Whitelist("t.*"), 1), client_rack="r1")
    member.cluster.topics = {"t": topic(ID), "tu": topic(OTHER)}  # no reading of topics finds it first
    coordinator.group.partitions |= ids(0, topic_id=OTHER)
    coordinator.group.assign([0])
    member.until(lambda: member.owns(PARTITIONS | {TopicPartition("tu", 0)}))
    assert [beat.topics for beat in coordinator.beats if beat.topics is not None] == [("t",)]
    assert [beat.regex for beat in coordinator.beats if beat.regex] == ["t.*"]
    assert coordinator.racks[0] == "r1"
    assert set(coordinator.racks[1:]) == {""}


def test_a_topic_that_the_member_finds_first_is_left_to_the_coordinator(coordinator, make):
    member = make(subscription=Subscription.by_filter(Whitelist("t.*"), 1))
    member.cluster.change(t=topic(ID), tu=topic(OTHER))
    await_beats(coordinator, member, 3)
    assert [beat.topics for beat in coordinator.beats if beat.topics is not None] == [("t",)]


def test_another_subscription_withdraws_the_regex(coordinator, make):
    member = make(subscription=Subscription.by_filter(Whitelist("t.*"), 1))
    member.session.begin(Subscription({"t": 1}))
    member.until(lambda: "" in [beat.regex for beat in coordinator.beats])
    assert member.losses == 0


@pytest.mark.parametrize("joins", [True, False])
def test_a_regex_that_the_coordinator_does_not_accept_is_replaced_by_names(coordinator, make, caplog, joins):
    member = make(subscription=Subscription.by_filter(Whitelist("t.*"), 1), joins=False)
    if not joins:
        member.until(lambda: member.owns(PARTITIONS))
        coordinator.codes.append(LOST)  # so all fields are sent again
    coordinator.codes.append(ErrorCode.INVALID_REGULAR_EXPRESSION)
    member.until(lambda: "does not accept the regex 't.*'" in caplog.text and member.owns(PARTITIONS))
    member.cluster.change(t=topic(ID), tu=topic(OTHER))
    member.until(lambda: ("t", "tu") in [beat.topics for beat in coordinator.beats])
    assert (member.losses, member.errors) == (0, [])
    assert caplog.text.count("does not accept the regex") == 1


def test_partitions_of_a_topic_that_is_not_described_yet_wait_for_its_name(coordinator, make):
    member = make()
    coordinator.group.partitions |= ids(0, topic_id=OTHER)
    coordinator.group.assign([0])
    await_beats(coordinator, member, 3)
    assert member.owns(PARTITIONS)
    member.cluster.change(t=topic(ID), u=topic(OTHER))
    await_beats(coordinator, member, 3)
    assert member.owns(PARTITIONS), "it is not subscribed to u"


def test_a_topic_with_another_id_is_released_and_taken_again(coordinator, make):
    member = make()
    coordinator.group.partitions = ids(0, 1, 2, topic_id=OTHER)
    coordinator.group.assign([0])
    member.cluster.change(t=topic(OTHER))
    member.until(
        lambda: (
            member.owns(PARTITIONS)
            and [beat.owned for beat in coordinator.beats if beat.owned is not None][-1] == ids(0, 1, 2, topic_id=OTHER)
        )
    )
    assert frozenset().union(*(need.recreated for need in member.needs)) == PARTITIONS
    assert member.losses == 0


# -- the lease, leaving ------------------------------------------------------------------------------------------------


def test_the_lease_is_that_of_the_groups_session_timeout(coordinator, make):
    assert 0 < make().group.lease.remaining() <= 4.8


def test_without_a_permission_to_read_it_the_lease_is_that_of_the_property(coordinator, make, caplog):
    coordinator.session_ms = None
    assert 4.8 < make().group.lease.remaining() <= 36
    assert "session timeout cannot be read" in caplog.text


def test_heartbeats_do_not_wait_for_a_session_timeout_that_cannot_be_read_again(coordinator, make, monkeypatch):
    monkeypatch.setattr(consumersession, "_SESSION_VALID_S", 0.0)
    member = make()
    coordinator.describes_configs = False
    await_beats(coordinator, member, 5)
    assert 0 < member.group.lease.remaining() <= 4.8
    assert (member.losses, member.errors) == (0, [])


def test_the_lease_lapses_on_time_while_silent_brokers_are_asked(coordinator, make):
    """The connection breaks, and no broker answers who the coordinator is."""
    coordinator.session_ms = SESSION_S * 1000
    asked, silent = [], []
    member = make(lease_changed=lambda: asked.append(sum(one.asked for one in silent)))
    with silent_brokers(member.cluster, 6) as brokers:
        silent += brokers
        coordinator.codes += [LOST] * 2
        eventually(lambda: any(one.asked for one in silent))
        member.skip(SESSION_S)
        eventually(lambda: asked)
        assert member.group.describe().lapses == 1
        assert not member.group.lease.holds()
        assert asked[0] < 6


def test_nothing_is_delivered_when_the_coordinator_is_silent(coordinator, make):
    coordinator.session_ms = SESSION_S * 1000
    member = make()
    coordinator.codes += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000
    member.skip(SESSION_S)
    eventually(lambda: member.group.describe().lapses)
    assert not member.group.lease.holds()
    assert member.group.held.partitions.keys() == PARTITIONS
    coordinator.codes.clear()
    eventually(member.group.lease.holds)
    assert member.group.describe().lapses == 1


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_a_member_leaves_for_good_and_a_static_one_for_a_while(coordinator, make, instance_id, epoch):
    member = make(group_instance_id=instance_id)
    member.group.leave()
    assert coordinator.beats[-1].member == (coordinator.beats[0].member.member_id, epoch, instance_id)


@pytest.mark.parametrize(
    ("code", "left"), [(ErrorCode.FENCED_MEMBER_EPOCH, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)]
)
def test_a_removed_member_leaves_if_the_coordinator_knows_its_id(coordinator, make, code, left):
    """Otherwise the other members wait for its session timeout."""
    member = make()
    coordinator.codes.append(code)
    eventually(lambda: member.session.membership.read(lambda one: one.state) is MembershipState.FENCED)
    member.group.leave()
    assert (coordinator.beats[-1].member.generation == -1) is left


# -- brokers without the protocol --------------------------------------------------------------------------------------


def test_a_broker_that_does_not_know_the_request_is_refused(coordinator, make):
    del coordinator.versions[CONSUMER_GROUP_HEARTBEAT]
    with pytest.raises(ConfigError, match=r"is of release .*use group\.protocol=kafka"):
        make()


def test_a_broker_that_has_disabled_the_protocol_is_refused(coordinator, make):
    coordinator.disabled = True
    with pytest.raises(ConfigError, match=r"disabled; see group\.version.*use group\.protocol=kafka"):
        make()
    assert coordinator.beats == []
