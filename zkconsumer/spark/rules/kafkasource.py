"""Replacements for options of Spark's own Kafka source that have another name, or no meaning, in this source.

Options that both sources have under one name are not listed, nor those whose other name ``RENAMED`` of the
configuration has. ``docs/spark.md`` has the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping

_TOKENS = (
    "executors run no code of Kafka's clients; set sasl.oauthbearer.token.provider=module:function, a function in "
    "Python that returns the token"
)

INSTEAD: Mapping[str, str] = {
    "kafka.bootstrap.servers": (
        "is not an option of this source, which finds the brokers in ZooKeeper: set zookeeper.connect "
        "(host:port[,...][/chroot]) and group.id instead, and bootstrap.servers for brokers without ZooKeeper; with "
        "group.protocol=kafka bootstrap.servers is enough"
    ),
    "kafka.group.id": "is not an option of this source: use group.id; members of one group share its partitions",
    "groupIdPrefix": "cannot be used: this source joins the specified group; set group.id",
    "kafkaConsumer.pollTimeoutMs": "is not an option of this source: use socket.timeout.ms",
    "fetchOffset.numRetries": (
        "cannot be used: offsets are requested until rebalance.max.retries x rebalance.backoff.ms have passed"
    ),
    "fetchOffset.retryIntervalMs": "is not an option of this source: use refresh.leader.backoff.ms",
    "asyncProgressTrackingEnabled": (
        "cannot be used: the group's offsets follow the checkpoint, which must be written first"
    ),
    "asyncProgressTrackingCheckpointIntervalMs": "cannot be used: see asyncProgressTrackingEnabled",
    "kafka.auto.offset.reset": "is not an option of this source: use startingOffsets, or auto.offset.reset",
    "kafka.enable.auto.commit": "cannot be used: the group's offsets follow the checkpoint, batch by batch",
    "kafka.key.deserializer": "cannot be used: the column key is binary; cast it",
    "kafka.value.deserializer": "cannot be used: the column value is binary; cast it",
    "kafka.interceptor.classes": "cannot be used: executors run no code of Kafka's clients",
    "kafka.session.timeout.ms": (
        "is not an option of this source: use zookeeper.session.timeout.ms, or session.timeout.ms with "
        "group.protocol=kafka"
    ),
    "kafka.max.poll.records": "is not an option of this source: use maxOffsetsPerTrigger",
    "kafka.client.rack": "is not an option of this source: use client.rack, which holds for all executors",
    "kafka.sasl.login.callback.handler.class": "cannot be used: " + _TOKENS,
    "kafka.sasl.oauthbearer.token.endpoint.url": "cannot be used: " + _TOKENS,
    "kafka.ssl.truststore.certificates": "cannot be used: write the certificates to a file, and set ssl.ca.location",
    "kafka.ssl.keystore.certificate.chain": (
        "cannot be used: write the certificates to a file, and set ssl.certificate.location"
    ),
    "kafka.ssl.keystore.key": "cannot be used: write the key to a file, and set ssl.key.location",
}
"""Option, in the spelling of Spark's documentation, and the predicate of the sentence about it."""

_BY_LOWER_CASE = {name.lower(): (name, answer) for name, answer in INSTEAD.items()}


def answer(name: str, value: str) -> str | None:
    """A sentence about an option of Spark's Kafka source; None if the option is not listed here.

    Args:
        name: name of the option, in any case.
        value: value of the option, repeated in the sentence if that helps to find the line in the job.
    """
    known = _BY_LOWER_CASE.get(name.lower())
    if known is None:
        return None
    spelled, sentence = known
    return f"{spelled} ({value}) {sentence}" if spelled == "kafka.bootstrap.servers" else f"{spelled} {sentence}"
