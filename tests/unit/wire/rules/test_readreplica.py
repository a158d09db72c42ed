import doctest

import pytest

from zkconsumer.model import Broker
from zkconsumer.wire.rules import readreplica
from zkconsumer.wire.rules.readreplica import AT_LEADER, ReadReplica

LEADER, FOLLOWER = Broker(0, "h", 1), Broker(1, "h", 2)
BROKERS = {0: LEADER, 1: FOLLOWER}
NAMED = AT_LEADER.named(1, 100.0, 30.0)


def choose(replica, now=110.0, brokers=BROKERS, *, needs_leader=False):
    return replica.broker(LEADER, brokers, now, 30.0, needs_leader=needs_leader)


def test_examples_hold():
    assert doctest.testmod(readreplica).failed == 0


def test_a_partition_is_fetched_from_its_leader_until_that_names_another_broker():
    assert choose(AT_LEADER) == (LEADER, AT_LEADER)
    assert choose(NAMED) == (FOLLOWER, NAMED)


def test_the_leader_is_asked_again_after_a_while():
    assert not NAMED.is_over(129.9)
    assert NAMED.is_over(130.0)
    assert choose(NAMED, 130.0) == (LEADER, AT_LEADER)
    assert NAMED.at_leader() == AT_LEADER


def test_the_leader_is_asked_about_positions():
    assert choose(NAMED, needs_leader=True) == (LEADER, AT_LEADER)


def test_a_follower_that_leads_by_now_is_no_follower():
    assert NAMED.broker(FOLLOWER, BROKERS, 110.0, 30.0, needs_leader=False) == (FOLLOWER, AT_LEADER)


@pytest.mark.parametrize("failed", [choose(NAMED, brokers={0: LEADER})[1], NAMED.failed(110.0, 30.0)])
def test_after_a_follower_that_is_gone_the_leader_names_none_for_a_while(failed):
    assert failed == ReadReplica(None, 140.0)
    assert not failed.may_move(139.9)
    assert failed.may_move(140.0)
    assert choose(failed) == (LEADER, failed)
    assert failed.at_leader() == failed


def test_a_leader_that_has_not_failed_to_send_elsewhere_may_do_so():
    assert AT_LEADER.may_move(0.0)
    assert NAMED.may_move(500.0)
