"""The next client's configuration, from the properties of a JVM consumer.

What becomes of each property is in ``operate/migrate/rules/nextproperties.py``; here is the whole file, with the lines
that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zkconsumer.config.consumerconfig import PROPERTIES, ConsumerConfig
from zkconsumer.config.consumerproperties import RENAMED
from zkconsumer.config.propertydef import parse
from zkconsumer.errors import ConfigError
from zkconsumer.operate.migrate.rules.nextproperties import (
    NO_GROUP,
    RULES,
    ClientTarget,
    Given,
    NextLine,
    assignor,
    connection,
    internal_topics,
    offset_reset,
    plain,
)

_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_LIBRDKAFKA_LIMITS: Final = {
    "auto.commit.interval.ms": (0, 86_400_000),
    "fetch.max.bytes": (1_000_000, 2_147_483_135),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.wait.max.ms": (0, 300_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "session.timeout.ms": (1, 300_000),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, 300_000),
    "topic.metadata.refresh.fast.interval.ms": (1, 60_000),
    "topic.metadata.refresh.interval.ms": (-1, 3_600_000),
}
"""Least and largest values that librdkafka accepts.

The least fetch.max.bytes is its default of message.max.bytes, the longest session its default of max.poll.interval.ms.
"""


def next_config(properties: Given, target: ClientTarget, bootstrap_servers: str | None = None) -> tuple[NextLine, ...]:
    """The lines of the next client's configuration: those of the file in its order, then those that it lacks.

    Args:
        properties: names and values of the file.
        target: ``java`` (KafkaConsumer), ``confluent`` (librdkafka and its bindings), ``spark`` (options of
            ``format("kafka")``) or ``mm2`` (MirrorMaker 2, from the consumer properties of a MirrorMaker 1).
        bootstrap_servers: overrides the file's ``bootstrap.servers``.

    Raises:
        ConfigError: values that the JVM consumer refuses, with every violation.
    """
    _refuse_illegal(properties)
    given = {name: value.strip() for name, value in properties.items()}
    if bootstrap_servers is not None:
        given["bootstrap.servers"] = bootstrap_servers
    lines = [_line(target, name, value, given) for name, value in given.items()]
    return (*lines, *_lines_for_defaults(target, given))


def _refuse_illegal(properties: Given) -> None:
    violations = []
    for row in PROPERTIES.values():
        if row.name in properties:
            try:
                parse(row, properties[row.name])
            except ValueError as error:
                violations.append(f"{row.name} {error}")
    if violations:
        raise ConfigError(violations)


def _line(target: ClientTarget, name: str, value: str, given: Given) -> NextLine:
    rule = RULES.get(name)
    if rule is not None:
        line = rule(target, value, given)._replace(name=name)
        return _within_limits(line) if target == "confluent" else line
    row = PROPERTIES.get(name.replace(".", "_"))
    if row is not None and row.name == name:
        return NextLine(name, note="no successor: only zkconsumer has it")
    renamed = RENAMED.get(name.lower())
    if renamed is not None and renamed != name:
        return NextLine(name, note=f"not carried over: the JVM consumer ignores it, its name there is {renamed}")
    return NextLine(name, note="not carried over: the JVM consumer ignores it")


def _within_limits(line: NextLine) -> NextLine:
    """The line with values that librdkafka accepts."""
    accepted = dict(line.successors)
    for name, (least, most) in _LIBRDKAFKA_LIMITS.items():
        if name in accepted:
            accepted[name] = str(min(max(int(accepted[name]), least), most))
    if accepted == line.successors:
        return line
    note = "changed to what librdkafka accepts"
    return line._replace(successors=accepted, note=f"{line.note}; {note}" if line.note else note)


# -- what the file lacks ----------------------------------------------------------------------------------------------


def _lines_for_defaults(target: ClientTarget, given: Given) -> Iterator[NextLine]:
    """What the next client needs, and defaults that differ from those of the JVM consumer where it matters."""
    if "bootstrap.servers" not in given:
        note = "required: brokers as host:port,host:port (give --bootstrap-server)"
        yield NextLine("", connection(target, "bootstrap.servers", ""), note, is_missing=True)
    if "client.id" not in given and given.get("group.id"):
        note = "its default was group.id; quotas and logs of brokers go by it"
        yield NextLine("", plain(target, "client.id", given["group.id"]), note)
    if target in NO_GROUP:
        yield from _mirror_lines(target, given) if target == "mm2" else _spark_lines(given)
        return
    if "group.id" not in given:
        yield NextLine("", {"group.id": ""}, "required: the file does not name the group", is_missing=True)
    if "auto.commit.interval.ms" not in given and given.get("auto.commit.enable") != "false":
        default = str(ConsumerConfig.auto_commit_interval_ms)
        yield NextLine("", {"auto.commit.interval.ms": default}, f"its default was {default}, and is 5000 now")
    defaults = _defaults_of(given)
    if not (defaults.brokers_coordinate or given.keys() & {"zookeeper.session.timeout.ms", "session.timeout.ms"}):
        now, before = defaults.session_timeout_ms, defaults.membership_timeout_ms
        note = f"a member that ended without leaving is noticed after {now // 1000} s; it was {before // 1000} s"
        yield NextLine("", {"session.timeout.ms": str(now)}, f"{note} (zookeeper.session.timeout.ms)")
    if "partition.assignment.strategy" not in given:
        yield assignor(target, defaults.partition_assignment_strategy, given)
    if target == "java":
        note = "the decoders of the JVM consumer were arguments; its default returned bytes"
        yield NextLine("", {"key.deserializer": _BYTES, "value.deserializer": _BYTES}, note)
    else:
        yield from _librdkafka_lines(given)


def _defaults_of(given: Given) -> ConsumerConfig:
    """What a consumer takes for the properties that the file lacks; some depend on its ``group.protocol``."""
    required = {"zookeeper.connect": "unused:1", "bootstrap.servers": "unused:1", "group.id": "unused"}
    return ConsumerConfig.from_properties({"group.protocol": given.get("group.protocol"), **required})


def _librdkafka_lines(given: Given) -> Iterator[NextLine]:
    """KafkaConsumer's defaults are the JVM consumer's here, librdkafka's are not."""
    if "isolation.level" not in given:
        note = "every record, as before; the default is read_committed, which waits for the end of open transactions"
        yield NextLine("", {"isolation.level": "read_uncommitted"}, note)
    if "check.crcs" not in given:
        yield NextLine("", {"check.crcs": "true"}, "checksums were always verified; the default is false")
    if "exclude.internal.topics" not in given:
        note = "filters excluded internal topics by default; remove the line to consume one of them by name"
        yield internal_topics("confluent", "true", given)._replace(note=note)


def _spark_lines(given: Given) -> Iterator[NextLine]:
    if "auto.offset.reset" not in given:
        yield offset_reset("spark", ConsumerConfig.auto_offset_reset, given)
    note = "required: subscribe, subscribePattern or assign; in the JVM consumer it was an argument"
    yield NextLine("", {"subscribe": ""}, note, is_missing=True)


def _mirror_lines(target: ClientTarget, given: Given) -> Iterator[NextLine]:
    yield NextLine("", {"clusters": "source,target"})
    note = "required: bootstrap.servers of MirrorMaker 1's producer file"
    yield NextLine("", {"target.bootstrap.servers": ""}, note, is_missing=True)
    yield NextLine("", {"source->target.enabled": "true"})
    if not given.get("mirror.topics.whitelist"):
        note = "required: what --whitelist was; a list of regexes, divided by commas"
        yield NextLine("", {"source->target.topics": ""}, note, is_missing=True)
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    note = "MirrorMaker 1 keeps the names of topics; MirrorMaker 2 prefixes them unless it has this policy (3.0)"
    yield NextLine("", {"replication.policy.class": policy}, note)
    if "auto.offset.reset" not in given:
        note = "MirrorMaker 2 starts at the beginning of a topic by default, MirrorMaker 1 at its end"
        yield NextLine("", plain(target, "auto.offset.reset", "latest"), note)
