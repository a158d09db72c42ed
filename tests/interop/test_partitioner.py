"""The golden values of the partitioner are the JVM's. If their file is missing, it is written."""

import json
import random
from functools import cache
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "partitioner.json"
COUNTS = (1, 2, 3, 8, 12, 50, 1000)


def keys():
    draw = random.Random(0)
    texts = ("", "21", "foobar", "a-little-bit-long-string", "kafka", "\N{GREEK SMALL LETTER LAMDA}")
    fixed = [text.encode() for text in texts]
    return [*fixed, bytes(range(256)), *(draw.randbytes(length) for length in range(1, 34) for _ in range(2))]


class JvmPartitioner:
    """The DefaultPartitioner of the JVM's own client."""

    def __init__(self, gateway):
        self._gateway = gateway
        self.kafka = gateway.jvm.org.apache.kafka
        self.node = self.kafka.common.Node(0, "localhost", 9092)
        self.partitioner = self.kafka.clients.producer.internals.DefaultPartitioner()

    def partition(self, key, partitions, available):
        return self.partitioner.partition("t", key, key, None, None, self._cluster(partitions, tuple(available)))

    @cache  # noqa: B019 - one partitioner in a process; each takes a second, and a minute on a busy machine
    def _cluster(self, partitions, available):
        nothing = self._gateway.new_array(self.kafka.common.Node, 0)
        infos = [
            self.kafka.common.PartitionInfo("t", number, self.node if number in available else None, nothing, nothing)
            for number in range(partitions)
        ]
        return self.kafka.common.Cluster("c", [self.node], infos, set(), set())

    def answers(self):
        by_key = [
            {
                "key": key.hex(),
                "murmur2": self.kafka.common.utils.Utils.murmur2(key),
                "partition": {str(n): self.partition(key, n, available=(0,)) for n in COUNTS},
            }
            for key in keys()
        ]
        turns = [
            {
                "partitions": partitions,
                "available": available,
                "chosen": [self.partition(None, partitions, available) for _ in range(12)],
            }
            for partitions, available in ((1, [0]), (5, [0, 1, 2, 3, 4]), (8, [1, 2, 5]), (4, []), (3, [2]))
        ]
        return {"by_key": by_key, "turns": turns}


def test_golden_values(jvm):
    answers = JvmPartitioner(jvm.gateway).answers()
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(answers, separators=(",", ":")) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert golden["by_key"] == answers["by_key"]
    # The turns begin anywhere, and one counter serves all these cases.
    for stored, fresh in zip(golden["turns"], answers["turns"], strict=True):
        assert set(stored["chosen"]) == set(fresh["chosen"])
