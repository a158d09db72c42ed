"""Two queries of one group, each stopped, killed and started again at random: together they deliver every record."""

import random
import time
from collections import Counter

import pytest

from tests.fixtures.brokergroup import ObservedBrokerGroup
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.sourceprocess import SourceProcess
from tests.fixtures.spark import LONG_SESSION, ObservedGroup
from tests.fixtures.waiting import eventually
from zkconsumer.spark.rules.offsetsjson import initial_offset

PARTITIONS = 6
STEPS = 40
PATIENCE_S = 120.0


class Query:
    """Spark's part of one query: its checkpoint, and the order of the calls."""

    def __init__(self, group: ObservedGroup | ObservedBrokerGroup, topic: str, starting: str = "earliest") -> None:
        self.delivered: Counter[tuple[int, int]] = Counter()
        self.source: SourceProcess | None = None
        self._group = group
        self._offsets = [initial_offset(group.group)]
        self._finished = 1
        self._options = {
            **group.connection,
            "group.id": group.group,
            "subscribe": topic,
            "startingOffsets": starting,
            "numStreams": "1",
            "rebalance.backoff.ms": "300",
            "rebalance.max.retries": "100",
            **LONG_SESSION,
        }

    def start(self) -> None:
        self.source = SourceProcess(self._options)
        self.source.ask("join")
        if self._finished < len(self._offsets):
            self._read()

    def trigger(self, fate: str = "finished") -> bool:
        """Run one batch, up to the step that ``fate`` specifies; False if there was nothing to read."""
        start = self._offsets[self._finished - 1]
        end = self.source.ask("latest_offset", start, 20)
        if end == start:
            return False
        if fate != "not logged":
            del self._offsets[self._finished :]
            self._offsets.append(end)
            if fate != "not read":
                self._read(finish=fate != "not finished")
        if fate != "finished":
            self.kill()
        return True

    def stop(self) -> None:
        self.source.stop()
        self.source = None

    def kill(self) -> None:
        names = {self.source.ask("consumer_id"), self.source.ask("identity")}
        self.source.kill()
        self.source = None
        eventually(lambda: not names & set(self._group.ids()))

    def _read(self, *, finish: bool = True) -> None:
        for _, partition, offset, value in self.source.read(self._offsets[-2], self._offsets[-1]):
            assert value == b"%d" % offset
            self.delivered[partition, offset] += 1
        if finish:
            self._finished = len(self._offsets)


def take_a_step(choose: random.Random, query: Query) -> None:
    if query.source is None:
        query.start()
        return
    action = choose.choice(["trigger"] * 6 + ["stop", "kill", "not logged", "not read", "not finished"])
    if action in ("stop", "kill"):
        getattr(query, action)()
    else:
        query.trigger("finished" if action == "trigger" else action)


@pytest.mark.parametrize(
    ("protocol", "seed"),
    [*(("zookeeper", seed) for seed in range(4)), ("kafka", 0), ("kafka", 1)],
    indirect=["protocol"],
)
def test_two_queries_of_a_group_deliver_every_record(group, topic_factory, produce, seed):
    choose = random.Random(seed)
    topic = topic_factory(partitions=PARTITIONS)
    ends = Counter()

    def produce_some():
        partition = choose.randrange(PARTITIONS)
        count = choose.randint(1, 30)
        numbers = range(ends[partition], ends[partition] + count)
        produce(topic, [{"value": b"%d" % number, "partition": partition} for number in numbers])
        ends[partition] += count

    def missing():
        delivered = queries[0].delivered + queries[1].delivered
        return {(p, n) for p, end in ends.items() for n in range(end)} - delivered.keys()

    queries = [Query(group, topic) for _ in range(2)]
    try:
        for _ in range(STEPS):
            produce_some()
            take_a_step(choose, choose.choice(queries))
        for query in queries:
            if query.source is None:
                query.start()
        # A trigger may have nothing to read because of a rebalance, or of a broker that is away for a moment.
        deadline = time.monotonic() + PATIENCE_S
        while missing() and time.monotonic() < deadline:
            for query in queries:
                query.trigger()
    finally:
        for query in queries:
            if query.source is not None:
                query.stop()
    assert not missing(), f"with seed {seed}"


@pytest.mark.parametrize("starting", ["earliest", "group"])
def test_a_new_query_that_overrides_committed_offsets_warns(group, unique_name, topic_factory, produce, starting):
    topic = topic_factory(partitions=2)
    for partition in range(2):
        produce(topic, [{"value": b"%d" % number, "partition": partition} for number in range(10)])
    first = Query(group, topic)
    second = Query(group, topic, starting)
    try:
        first.start()
        # The trigger after the last batch commits it.
        eventually(lambda: not first.trigger() and group.offsets(topic) == {0: 10, 1: 10}, PATIENCE_S)
        member = first.source.ask("consumer_id")
        second.start()
        eventually(second.trigger, PATIENCE_S)  # not before the end of the rebalance
        (owned,) = second.source.ask("share")[0]
        warnings = [text for text in second.source.ask("warnings") if "overrides them" in text]
    finally:
        for query in (first, second):
            if query.source is not None:
                query.stop()
    assert bool(second.delivered) == bool(warnings) == (starting == "earliest")
    for text in warnings:
        for named in (
            unique_name,
            member,
            "startingOffsets=earliest",
            f"{topic}-{owned[1]} starts at 0, committed 10",
            "startingOffsets=group",
        ):
            assert named in text


def test_a_failed_last_commit_is_logged_with_its_consequences(private_sandbox, unique_name):
    box = private_sandbox(tick_time_ms=2000)
    topic = Topics(box.bootstrap_servers).create(unique_name)
    produce_records(box.bootstrap_servers, topic, [b"%d" % number for number in range(10)])
    options = {"zookeeper.connect": box.zookeeper_connect, "group.id": "g", "subscribe": topic}
    source = SourceProcess({**options, "startingOffsets": "earliest"})
    try:
        start = initial_offset("g")
        while (end := source.ask("latest_offset", start, None)) == start:
            pass  # it waits for a leader
        assert len(source.read(start, end)) == 10
        box.zookeeper.stop()
        assert source.ask("latest_offset", end, None) == end, "the batch is finished, but cannot be committed"
        source.ask("stop")
        (text,) = [text for text in source.ask("warnings") if "did not store" in text]
    finally:
        source.stop()
    assert f"{topic}-0 position 10" in text
    assert "this query continues at its checkpoint" in text
