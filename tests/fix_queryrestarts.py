"""A query of the Spark source through random restarts, beside a plain model of what it has to read next.

The model knows what happened, not how the source recognises it: checkpoint, marks and identities are the source's own
means. Each span that the source plans has to begin exactly where the model expects it, so nothing is skipped, and what
is read again is read again by a rule. The world (brokers, group, source) is a subclass's.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from zkconsumer.model import TopicPartition
from zkconsumer.spark.offsets_json import decode_offset, initial_offset

NUMBERS = st.integers(0, 5)
SHARES = st.sets(NUMBERS, max_size=3)
LIMITS = st.none() | st.integers(1, 9)
FATES = ["finished"] * 4 + ["acknowledged", "not logged", "not run", "not finished"]
"""What becomes of a batch: "not logged" ends the source before Spark wrote the plan, "not run" before the rows were
read, "not finished" after that, before Spark wrote that they are."""


@dataclass
class Checkpoint:
    """Spark's: the logged offsets of batches, and how many of these batches are finished."""

    offsets: list[dict] = field(default_factory=list)
    finished: int = 0


@dataclass
class Log:
    """Offsets ``[begin, end)`` of one partition."""

    begin: int = 0
    end: int = 0


class QueryRestarts(RuleBasedStateMachine):
    """The model and the rules.

    Attributes:
        topics: of each topic that exists its identity, which a new topic of the same name does not share, and its
            number of partitions.
        logs: of each partition.
        due: of each partition the offset that the group has to read next. A partition that the query never read, and of
            which the group has no offset, is not in it: there the options decide.
        cut: partitions that became shorter without a trace, and that no query has looked at since.
    """

    names: ClassVar[list[str]] = ["t", "u"]

    def __init__(self):
        super().__init__()
        self.group = "g"
        self.topics = {}
        self.logs = {}
        self.checkpoint = Checkpoint()
        self.running = False
        self.due = {}
        self.highest_due = {}
        self.counts_at_first_plan = None
        self.cut = set()
        self.moved_since_plan = set()

    # -- the world --------------------------------------------------------------------------------------------------

    @abstractmethod
    def make_topic(self, name, sizes) -> str:
        """Create a topic with so many records in each partition; deletes one of this name first. Its identity."""

    @abstractmethod
    def grow_topic(self, name, count) -> None: ...

    @abstractmethod
    def append(self, partition, count) -> None: ...

    @abstractmethod
    def delete_before(self, partition, offset) -> None: ...

    @abstractmethod
    def stored(self) -> dict[TopicPartition, int]:
        """The group's offsets."""

    @abstractmethod
    def store(self, partition, offset) -> None:
        """Another client writes the group's offset."""

    @abstractmethod
    def delete_stored(self, partitions) -> None: ...

    @abstractmethod
    def rename_group(self, offsets) -> None:
        """The query's group is another one now, in which only these offsets are stored."""

    @abstractmethod
    def start_source(self, options, others) -> None:
        """Start the source. Another member owns about the partitions of these numbers."""

    @abstractmethod
    def rebalance_source(self, others) -> None: ...

    @abstractmethod
    def owned(self) -> list[TopicPartition]: ...

    @abstractmethod
    def prepare_available_now(self) -> None: ...

    @abstractmethod
    def latest_offset(self, start, limit) -> dict: ...

    @abstractmethod
    def read(self, start, end) -> None:
        """The tasks of a batch; fails where rows are missing."""

    @abstractmethod
    def acknowledge(self, offset) -> None: ...

    @abstractmethod
    def stop_source(self) -> None: ...

    @abstractmethod
    def kill_source(self) -> None: ...

    # -- the beginning ----------------------------------------------------------------------------------------------

    @initialize(
        starting=st.sampled_from(["group", "earliest", "latest"]),
        reset=st.sampled_from(["smallest", "largest"]),
        jvm_consumed=st.booleans(),
        version_1=st.booleans(),
        sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    )
    def begin(self, starting, reset, jvm_consumed, version_1, sizes):
        self.starting, self.reset = starting, reset
        self._make_topic(self.names[0], sizes)
        for partition, size in zip(self._all(), sizes, strict=True):
            if jvm_consumed:
                self._store(partition, size // 2)
        if version_1:
            first = self._all()[0]
            read = self.logs[first].end // 3
            self.checkpoint = Checkpoint([{"v": 1, "topics": {first.topic: {"0": [0, read]}}}], 1)
            self.counts_at_first_plan = {}
            self._store(first, read)

    # -- the cluster and other clients ------------------------------------------------------------------------------

    @rule(number=NUMBERS, count=st.integers(1, 9))
    def produce(self, number, count):
        partition = self._any(number)
        if partition not in self.cut:  # a log that was cut and has grown again before a look cannot be recognised
            self.append(partition, count)
            self.logs[partition].end += count

    @rule(number=NUMBERS, share=st.integers(1, 3))
    def retention(self, number, share):
        partition = self._any(number)
        log = self.logs[partition]
        log.begin += (log.end - log.begin) // share
        self.delete_before(partition, log.begin)
        if partition in self.due:
            self.due[partition] = max(self.due[partition], log.begin)

    @rule(topic=st.sampled_from([0, 1]), count=st.integers(1, 2))
    def create_or_grow(self, topic, count):
        name = self.names[topic]
        if name not in self.topics:
            self._make_topic(name, [0] * count)
        elif self.topics[name][1] + count <= 4:
            identity, before = self.topics[name]
            self.topics[name] = identity, before + count
            self.grow_topic(name, before + count)
            self.logs.update((p, Log()) for p in self._all() if p not in self.logs)
        else:
            return
        if self.running:
            self.rebalance_source(set())

    @rule(topic=st.sampled_from([0, 1]), size=st.integers(0, 30))
    def create_again(self, topic, size):
        name = self.names[topic]
        if name not in self.topics or self._last().known is None:
            return  # version 1 knows no identities
        known_to_query = name in self._last().known
        if known_to_query:
            self.counts_at_first_plan[name] = 0
        self._make_topic(name, [size] * self.topics[name][1])
        for partition in [p for p in self._all() if p.topic == name]:
            self.cut.discard(partition)
            if known_to_query:
                self.due[partition] = 0
            elif partition in self.due:  # the offset was another topic's, and nothing shows that
                self.due[partition] = self._in_log(partition, self.stored().get(partition, 0))
        if self.running:
            self.rebalance_source(set())

    @rule(number=NUMBERS, to=st.integers(0, 12))
    def another_writes_the_offset(self, number, to):
        """A JVM member that consumed and left, or an operator, forwards or backwards; also to where it is."""
        partition = self._any(number)
        if (self.running and partition in self.owned()) or self._is_recreated(partition):
            return
        log = self.logs[partition]
        self._store(partition, min(log.begin + to, log.end))

    @precondition(lambda self: not self.running)
    @rule(number=NUMBERS, everything=st.booleans())
    def offsets_are_deleted(self, number, everything):
        partitions = self._all() if everything else [self._any(number)]
        self.delete_stored(partitions)
        self._forget_stored(partitions)

    @precondition(lambda self: not self.running)
    @rule(copied=st.booleans())
    def the_group_is_renamed(self, copied):
        if copied and any(map(self._is_recreated, self._all())):
            return  # the copies would look as if they were the new topic's
        offsets = self.stored() if copied else {}
        self.group += "x"
        self.rename_group(offsets)
        if copied:
            for partition, offset in self.stored().items():  # another client wrote them
                self.due[partition] = self._in_log(partition, offset)
                self.moved_since_plan.add(partition)
        else:
            self._forget_stored(self._all())

    # -- the query --------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.running)
    @rule(others=SHARES)
    def start(self, others):
        options = {
            "group.id": self.group,
            "subscribe": ",".join(self.names),
            "startingOffsets": self.starting,
            "auto.offset.reset": self.reset,
            "failOnDataLoss": "false",
            "checkpointGroup": self._last().group or self.group,
        }
        self.start_source(options, others)
        self.running = True
        if self.checkpoint.finished < len(self.checkpoint.offsets):  # Spark repeats it first
            self.read(self._start(), self.checkpoint.offsets[-1])
            self._finish()

    @precondition(lambda self: self.running)
    @rule(limit=LIMITS, fate=st.sampled_from(FATES))
    def trigger(self, limit, fate):
        """The default trigger; with "acknowledged" also processingTime, whose next trigger is late."""
        self._batch(limit, fate)

    @precondition(lambda self: not self.running)
    @rule(others=SHARES, limit=LIMITS)
    def available_now(self, others, limit):
        self.start(others)
        self.prepare_available_now()
        targets = {p: self.logs[p].end for p in self.owned()}
        while self._batch(limit, "finished"):
            pass
        for partition, end in targets.items():
            assert self.due[partition] >= end, f"{partition} is not read to its target"
        self.stop()

    @precondition(lambda self: not self.running)
    @rule(others=SHARES)
    def once(self, others):
        self.start(others)
        self._batch(None, "finished")
        self.stop()

    @precondition(lambda self: self.running)
    @rule(others=SHARES)
    def rebalance(self, others):
        self.rebalance_source(others)

    @precondition(lambda self: self.running)
    @rule()
    def stop(self):
        self.stop_source()
        self.running = False

    @precondition(lambda self: self.running)
    @rule()
    def crash(self):
        self.kill_source()
        self.running = False

    @invariant()
    def what_is_stored_never_leads_what_was_read(self):
        for partition, offset in self.stored().items():
            assert offset <= self.highest_due.get(partition, 0), f"{partition} at {offset}"

    def teardown(self):
        if self.running:
            self.kill_source()

    # -- the model --------------------------------------------------------------------------------------------------

    def _batch(self, limit, fate):
        """One trigger; False if there was nothing to read."""
        start = self._start()
        end = self.latest_offset(start, limit)
        self.cut -= set(self.owned())
        self._note_highest()
        is_first = self.counts_at_first_plan is None
        if end == start:
            assert not is_first, "the first plan names every partition"
            for partition in self.owned():
                self._see(partition)
                assert self.due[partition] == self.logs[partition].end, f"{partition} is not read to its end"
            self._note_highest()
            return False
        planned = decode_offset(end)
        for partition in self.owned():
            if is_first:
                self.due[partition] = self._first_start(partition)
                assert planned.spans[partition].start == self.due[partition]
            if planned.spans[partition].size:
                self._see(partition)
                begin = max(planned.spans[partition].start, self.logs[partition].begin)
                assert begin == self.due[partition], f"{partition} {planned.spans[partition]}"
        if fate == "not logged":
            self.crash()
            return False
        self._log(planned, end, is_first)
        if fate != "not run":
            self.read(start, end)
        if fate in ("not run", "not finished"):
            self.crash()
            return False
        self._finish()
        if fate == "acknowledged":
            self.acknowledge(planned)
        return True

    def _log(self, planned, end, is_first):
        del self.checkpoint.offsets[self.checkpoint.finished :]
        self.checkpoint.offsets.append(end)
        self.moved_since_plan.clear()
        if is_first:
            self.counts_at_first_plan = {name: count for name, (_, count) in self.topics.items()}
        for partition in self.owned():
            self.due.setdefault(partition, planned.spans[partition].start)
        self._note_highest()

    def _finish(self):
        """The newest batch is finished: everything that it planned, and that exists, has been read."""
        self.checkpoint.finished = len(self.checkpoint.offsets)
        for partition, span in self._last().spans.items():
            if span.size and not self._is_recreated(partition) and partition not in self.moved_since_plan:
                self.due[partition] = self._in_log(partition, span.until)
        self._note_highest()

    def _see(self, partition):
        """A partition that neither the checkpoint nor the group knows starts where options specify, if it is old."""
        if partition not in self.due:
            log = self.logs[partition]
            is_old = partition.partition < (self.counts_at_first_plan or {}).get(partition.topic, 0)
            at_end = self.starting == "latest" or (self.starting == "group" and self.reset == "largest")
            self.due[partition] = log.end if is_old and at_end else log.begin

    def _first_start(self, partition):
        """Where the first plan of a query starts a partition."""
        log = self.logs[partition]
        start = {"earliest": log.begin, "latest": log.end}.get(self.starting, self.stored().get(partition))
        if start is None:
            start = log.begin if self.reset == "smallest" else log.end
        return self._in_log(partition, start)

    def _in_log(self, partition, offset):
        """The offset, or the end of the log that is nearest to it."""
        log = self.logs[partition]
        if offset > log.end:
            self.cut.add(partition)
        return min(max(offset, log.begin), log.end)

    def _make_topic(self, name, sizes):
        self.topics[name] = self.make_topic(name, sizes), len(sizes)
        self.logs.update((TopicPartition(name, number), Log(0, size)) for number, size in enumerate(sizes))

    def _store(self, partition, offset):
        self.store(partition, offset)
        self.due[partition] = offset
        self.moved_since_plan.add(partition)
        span = self._last().spans.get(partition)
        if self._last().known is None and span is not None and span.start == offset:
            self.due[partition] = span.until  # without marks it counts as the query's own commit that did not arrive
        self.highest_due[partition] = max(offset, self.highest_due.get(partition, 0))

    def _forget_stored(self, partitions):
        """Without the group's offset the checkpoint counts, also where another client had moved the offset since."""
        for partition in partitions:
            self.moved_since_plan.discard(partition)
            span = self._last().spans.get(partition)
            if span is None:
                self.due.pop(partition, None)
            elif not self._is_recreated(partition):
                self.due[partition] = self._in_log(partition, span.until)

    def _note_highest(self):
        for partition, due in self.due.items():
            self.highest_due[partition] = max(due, self.highest_due.get(partition, 0))

    def _is_recreated(self, partition):
        """True if the checkpoint knows another topic of this name."""
        known = (self._last().known or {}).get(partition.topic)
        return known is not None and known.identity != self.topics[partition.topic][0]

    def _start(self):
        done = self.checkpoint.finished
        return self.checkpoint.offsets[done - 1] if done else initial_offset(self.group)

    def _last(self):
        offsets = self.checkpoint.offsets
        return decode_offset(offsets[-1] if offsets else initial_offset(self.group))

    def _all(self):
        return [TopicPartition(name, n) for name, (_, count) in sorted(self.topics.items()) for n in range(count)]

    def _any(self, number):
        partitions = self._all()
        return partitions[number % len(partitions)]

    def _but(self, others):
        """The partitions that are left to the query where another member owns those of these numbers."""
        return [partition for number, partition in enumerate(self._all()) if number not in others]
