"""``zkconsumer.read``: the records of a topic between two positions, without a group."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zkconsumer.assembly.clusterchoice import read_cluster
from zkconsumer.cluster.brokercatalog import require_described
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.buffers import ALL_COLUMNS
from zkconsumer.errors import OffsetOutOfRange, UsageError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges.decoderpool import DecoderPool
from zkconsumer.ranges.leaderconnections import LeaderConnections
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rangeplan import plan_ranges
from zkconsumer.ranges.rangereading import RangeReading
from zkconsumer.ranges.rules.rangepositions import Loss, Where, describe_losses, positions_of_topic
from zkconsumer.ranges.rules.spans import Span

if TYPE_CHECKING:
    import pyarrow as pa

    from zkconsumer.decode.records import Records

T = TypeVar("T")


def read(
    topic: str,
    config: ConsumerConfig,
    *,
    start: Where = "earliest",
    end: Where = "latest",
    columns: Sequence[str] | None = None,
) -> pa.RecordBatchReader:
    """Read the records of a topic between two positions as Arrow batches, without a group.

    ::

        config = ConsumerConfig.without_group(bootstrap_servers="h1:9092")
        table = polars.from_arrow(zkconsumer.read("clicks", config, start=datetime(2026, 11, 1, tzinfo=UTC)))

    The end is fixed at the call: records that are written later are not read, and the reader ends. The amount that is
    fetched ahead is bounded, so a topic may be larger than the memory. A reader that is not read to its end fetches
    until no reference to it is left, since Arrow does not pass its ``close`` on. With
    ``isolation.level=read_committed`` the end is the first record of an open transaction.

    Args:
        topic: its name.
        config: where the cluster is, and how brokers are reached; one of a consumer, or
            :meth:`.ConsumerConfig.without_group`. The group's offsets are neither read nor written.
        start: where to start: ``earliest``, ``latest``, a time, or offsets of the partitions to read, by number.
        end: where to end, in the same forms; an offset is the one after the last record.
        columns: names of columns, in the order of the batches; None for all: key, value, topic, partition, offset,
            timestamp, timestampType, headers.

    Returns:
        A reader of batches, each with records of one partition, in the order of offsets within a partition. Its
        methods raise a ZkConsumerError, such as OffsetOutOfRange if the log has lost records of the range since the
        call. polars and DuckDB, which read through Arrow's C interface, raise an error of their own with the same text.

    Raises:
        UsageError: the topic, a partition or a column does not exist, or a position is none.
        OffsetOutOfRange: a log does not have a start or an end that is given as an offset.
        LeaderUnknown: a partition has no leader, so its end is unknown.
        TopicUnreadable: the topic is not described, or brokers refuse to serve it, for example because a permission is
            missing.
        ZkConsumerError: ZooKeeper or the brokers cannot be reached.
    """
    import pyarrow as pa

    from zkconsumer.decode.arrow import batch_of
    from zkconsumer.decode.schema import schema_of

    names = ALL_COLUMNS if columns is None else tuple(columns)
    if not names or len(set(names)) < len(names) or not set(names) <= set(ALL_COLUMNS):
        raise UsageError(
            f"columns must be some of {', '.join(ALL_COLUMNS)}, each once, not {', '.join(names) or 'none'}"
        )
    plan = plan_read(topic, config, start, end)
    schema = schema_of(names)
    batches = _Batches(map(batch_of, plan.records(names)), pa.RecordBatch.from_pylist([], schema))
    return pa.RecordBatchReader.from_batches(schema, batches)


class _Batches(Iterator[T]):
    """Items, or one that stands for none; polars reads no schema from a reader without a batch.

    It raises again what it has raised: a generator would end there, which a second call would take for the end.
    """

    def __init__(self, items: Iterator[T], nothing: T) -> None:
        self._items = items
        self._nothing: T | None = nothing
        self._error: BaseException | None = None

    def __next__(self) -> T:
        if self._error is not None:
            raise self._error
        nothing, self._nothing = self._nothing, None
        try:
            return next(self._items)
        except StopIteration:
            if nothing is None:
                raise
            return nothing
        except BaseException as error:
            self._error = error
            raise


class TopicRead(NamedTuple):
    """A read of a topic.

    Attributes:
        topic: its name.
        config: where the cluster is, and how brokers are reached.
        spans: the offsets to read of each partition.
        brokers: the brokers to ask for leaders.
        epochs: the leader epoch in whose log the end of each range was seen, as far as known.
    """

    topic: str
    config: ConsumerConfig
    spans: Mapping[TopicPartition, Span]
    brokers: tuple[Broker, ...]
    epochs: Mapping[TopicPartition, int]

    def records(self, columns: tuple[str, ...] = ALL_COLUMNS) -> Generator[Records]:
        """The records with these columns; raises as :meth:`.RangeReading.records`."""
        with closing(LeaderConnections(self.config)) as connections:
            reading = RangeReading(
                connections,
                {partition: span for partition, span in self.spans.items() if span.size},
                self.brokers,
                self.epochs,
                columns=columns,
                decoders=DecoderPool(),
                reader=_reader(self.topic),
                fail_on_data_loss=True,
            )
            with closing(reading):
                yield from reading.records()


def plan_read(topic: str, config: ConsumerConfig, start: Where, end: Where, partition: int | None = None) -> TopicRead:
    """Find the offsets to read; the arguments and errors are those of :func:`read`. ``partition``: the only one."""
    cluster = read_cluster(config, [topic])
    with closing(LogEnds(config, lambda: cluster.brokers, _reader(topic))) as ends:
        described = cluster.described.get(topic)
        if described is None:
            require_described(config, cluster.brokers, cluster.undescribed)
            servers = config.bootstrap_servers or config.zookeeper_connect
            raise UsageError(f"topic {topic} does not exist in the cluster of {servers}")
        starts, given_ends = positions_of_topic(topic, described.partitions, start, end, partition)
        spans = plan_ranges(ends, starts, given_ends, _refuse_losses)
        epochs = ends.epochs({partition: span.until for partition, span in spans.items()})
    return TopicRead(topic, config, spans, cluster.brokers, epochs)


def _reader(topic: str) -> str:
    return f"read of topic {topic}"


def _refuse_losses(lost: Mapping[TopicPartition, Loss]) -> None:
    if lost:
        raise OffsetOutOfRange(f"the start is not in the log: {describe_losses(lost)}. Check the retention")
