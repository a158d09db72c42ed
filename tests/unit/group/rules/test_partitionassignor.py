import pytest

from zkconsumer.errors import AssignorFailed
from zkconsumer.group.rules.partitionassignor import assign_partitions, user_data_of
from zkconsumer.model import TopicPartition

MEMBERS = {"a": {"t": 1}, "b": {"t": 2, "u": 1}}
PARTITIONS = {"t": (0, 1), "u": (0,)}
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Returning:
    name = "returning"

    def __init__(self, returned):
        self.returned = returned

    def assign(self, members, partitions, owned, user_data):
        self.got = members, partitions, owned, user_data
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


def assign(returned, members=MEMBERS, partitions=PARTITIONS):
    return assign_partitions(Returning(returned), members, partitions, {"a": {T0}, "gone": {T1}}, {"b": b"rack"})


def test_what_an_assignor_returns_is_used():
    assert assign({"b": [("t", 0), T1], "a": ()} | {"b": {T0, T1, U0}}) == {"a": frozenset(), "b": {T0, T1, U0}}


def test_members_may_be_absent_and_plain_tuples_are_enough():
    assert assign({"b": [("t", 0), ("t", 1), ("u", 0)]}) == {"a": frozenset(), "b": {T0, T1, U0}}


def test_an_assignor_gets_every_member_with_what_it_owns():
    asked = Returning({"b": [T0, T1, U0]})
    assign_partitions(asked, MEMBERS, PARTITIONS, {"a": {T0}, "gone": {T1}}, {"b": b"rack"})
    assert asked.got == (MEMBERS, PARTITIONS, {"a": {T0}, "b": frozenset()}, {"b": b"rack"})


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        ({"b": [T0, U0]}, ["t-1 is given to no member", "subscribed are a, b"]),
        ({"a": [T0], "b": [T0, T1, U0]}, ["t-0 is given twice: to a and to b"]),
        ({"b": [T0, T0, T1, U0]}, ["t-0 is given twice: to b and to b"]),
        ({"a": [U0], "b": [T0, T1]}, ["u-0 is given to a, which does not subscribe to u"]),
        ({"c": [T0], "b": [T1, U0]}, ["t-0 is given to c, which is no member"]),
        ({"b": [T0, T1, U0, TopicPartition("t", 7)]}, ["t-7 is given to b, and does not exist"]),
        ({}, ["t-0", "t-1", "u-0"]),
    ],
)
def test_a_wrong_assignment_names_partition_and_member(returned, named):
    with pytest.raises(AssignorFailed) as raised:
        assign(returned)
    assert [text for text in ["assignor returning", *named] if text not in str(raised.value)] == []


@pytest.mark.parametrize("returned", [None, [T0], {"a": T0}, {"a": [("t", "x")]}, {"a": [3]}, KeyError("rack")])
def test_an_exception_and_what_is_no_map_are_reported(returned):
    with pytest.raises(AssignorFailed, match=r"assignor returning failed to assign: .*Error"):
        assign(returned)


def test_topics_without_partitions_or_subscribers_need_no_member():
    assert assign({"a": [T0]}, {"a": {"t": 1, "missing": 1}}, {"t": (0,), "u": (0, 1)}) == {"a": {T0}}


class Writing(Returning):
    def user_data(self, topics):
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


def test_user_data_is_optional():
    assert user_data_of(Returning({}), {"t": 1}) == b""
    assert user_data_of(Writing(b"rack"), {"t": 1}) == b"rack"


@pytest.mark.parametrize("wrong", ["rack", None, b"x" * 65_537, ValueError("no rack")])
def test_user_data_has_to_be_a_few_bytes(wrong):
    with pytest.raises(AssignorFailed, match=r"user_data\(\) of assignor returning"):
        user_data_of(Writing(wrong), {"t": 1})
