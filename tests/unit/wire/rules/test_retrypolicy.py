"""What follows a failure of an operation at a coordinator, by the type of the error and how far the operation is."""

import math

import pytest

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    CoordinatorMoved,
    GroupAuthorizationFailed,
    InstanceIdInUse,
    LeaseLapsed,
    ProtocolError,
    RebalanceAwaited,
    SessionExpired,
    ThreadLimit,
    ZooKeeperUnavailable,
)
from zkconsumer.wire.rules.retrypolicy import ONE_ATTEMPT, UNSETTLED_S, Course, Next, RetryPolicy

POLICY = RetryPolicy(attempts=3, pause_s=1.0, attempt_s=20.0)
NOW, LEFT_S = 1000.0, 30.0


def because(cause, error):
    error.__cause__ = cause
    return error


SILENT = BrokerUnavailable("no answer in time")
TIMED_OUT = because(TimeoutError(), BrokerUnavailable("no answer in time"))
CLOSED = because(ConnectionResetError(), BrokerUnavailable("the broker closed the connection"))
REFUSED = because(
    because(ConnectionRefusedError(), BrokerUnavailable("refused")), BrokerUnavailable("check the broker")
)
MOVED = CoordinatorMoved("NOT_COORDINATOR")
UNSETTLED = RebalanceAwaited("REBALANCE_IN_PROGRESS")
FIRST, LAST = Course(), Course(attempts=3)


def after(error, course=FIRST, *, policy=POLICY, left_s=LEFT_S, was_known=True):
    return policy.after(error, course, NOW, left_s, was_known=was_known)


@pytest.mark.parametrize(
    "error",
    [
        LeaseLapsed("released"),
        SessionExpired("removed"),
        InstanceIdInUse("another one"),
        GroupAuthorizationFailed("no permission", "Read"),
        ProtocolError("malformed"),
        ValueError("a defect"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("was_known", [True, False])
def test_an_error_that_is_not_retriable_is_final_and_so_is_a_lapsed_lease(error, was_known):
    assert after(error, was_known=was_known) is Next.GIVE_UP


@pytest.mark.parametrize(
    ("error", "course", "was_known", "step"),
    [
        # An answer, from a broker that was known as the coordinator: it has moved since.
        (MOVED, FIRST, True, Next.IF_MOVED),
        (CLOSED, FIRST, True, Next.IF_MOVED),
        (REFUSED, FIRST, True, Next.IF_MOVED),
        (MOVED, LAST, True, Next.IF_MOVED),
        # From one that was found just now: brokers do not agree yet.
        (MOVED, FIRST, False, Next.AFTER_PAUSE),
        (MOVED, LAST, False, Next.GIVE_UP),
        # Once in an attempt.
        (MOVED, FIRST._replace(has_followed=True), True, Next.AFTER_PAUSE),
        (MOVED, LAST._replace(has_followed=True), True, Next.GIVE_UP),
        # Not after a silent one.
        (SILENT, FIRST, True, Next.AFTER_PAUSE),
        (TIMED_OUT, FIRST, True, Next.AFTER_PAUSE),
        (SILENT, Course(attempts=2), True, Next.AFTER_PAUSE),
        (SILENT, LAST, True, Next.GIVE_UP),
        (AuthenticationFailed("password"), FIRST, True, Next.AFTER_PAUSE),
        (ZooKeeperUnavailable("brokers are unknown"), FIRST, False, Next.AFTER_PAUSE),
        (ThreadLimit("host name"), FIRST, False, Next.AFTER_PAUSE),
        # Between two generations: part of the same attempt, for a while.
        (UNSETTLED, FIRST, True, Next.WHEN_RENEWED),
        (UNSETTLED, LAST, True, Next.WHEN_RENEWED),
        (UNSETTLED, LAST._replace(has_followed=True), True, Next.WHEN_RENEWED),
        (UNSETTLED, Course(1, unsettled_since=NOW - UNSETTLED_S / 2), True, Next.WHEN_RENEWED),
        (UNSETTLED, Course(1, unsettled_since=NOW - UNSETTLED_S), True, Next.AFTER_PAUSE),
        (UNSETTLED, Course(3, unsettled_since=NOW - UNSETTLED_S), True, Next.GIVE_UP),
    ],
)
def test_what_follows_an_error(error, course, was_known, step):
    assert after(error, course, was_known=was_known) is step


@pytest.mark.parametrize("error", [MOVED, SILENT, UNSETTLED], ids=["moved", "silent", "unsettled"])
def test_nothing_follows_after_the_deadline(error):
    assert after(error, left_s=0.0) is Next.GIVE_UP


def test_no_pause_begins_that_would_end_after_the_deadline():
    assert after(SILENT, left_s=POLICY.pause_s) is Next.GIVE_UP
    assert after(SILENT, left_s=POLICY.pause_s + 0.01) is Next.AFTER_PAUSE
    assert after(MOVED, left_s=0.01) is Next.IF_MOVED


def test_where_others_wait_there_is_one_attempt_and_what_belongs_to_it():
    once = POLICY.once()
    assert after(SILENT, policy=once) is Next.GIVE_UP
    assert after(MOVED, policy=once) is Next.IF_MOVED
    assert after(UNSETTLED, policy=once) is Next.WHEN_RENEWED
    assert once.total_s == 20.0


def test_how_far_an_operation_has_come():
    course = FIRST.after(Next.IF_MOVED, NOW)
    assert course == Course(1, has_followed=True)
    course = course.after(Next.WHEN_RENEWED, NOW)
    assert course == Course(1, unsettled_since=NOW)
    assert course.after(Next.WHEN_RENEWED, NOW + 1) == course, "since the first refusal"
    assert course.after(Next.AFTER_PAUSE, NOW + 1) == Course(2)


def configured(**settings):
    return RetryPolicy.from_config(ConsumerConfig(group_id="g", zookeeper_connect="unused:1", **settings))


def test_the_properties_mean_what_they_mean_to_the_jvm():
    assert configured() == RetryPolicy(6, 1.0, 20.0)
    assert (configured().total_s, configured().once().total_s) == (125.0, 20.0)
    few = configured(
        offsets_commit_max_retries=0, offsets_channel_backoff_ms=250, offsets_channel_socket_timeout_ms=4000
    )
    assert (few, few.total_s) == (RetryPolicy(1, 0.25, 8.0), 8.0)


def test_a_short_socket_timeout_leaves_time_for_a_leader_to_assign():
    assert configured(offsets_channel_socket_timeout_ms=10).once().total_s == UNSETTLED_S


def test_one_attempt_of_a_tool_has_no_limit():
    assert ONE_ATTEMPT.total_s == math.inf
    assert after(SILENT, policy=ONE_ATTEMPT, left_s=math.inf) is Next.GIVE_UP
