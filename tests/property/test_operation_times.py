"""How long an operation on a group's offsets takes, whatever the brokers do: one deadline ends it."""

import math
from itertools import chain, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.slowbrokers import Answer, SlowBrokers, only
from zkconsumer.errors import RebalanceAwaited, RetriableError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode

CODES = [
    0,
    -1,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
]
ANSWERS = st.builds(
    Answer, st.sampled_from([0.0, 0.01, 0.9, 5.0, 9.9, math.inf]), st.sampled_from(CODES), st.sampled_from([1, 2, 3])
)
PROPERTIES = st.fixed_dictionaries(
    {
        "offsets_commit_max_retries": st.integers(0, 6),
        "offsets_channel_backoff_ms": st.sampled_from([0, 1000, 20_000]),
        "offsets_channel_socket_timeout_ms": st.sampled_from([10, 1000, 10_000]),
    }
)


@settings(max_examples=500, deadline=None)
@given(
    answers=st.lists(ANSWERS, min_size=1, max_size=40),
    then=ANSWERS,
    properties=PROPERTIES,
    operation=st.sampled_from(["fetch", "commit", "commit once"]),
    in_group=st.booleans(),
    renews=st.booleans(),
)
def test_nothing_is_begun_after_the_deadline(answers, then, properties, operation, in_group, renews):
    script = chain(answers, repeat(then))
    brokers = SlowBrokers(lambda *_: next(script), in_group=in_group, renews=renews, **properties)
    policy = brokers.policy.once() if operation == "commit once" else brokers.policy
    began = brokers.clock()
    try:
        if operation == "fetch":
            brokers.store.fetch([TopicPartition("t", 0)])
        else:
            brokers.commit(retry=operation == "commit")
    except RetriableError:
        pass
    assert brokers.clock() - began <= policy.total_s + 1e-6
    assert all(one.at < began + policy.total_s for one in brokers.begun)
    assert brokers.asked_for_lease == brokers.count("commit"), "the lease is checked before each request"
    if operation != "fetch":  # which also waits for a permission
        assert len(brokers.waits) < policy.attempts


@pytest.mark.parametrize("timeout_ms", [1000, 2500, 10_000])
@pytest.mark.parametrize("retry", [True, False])
def test_a_commit_between_two_generations_ends_with_the_coordinators_answer(timeout_ms, retry):
    answer = Answer(0.03, ErrorCode.REBALANCE_IN_PROGRESS)
    brokers = SlowBrokers(only(1, answer, at=("commit",)), offsets_channel_socket_timeout_ms=timeout_ms)
    with pytest.raises(RebalanceAwaited):
        brokers.commit(retry=retry)
    client = brokers.store._coordinator.coordinator
    assert client.broker is not None, "the coordinator is still known: heartbeats share the location"
