"""ClusterChanges: which changes a member has to announce to its group."""

import pytest

from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.zookeeper.rules.clusterchanges import ClusterChanges
from zkconsumer.model import Broker, TopicIdentity

BROKERS = (Broker(1, "one", 9092),)


def view(partitions=2, identity="id", brokers=BROKERS):
    described = {} if partitions is None else {"t": tuple(range(partitions))}
    return GroupView(
        members={},
        partitions=described,
        identities={name: TopicIdentity(identity, None) for name in described},
        brokers=brokers,
    )


def after(*readings):
    """The changes after these readings, each a view and the number of events before it."""
    changes = ClusterChanges()
    for one, events in readings:
        changes.read(one, events)
    return changes


@pytest.mark.parametrize(
    "changed", [view(3), view(None), view(identity="another")], ids=["grown", "deleted", "created again"]
)
def test_a_change_without_an_event_has_to_be_announced(changed):
    assert after((view(), 1), (changed, 1)).unannounced


@pytest.mark.parametrize("changed", [view(), view(3)], ids=["same", "grown"])
def test_an_event_makes_all_members_read(changed):
    assert not after((view(), 1), (changed, 2)).unannounced


def test_an_event_before_the_former_reading_announces_nothing():
    assert after((view(), 1), (view(), 2), (view(3), 2)).unannounced


def test_a_change_stays_unannounced_until_it_is_announced():
    changes = after((view(), 1), (view(3), 1), (view(3), 1))
    assert changes.unannounced
    changes.announced()
    assert not changes.unannounced
    changes.read(view(3), 1)
    assert not changes.unannounced


def test_a_later_event_announces_a_change():
    assert not after((view(), 1), (view(3), 1), (view(3), 2)).unannounced


def test_an_heir_does_not_know_what_was_announced():
    changes = ClusterChanges(inherits=True)
    changes.read(view(brokers=()), 0)
    assert not changes.unannounced
    changes.read(view(), 0)
    assert changes.unannounced
    changes.announced()
    changes.read(view(), 0)
    assert not changes.unannounced


def test_the_first_description_is_not_a_change():
    assert not after((view(), 1)).unannounced
    unknown = view(None, brokers=())
    assert not after((unknown, 1), (view(), 1)).unannounced
    assert after((view(), 1), (unknown, 1), (view(3), 1)).unannounced
