"""Commits and fetches of a member with a generation or an epoch, and a coordinator that compares it."""

from types import SimpleNamespace

import pytest

from zkconsumer.errors import InstanceIdInUse, MembershipLost, ProtocolError, RebalanceAwaited
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import CommitMembership, OffsetCoordinator
from zkconsumer.offsets.offsetmessages import uuid_of
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, unmarked
from zkconsumer.wire.attempts import Attempts
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.errorcodes import ErrorCode

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
IDS = {"a": "AQIDBAUGBwgJCgsMDQ4PEA", "b": "__________4AAAAAAAAAAw"}


class ScriptedBroker:
    """Both a connection and its client. Knows versions up to ``newest``; ``codes`` are those of the next answers."""

    security = PLAINTEXT

    def __init__(self, newest, *codes, groups=("g",)):
        self._newest, self._codes, self._groups = newest, list(codes), groups
        self.asked = []

    def version(self, key, name, oldest, newest):
        return min(newest, self._newest) if name.startswith("Offset") else newest

    def call(self, request, *, before_send=lambda: None):
        before_send()
        bytes(request.encode())
        if hasattr(request, "key"):
            return SimpleNamespace(error_code=0, node_id=1, host="broker", port=9092)
        self.asked.append(request)
        code = self._codes.pop(0) if self._codes else 0
        if request.API_KEY == 9:
            return self._fetched(request, code)
        topics = [
            SimpleNamespace(
                name=None if topic.topic_id else topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    SimpleNamespace(partition_index=p.partition_index, error_code=code) for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=topics)

    def _fetched(self, request, code):
        (asked,) = request.groups
        topics = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(partition_index=number, error_code=0, committed_offset=5, metadata="")
                    for number in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ]
        groups = [
            SimpleNamespace(group_id=name, error_code=code, topics=[] if code else topics) for name in self._groups
        ]
        return SimpleNamespace(groups=groups)

    def ask(self, _, question, deadline):
        return question(self)

    def ask_any(self, question, deadline):
        return question(self)


class Membership:
    """A member at an epoch, which advances while commits wait for that; ``stays`` is how often they wait in vain."""

    def __init__(self, *, stays=0, in_group=True, ids=IDS):
        self.epoch = 7
        self.refused = []
        self._waits = 0
        self._stays, self._in_group, self._ids = stays, in_group, ids

    def identity(self):
        return CommitIdentity("m", self.epoch)

    def tenths(self):
        """Seconds, of which a tenth passes in each wait."""
        return self._waits / 10

    def offsets(self, broker):
        topic_ids = None if self._ids is None else lambda: self._ids
        membership = CommitMembership(self._await_renewed, topic_ids, refused=lambda *how: self.refused.append(how))
        return OffsetCoordinator(broker, "g", self.identity, membership)

    def _await_renewed(self, outdated, _):
        assert outdated == self.identity()
        self._waits += 1
        self._stays -= 1
        self.epoch += self._stays < 0
        return self._in_group


def test_a_commit_names_the_epoch_and_the_id_of_the_topic():
    broker = ScriptedBroker(10)
    assert Membership().offsets(broker).commit(unmarked({A0: 5, B0: 6})).accepted == {A0, B0}
    (request,) = broker.asked
    assert (request.API_VERSION, request.member_id, request.generation_id_or_member_epoch) == (10, "m", 7)
    assert [topic.topic_id for topic in request.topics] == [uuid_of(IDS["a"]), uuid_of(IDS["b"])]


@pytest.mark.parametrize(("newest", "ids"), [(9, IDS), (10, {"a": IDS["a"]})])
def test_a_commit_names_topics_where_the_broker_or_the_member_has_no_ids(newest, ids):
    broker = ScriptedBroker(newest)
    assert Membership(ids=ids).offsets(broker).commit(unmarked({A0: 5, B0: 6})).accepted == {A0, B0}
    (request,) = broker.asked
    assert request.API_VERSION == 9
    assert [topic.name for topic in request.topics] == ["a", "b"]


@pytest.mark.parametrize(
    ("ids", "newest", "code"),
    [
        (IDS, 10, ErrorCode.STALE_MEMBER_EPOCH),
        (None, 7, ErrorCode.ILLEGAL_GENERATION),
        (None, 7, ErrorCode.REBALANCE_IN_PROGRESS),
    ],
)
def test_a_commit_is_repeated_in_the_next_generation(ids, newest, code):
    broker = ScriptedBroker(newest, code)
    assert Membership(ids=ids).offsets(broker).commit(unmarked({A0: 5})).accepted == {A0}
    assert [(one.API_VERSION, one.generation_id_or_member_epoch) for one in broker.asked] == [(newest, 7), (newest, 8)]


def test_a_commit_is_repeated_in_the_same_generation_until_the_leader_has_assigned():
    broker = ScriptedBroker(7, *[ErrorCode.REBALANCE_IN_PROGRESS] * 3)
    assert Membership(stays=2, ids=None).offsets(broker).commit(unmarked({A0: 5})).accepted == {A0}
    assert [one.generation_id_or_member_epoch for one in broker.asked] == [7, 7, 7, 8]


@pytest.mark.parametrize(("in_group", "requests"), [(False, 1), (True, 51)])
def test_a_commit_is_not_repeated_for_ever_nor_after_the_member_was_removed(in_group, requests):
    broker = ScriptedBroker(10, *[ErrorCode.STALE_MEMBER_EPOCH] * 100)
    membership = Membership(stays=100, in_group=in_group)
    with pytest.raises(RebalanceAwaited, match="STALE_MEMBER_EPOCH"):
        membership.offsets(broker).commit(unmarked({A0: 5}), attempts=Attempts(clock=membership.tenths))
    assert len(broker.asked) == requests


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_removed_member_stores_and_reads_nothing(code):
    for request in (lambda one: one.commit(unmarked({A0: 5})), lambda one: one.fetch([A0])):
        membership = Membership()
        with pytest.raises(MembershipLost, match=code.name):
            request(membership.offsets(ScriptedBroker(10, code)))
        assert membership.refused == [(CommitIdentity("m", 7), code)]


def test_that_another_client_has_the_instance_id_is_told_to_the_membership():
    membership = Membership()
    with pytest.raises(InstanceIdInUse, match="FENCED_INSTANCE_ID"):
        membership.offsets(ScriptedBroker(10, ErrorCode.FENCED_INSTANCE_ID)).commit(unmarked({A0: 5}))
    assert membership.refused == [(CommitIdentity("m", 7), ErrorCode.FENCED_INSTANCE_ID)]


def test_a_fetch_names_the_epoch():
    broker = ScriptedBroker(10, ErrorCode.STALE_MEMBER_EPOCH)
    assert Membership().offsets(broker).fetch([A0, B0]).found == {A0: StoredOffset(5, ""), B0: StoredOffset(5, "")}
    assert [(one.API_VERSION, one.groups[0].member_id, one.groups[0].member_epoch) for one in broker.asked] == [
        (9, "m", 7),
        (9, "m", 8),
    ]


def test_an_answer_about_another_group_is_malformed():
    with pytest.raises(ProtocolError, match="without group g"):
        Membership().offsets(ScriptedBroker(10, groups=("other",))).fetch([A0])


def test_a_consumer_that_is_no_member_commits_as_in_other_groups():
    broker = ScriptedBroker(7)
    offsets = OffsetCoordinator(broker, "g", lambda: NO_MEMBER, CommitMembership(lambda *_: False, lambda: IDS))
    assert offsets.commit(unmarked({A0: 5})).accepted == {A0}
    assert [(one.API_VERSION, one.generation_id_or_member_epoch) for one in broker.asked] == [(7, -1)]
