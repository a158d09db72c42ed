"""The partitioner against the JVM's own choices; tests/interop/test_partitioner.py made and checks them."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zkconsumer import DefaultPartitioner
from zkconsumer.errors import UsageError
from zkconsumer.java.producerpartitioner import murmur2

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "partitioner.json").read_text())


def test_keys_hash_as_in_the_jvm():
    assert len(GOLDEN["by_key"]) == 73
    for vector in GOLDEN["by_key"]:
        assert murmur2(bytes.fromhex(vector["key"])) == vector["murmur2"]


def test_keys_go_where_the_jvm_puts_them_available_or_not():
    partitioner = DefaultPartitioner()
    for vector in GOLDEN["by_key"]:
        key = bytes.fromhex(vector["key"])
        for partitions, chosen in vector["partition"].items():
            assert partitioner.partition("t", key, range(int(partitions)), [0]) == chosen


@pytest.mark.parametrize("case", GOLDEN["turns"], ids=lambda case: f"{case['partitions']}-{len(case['available'])}")
def test_records_without_a_key_take_turns_as_in_the_jvm(case):
    everyone = range(case["partitions"])
    choice = case["available"] or list(everyone)
    partitioner = DefaultPartitioner(lambda: choice.index(case["chosen"][0]))
    assert [partitioner.partition("t", None, everyone, case["available"]) for _ in range(12)] == case["chosen"]


def test_each_topic_has_its_turns_and_begins_anywhere():
    starts = iter([6, 0xFFFFFFFE, 2])
    partitioner = DefaultPartitioner(lambda: next(starts))

    def three(topic):
        return [partitioner.partition(topic, None, range(4), range(4)) for _ in range(3)]

    assert three("a") == [2, 3, 0]
    assert three("b") == [2, 3, 0]  # the sign bit is dropped, also when the counter overflows
    assert three("a") == [1, 2, 3]
    assert len({DefaultPartitioner().partition("t", None, range(1000), range(1000)) for _ in range(10)}) > 1


def test_threads_share_the_turns():
    partitioner = DefaultPartitioner()
    with ThreadPoolExecutor(4) as pool:
        chosen = Counter(pool.map(lambda _: partitioner.partition("t", None, range(4), range(4)), range(4000)))
    assert chosen == dict.fromkeys(range(4), 1000)


def test_an_explicit_partition_decides():
    partitioner = DefaultPartitioner()
    assert partitioner.partition("t", b"key", range(4), [], explicit=3) == 3
    with pytest.raises(UsageError, match="4 partitions"):
        partitioner.partition("t", b"key", range(4), range(4), explicit=4)
    with pytest.raises(UsageError, match="exists"):
        partitioner.partition("t", None, [], [])
