"""What to write instead of an option of Spark's own Kafka source that has no meaning here, or another name.

Options that both sources have under one name are not listed. ``docs/spark.md`` has the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping

INSTEAD: Mapping[str, str] = {
    "kafka.bootstrap.servers": (
        "is not used: this source finds the brokers in ZooKeeper; give zookeeper.connect (host:port[,...][/chroot]) "
        "and group.id instead"
    ),
    "assign": (
        "cannot be used: the group assigns the partitions; name topics with subscribe or subscribePattern, and bound a "
        "batch read with startingOffsets and endingOffsets"
    ),
    "kafka.group.id": "is not an option of this source: write group.id; members of one group share its partitions",
    "groupIdPrefix": "cannot be used: this source joins the group that you name; write group.id",
    "kafkaConsumer.pollTimeoutMs": "is not an option of this source: write socket.timeout.ms",
    "fetchOffset.numRetries": (
        "cannot be used: offsets are asked for until rebalance.max.retries x rebalance.backoff.ms is over"
    ),
    "fetchOffset.retryIntervalMs": "is not an option of this source: write refresh.leader.backoff.ms",
    "asyncProgressTrackingEnabled": (
        "cannot be used: the group's offsets follow the checkpoint, which must be written before they are"
    ),
    "asyncProgressTrackingCheckpointIntervalMs": "cannot be used: see asyncProgressTrackingEnabled",
    "kafka.auto.offset.reset": "is not an option of this source: write startingOffsets, or auto.offset.reset",
    "kafka.enable.auto.commit": "cannot be used: the group's offsets follow the checkpoint, batch by batch",
    "kafka.key.deserializer": "cannot be used: the column key is binary; cast it",
    "kafka.value.deserializer": "cannot be used: the column value is binary; cast it",
    "kafka.interceptor.classes": "cannot be used: executors run no code of Kafka's clients",
    "kafka.session.timeout.ms": "is not an option of this source: write zookeeper.session.timeout.ms",
    "kafka.max.poll.records": "is not an option of this source: write maxOffsetsPerTrigger",
    "kafka.max.partition.fetch.bytes": "is not an option of this source: write fetch.message.max.bytes",
    "kafka.fetch.max.wait.ms": "is not an option of this source: write fetch.wait.max.ms",
    "kafka.request.timeout.ms": "is not an option of this source: write socket.timeout.ms",
    "kafka.receive.buffer.bytes": "is not an option of this source: write socket.receive.buffer.bytes",
}
"""Option, in the spelling of Spark's documentation, and the rest of a sentence about it."""

_BY_LOWER_CASE = {name.lower(): (name, answer) for name, answer in INSTEAD.items()}


def answer(name: str, value: str) -> str | None:
    """A sentence for an option of Spark's Kafka source; None if this module knows nothing of it.

    Args:
        name: in any case.
        value: repeated where it helps to find the line of the job.
    """
    known = _BY_LOWER_CASE.get(name.lower())
    if known is None:
        return None
    spelled, rest = known
    return f"{spelled} ({value}) {rest}" if spelled == "kafka.bootstrap.servers" else f"{spelled} {rest}"
