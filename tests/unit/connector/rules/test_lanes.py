import pytest

from zkconsumer.connector.rules.lanes import Lanes, lane_by
from zkconsumer.errors import UsageError
from zkconsumer.model import Message, TopicPartition


def lanes(*items):
    made = Lanes()
    for item in items:
        made.put(item[0], item)
    return made


def message(offset, key, partition=0):
    return Message("t", partition, offset, 0, 0, key, b"")


def test_items_of_one_lane_come_one_by_one():
    made = lanes("a1", "a2", "b1")
    assert [made.take(), made.take(), made.take()] == [("a", "a1"), ("b", "b1"), None]
    made.finish("a")
    assert made.take() == ("a", "a2")
    made.put("b", "b2")
    assert made.take() is None
    made.finish("b")
    assert made.take() == ("b", "b2")


def test_lanes_take_turns():
    made, order = lanes("a1", "a2", "a3", "b1", "b2"), []
    while (taken := made.take()) is not None:
        order.append(taken[1])
        made.finish(taken[0])
    assert order == ["a1", "b1", "a2", "b2", "a3"]


def test_its_length_is_what_waits_or_is_worked_on():
    made = lanes("a1", "a2")
    lane, _ = made.take()
    assert len(made) == 2
    made.finish(lane)
    assert len(made) == 1
    made.take()
    made.finish(lane)
    assert (len(made), made.take()) == (0, None)


def test_nothing_is_taken_of_a_held_partition_and_lost_ones_are_dropped():
    made = Lanes()
    for lane in [("t", 0, b"j"), ("t", 0, b"k"), ("t", 1, b"j"), ("t", 2, b"j"), ("t", 2, b"j")]:
        made.put(lane, lane)
    assert made.take() == (("t", 0, b"j"),) * 2
    made.hold([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert made.is_busy()
    assert made.take() == (("t", 2, b"j"),) * 2
    assert made.take() is None, "one of the lane is worked on; the others are held"
    made.finish(("t", 0, b"j"))
    assert not made.is_busy(), "what is worked on is not held"
    made.resume([TopicPartition("t", 1)])
    assert len(made) == 3
    assert made.take() == (("t", 1, b"j"),) * 2
    made.finish(("t", 2, b"j"))
    assert made.take() == (("t", 2, b"j"),) * 2


def test_nothing_is_taken_of_what_may_not_be_begun():
    made = Lanes()
    for number in range(2):
        made.put(("t", number), number)
    assert made.take(lambda _: False) is None
    assert made.is_waiting()
    assert made.take(lambda number: number == 1) == (("t", 1), 1)
    made.hold([TopicPartition("t", 0)])
    assert not made.is_waiting()


def test_a_partition_is_asked_once_and_what_may_be_begun_of_another_is_found():
    made, asked = Lanes(), []
    for number, key in ((0, b"a"), (0, b"b"), (1, b"a")):
        made.put(("t", number, key), (number, key))
    taken = made.take(lambda item: asked.append(item) or item[0] == 1)
    assert (taken[1], asked) == ((1, b"a"), [(0, b"a"), (1, b"a")])
    assert made.take()[1] == (0, b"a")


def test_what_is_put_back_comes_first_and_what_is_given_up_never():
    made = lanes("a1", "a2", "b1")
    lane, item = made.take()
    made.put_back(lane, item)
    made.finish(lane)
    assert (len(made), made.take(), made.take()) == (3, ("b", "b1"), ("a", "a1"))
    made.give_up("a")
    made.finish("b")
    assert made.take() is None


def test_a_lane_that_is_worked_on_can_be_dropped():
    made = Lanes()
    for number in range(3):
        made.put(("t", 0), number)
    lane, _ = made.take()
    made.hold([TopicPartition("t", 0)])
    made.resume([])
    assert (len(made), made.take()) == (1, None)
    made.put(("t", 0), 3)
    assert made.take() is None
    made.finish(lane)
    assert made.take() == (lane, 3)


def test_a_lane_is_a_partition_or_a_key():
    same_key = message(0, b"k"), message(1, b"k")
    without_key = message(2, None), message(3, None)
    by_partition, by_key = lane_by("partition"), lane_by("key")
    assert len({by_partition(one) for one in (*same_key, *without_key)}) == 1
    assert by_partition(message(0, b"k")) != by_partition(message(0, b"k", partition=1))
    assert len({by_key(one) for one in same_key}) == 1
    assert len({by_key(one) for one in (*same_key, *without_key)}) == 3
    with pytest.raises(UsageError, match="partition, key"):
        lane_by("topic")
