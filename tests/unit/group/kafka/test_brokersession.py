"""What the sessions of both protocols of brokers do alike; their talks with a coordinator are tested with each."""

import threading

import pytest

from tests.fixtures.followingmember import KnownCluster, topic
from zkconsumer.assembly.memberassembly import make_session
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.group.kafka.brokersession import BrokerSessionParts
from zkconsumer.group.kafka.rules.generationmember import Assigned
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker


class Known(KnownCluster):
    def __init__(self):
        super().__init__(Broker(1, "127.0.0.1", 1))


@pytest.fixture
def session():
    """Of a member that is in the group; its threads do not run."""
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1", group_id="g", group_protocol="kafka")
    signals = []
    one = make_session(BrokerSessionParts(config, "g_c", Known(), lambda: signals.append("changed"), lambda: 0.0))
    one.signals = signals
    one.begin(Subscription({"t": 1}))
    assign(one, 1)
    return one


def assign(session, generation):
    with session.membership.changing() as member:
        member.join_again()
        member.join()
        member.joined("m", generation, 100)
        member.synchronised(Assigned(generation, frozenset()), 0.0, 0.0)


def identity(session):
    return session.membership.read(lambda member: member.identity)


def test_a_commit_waits_for_the_next_generation(session):
    outdated = identity(session)
    renewed = []
    waiting = threading.Thread(target=lambda: renewed.append(session.await_renewed(outdated, 60)))
    waiting.start()
    assign(session, 2)
    waiting.join()
    assert renewed == [True]
    assert identity(session).generation == 2


@pytest.mark.parametrize("end", ["fence", "leave"])
def test_a_commit_does_not_wait_for_a_member_that_is_gone(session, end):
    outdated = identity(session)
    with session.membership.changing() as member:
        getattr(member, end)()
    assert not session.await_renewed(outdated, 60)


def test_a_commit_waits_only_for_a_while(session):
    assert session.await_renewed(identity(session), 0), "the coordinator may accept the same generation by now"


def test_other_topics_are_told_and_unreadable_ones_are_read_again(session):
    session.signals.clear()
    assert session._read_topics()
    assert (set(session.streams), set(session.topics), session.signals) == ({"t"}, {"t"}, ["changed"])
    assert not session._read_topics()
    session._cluster.topics = {"t": topic("second")}
    assert not session._read_topics(), "the same names"
    assert session.signals == ["changed"] * 2
    session.membership.read(lambda member: member.take_topics_change())

    def refuse():
        raise BrokerUnavailable("no broker answers")

    session._cluster.on_read = refuse
    with pytest.raises(BrokerUnavailable):
        session._read_topics()
    assert session.membership.read(lambda member: member.topics_changed)


def test_the_lease_of_a_member_that_leaves_does_not_lapse(session):
    notified = []
    session._lease_changed = lambda: notified.append("lapsed")
    session._watch.open()
    session.close()
    session.close()
    assert not session.membership.holds()
    assert (session.lease_lapses, notified) == (0, [])
