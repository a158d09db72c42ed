"""How requests to ZooKeeper are divided."""

from zkconsumer.zookeeper.rules.requestparts import MOST_BYTES, in_parts


def sizes(items, *arguments):
    return [len(part) for part in in_parts(items, *arguments)]


def test_items_are_divided_by_number_and_by_size():
    assert sizes(range(9000), 4000, lambda _: 1) == [4000, 4000, 1000]
    assert sizes(range(4), 4000, lambda _: MOST_BYTES // 2) == [2, 2]
    assert sizes(range(3), 4000, lambda _: MOST_BYTES // 2 + 1) == [1, 1, 1]
    assert sizes([], 4000, len) == []


def test_an_item_that_is_too_large_is_alone():
    assert sizes([1, MOST_BYTES + 1, 1], 4000, int) == [1, 1, 1]


def test_items_that_belong_together_are_not_parted():
    assert list(in_parts(range(5), 3, lambda _: 1, 2)) == [[0, 1], [2, 3, 4]]
    assert sizes(range(4), 4000, lambda _: MOST_BYTES // 3, 2) == [2, 2]
