"""The executor side: one task reads its ranges from the brokers and passes Arrow batches to Spark.

A task joins no group and does not use ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from zkconsumer.decode.arrow import batch_of
from zkconsumer.errors import OffsetOutOfRange
from zkconsumer.ranges.rangereading import RangeReading
from zkconsumer.spark import worker
from zkconsumer.spark.rules.microbatch import RangePartition
from zkconsumer.spark.rules.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


def read_ranges(options: SourceOptions, task: RangePartition, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Fetch the ranges of one task, as batches with these columns in this order.

    Raises:
        OffsetOutOfRange: offsets are not in the log any more and ``failOnDataLoss`` is true.
        ZkConsumerError: as :meth:`.RangeReading.records`.
    """
    worker.acknowledge_quickly()
    try:
        with worker.connections.borrowed(options.config) as lent:
            reading = RangeReading(
                lent,
                {piece.topic_partition: piece.span for piece in task.ranges},
                task.brokers,
                task.epochs,
                columns=columns,
                decoders=worker.decoders,
                reader=f"group {options.config.group_id}",
                fail_on_data_loss=options.fail_on_data_loss,
            )
            with closing(reading):
                for records in reading.records():
                    yield batch_of(records)
    except OffsetOutOfRange as error:
        if options.fail_on_data_loss:
            raise OffsetOutOfRange(f"{error}. failOnDataLoss=false skips them") from error
        raise
    finally:
        worker.acknowledge_quickly()
        worker.collect_less()
