"""The next client's configuration, from the properties of a JVM consumer.

Sources: jvm-consumer.md#configuration for what each property does here; for its successors Kafka's "Consumer Configs",
librdkafka's "Configuration properties", Spark's "Structured Streaming + Kafka Integration Guide", and KIP-382
(MirrorMaker 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from zkconsumer.config import PROPERTIES
from zkconsumer.configdef import parse
from zkconsumer.consumerproperties import RENAMED
from zkconsumer.errors import ConfigError

Target = Literal["java", "confluent", "spark", "mm2"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)

_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LEAST_SESSION_MS: Final = 6000
_HEARTBEAT_MS: Final = 3000
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

_NO_SUCCESSORS: Final[Mapping[str, str]] = MappingProxyType({})

_NO_GROUP: Final = {
    "spark": "Spark assigns partitions itself and keeps offsets in the checkpoint",
    "mm2": "Kafka Connect assigns partitions to tasks and keeps offsets itself",
}
"""Targets that are no member of a consumer group, and what they do instead."""


class NextLine(NamedTuple):
    """What becomes of one property.

    Attributes:
        name: of the property that the file sets; empty for a line that no property of the file causes.
        successors: names and values for the next client; empty if the property has no successor.
        note: what changed, or what replaces the property; empty if name and meaning stay.
        is_missing: True if the operator has to give the value.
    """

    name: str
    successors: Mapping[str, str] = _NO_SUCCESSORS
    note: str = ""
    is_missing: bool = False


Given = Mapping[str, str]
_Rule = Callable[[Target, str, Given], NextLine]
"""Makes the line of one property from the target, the property's value, and all properties."""


def next_config(properties: Given, target: Target, bootstrap_servers: str | None = None) -> tuple[NextLine, ...]:
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


def _line(target: Target, name: str, value: str, given: Given) -> NextLine:
    rule = _RULES.get(name)
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


# -- rules ------------------------------------------------------------------------------------------------------------


def _successor(target: Target, java: str, confluent: str | None, value: str) -> Mapping[str, str]:
    """The line in the spelling of the target; librdkafka may have another name, None if it has no such property."""
    if target == "confluent":
        return {} if confluent is None else {confluent: value}
    return {{"java": java, "spark": f"kafka.{java}", "mm2": f"source.consumer.{java}"}[target]: value}


def _becomes(java: str, confluent: str | None, note: str = "") -> _Rule:
    def rule(target: Target, value: str, _given: Given) -> NextLine:
        successors = _successor(target, java, confluent, value)
        return NextLine("", successors, note if successors else "no successor: librdkafka has no such property")

    return rule


def _of_members(rule: _Rule) -> _Rule:
    """A rule for what only members of a consumer group have."""

    def limited(target: Target, value: str, given: Given) -> NextLine:
        if target in _NO_GROUP:
            return NextLine("", note=f"no successor: {_NO_GROUP[target]}")
        return rule(target, value, given)

    return limited


def _no_successor(why: str) -> _Rule:
    return lambda _target, _value, _given: NextLine("", note=f"no successor: {why}")


def _plain(target: Target, name: str, value: str) -> Mapping[str, str]:
    return _successor(target, name, name, value)


def _connection(target: Target, name: str, value: str) -> Mapping[str, str]:
    """As :func:`_plain`, for what all clients of one cluster share, which MirrorMaker 2 sets for the cluster."""
    return {f"source.{name}": value} if target == "mm2" else _plain(target, name, value)


def _group_id(_target: Target, value: str, _given: Given) -> NextLine:
    note = "offsets of the group in ZooKeeper are not read: move them with `zkconsumer migrate plan`"
    return NextLine("", {"group.id": value}, note)


def _session_timeout(target: Target, value: str, _given: Given) -> NextLine:
    timeout_ms = int(value)
    note = "the session is one with the group's coordinator now"
    if timeout_ms < _LEAST_SESSION_MS:
        note += f"; brokers accept it only if their group.min.session.timeout.ms ({_LEAST_SESSION_MS}) is lowered"
    successors = dict(_plain(target, "session.timeout.ms", value))
    if timeout_ms < 3 * _HEARTBEAT_MS:
        successors |= _plain(target, "heartbeat.interval.ms", str(max(1, timeout_ms // 3)))
    return NextLine("", successors, note)


def _offset_reset(target: Target, value: str, _given: Given) -> NextLine:
    new = {"smallest": "earliest", "largest": "latest"}[value]
    if target == "spark":
        note = "counts only without a checkpoint; partitions that are added later are always read from their beginning"
        return NextLine("", {"startingOffsets": new}, note)
    return NextLine("", _plain(target, "auto.offset.reset", new), f"{value} is {new} now")


_ASSIGNORS: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "roundrobin-natural": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def _assignor(target: Target, value: str, _given: Given) -> NextLine:
    names = [name.strip() for name in value.split(",")]
    java = ",".join(f"org.apache.kafka.clients.consumer.{_ASSIGNORS[name]}" for name in names)
    name = ",".join(name.removesuffix("-natural") for name in names if name != "sticky")  # librdkafka lacks that one
    note = "all members of the group must have one assignor in common"
    if value == "roundrobin":
        note += "; partitions are dealt out in another order"
    successor = name or "range" if target == "confluent" else java
    return NextLine("", _plain(target, "partition.assignment.strategy", successor), note)


def _auto_commit(target: Target, value: str, _given: Given) -> NextLine:
    note = "records that poll() has returned are committed by a later poll(), also if they are still being processed"
    return NextLine("", _plain(target, "enable.auto.commit", value), note if value == "true" else "")


def _storage(_target: Target, value: str, given: Given) -> NextLine:
    if value.lower() == "zookeeper":
        return NextLine("", note="no successor: offsets are stored in Kafka; move them with `zkconsumer migrate plan`")
    dual = given.get("dual.commit.enabled", "true") == "true"
    more = "; first check with `zkconsumer migrate survey` that Kafka has them all" if dual else ""
    return NextLine("", note=f"no successor: offsets are stored in Kafka, where they are already{more}")


def _filters(option: str) -> _Rule:
    def rule(target: Target, value: str, _given: Given) -> NextLine:
        if target == "mm2" and value:
            return NextLine("", {option: value}, "a list of regexes, divided by commas")
        return NextLine("", note="no successor: the JVM consumer does not use it")

    return rule


def _internal_topics(target: Target, value: str, _given: Given) -> NextLine:
    if target == "confluent":
        successors = {"topic.blacklist": "^__consumer_offsets$,^__transaction_state$"} if value == "true" else {}
        return NextLine("", successors, "applies to subscriptions by a regex")
    if target == "java":
        return NextLine("", {"exclude.internal.topics": value}, "applies to subscriptions by a pattern")
    why = {"spark": "Spark has no such option", "mm2": "internal topics are excluded by topics.exclude"}
    return NextLine("", note=f"no successor: {why[target]}")


# -- connections, which the JVM consumer cannot configure and zkconsumer can -------------------------------------------


def _connects(name: str) -> _Rule:
    """A property that all clients have under the same name."""
    return lambda target, value, _given: NextLine("", _connection(target, name, value))


def _in_java(name: str, java: Mapping[str, str], note: str) -> _Rule:
    """A property of librdkafka, and the lines that replace it in Java; ``{}`` stands for the value there."""

    def rule(target: Target, value: str, _given: Given) -> NextLine:
        if target == "confluent":
            return NextLine("", {name: value})
        successors: dict[str, str] = {}
        for java_name, form in java.items():
            successors |= _connection(target, java_name, form.replace("{}", value))
        return NextLine("", successors, note)

    return rule


def _check_hostname(target: Target, value: str, _given: Given) -> NextLine:
    java = "" if value == "none" else value
    name = "ssl.endpoint.identification.algorithm"
    return NextLine("", _connection(target, name, value if target == "confluent" else java))


def _username(target: Target, value: str, given: Given) -> NextLine:
    if target == "confluent":
        return NextLine("", {"sasl.username": value})
    module = _LOGIN_MODULES.get(given.get("sasl.mechanism", ""))
    if module is None:
        return NextLine("", note="no successor: only sasl.mechanism PLAIN and SCRAM have a user name")
    user, password = (_quoted(text) for text in (value, given.get("sasl.password", "")))
    jaas = f"{module} required username={user} password={password};"
    return NextLine("", _connection(target, "sasl.jaas.config", jaas), "user and password are one property in Java")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _password(target: Target, value: str, _given: Given) -> NextLine:
    if target == "confluent":
        return NextLine("", {"sasl.password": value})
    return NextLine("", note="see sasl.username")


_PEM_KEY: Final = "in Java one file has the key and its certificates: concatenate both files"

_RULES: Final[Mapping[str, _Rule]] = {
    "group.id": _of_members(_group_id),
    "zookeeper.connect": _no_successor("the next client does not use ZooKeeper"),
    "zookeeper.session.timeout.ms": _of_members(_session_timeout),
    "zookeeper.connection.timeout.ms": _no_successor("the next client does not use ZooKeeper"),
    "zookeeper.sync.time.ms": _no_successor("the next client does not use ZooKeeper"),
    "consumer.id": _no_successor("the coordinator names members; group.instance.id names one for good (KIP-345)"),
    "client.id": _becomes("client.id", "client.id"),
    "socket.timeout.ms": _becomes(
        "request.timeout.ms", "socket.timeout.ms", "also limits requests that are not a fetch"
    ),
    "socket.receive.buffer.bytes": _becomes("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    "fetch.message.max.bytes": _becomes(
        "max.partition.fetch.bytes",
        "max.partition.fetch.bytes",
        "a larger record is read all the same since 0.10.1 (KIP-74), it does not stop the partition",
    ),
    "fetch.max.bytes": _becomes("fetch.max.bytes", "fetch.max.bytes", "the JVM consumer ignores it"),
    "fetch.min.bytes": _becomes("fetch.min.bytes", "fetch.min.bytes"),
    "fetch.wait.max.ms": _becomes("fetch.max.wait.ms", "fetch.wait.max.ms"),
    "num.consumer.fetchers": _no_successor("one connection per broker serves all partitions"),
    "queued.max.message.chunks": _no_successor(
        "records are buffered in bytes: fetch.max.bytes in Java, queued.max.messages.kbytes in librdkafka"
    ),
    "auto.commit.enable": _of_members(_auto_commit),
    "auto.commit.interval.ms": _of_members(_becomes("auto.commit.interval.ms", "auto.commit.interval.ms")),
    "rebalance.max.retries": _no_successor("the coordinator ends a rebalance; members do not give up"),
    "rebalance.backoff.ms": _no_successor("the coordinator ends a rebalance; members do not wait for each other"),
    "refresh.leader.backoff.ms": _becomes("retry.backoff.ms", "topic.metadata.refresh.fast.interval.ms"),
    "auto.offset.reset": _offset_reset,
    "consumer.timeout.ms": _no_successor("poll() takes a timeout and returns without records"),
    "exclude.internal.topics": _internal_topics,
    "partition.assignment.strategy": _of_members(_assignor),
    "group.instance.id": _of_members(_becomes("group.instance.id", "group.instance.id")),
    "session.timeout.ms": _of_members(_becomes("session.timeout.ms", "session.timeout.ms")),
    "heartbeat.interval.ms": _of_members(_becomes("heartbeat.interval.ms", "heartbeat.interval.ms")),
    "max.poll.interval.ms": _of_members(_becomes("max.poll.interval.ms", "max.poll.interval.ms")),
    "offsets.storage": _of_members(_storage),
    "dual.commit.enabled": _no_successor("offsets are stored in Kafka only"),
    "offsets.channel.backoff.ms": _no_successor("the client retries by itself"),
    "offsets.channel.socket.timeout.ms": _no_successor("the socket timeout is for all requests"),
    "offsets.commit.max.retries": _no_successor("the client retries by itself"),
    "mirror.topics.whitelist": _filters("source->target.topics"),
    "mirror.topics.blacklist": _filters("source->target.topics.exclude"),
    "mirror.consumer.numthreads": _no_successor("tasks.max limits the parallelism of MirrorMaker 2"),
    "bootstrap.servers": _connects("bootstrap.servers"),
    "metadata.max.age.ms": _becomes("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
    "isolation.level": _becomes("isolation.level", "isolation.level"),
    "check.crcs": _becomes("check.crcs", "check.crcs"),
    "security.protocol": _connects("security.protocol"),
    "ssl.ca.location": _in_java(
        "ssl.ca.location",
        {"ssl.truststore.location": "{}", "ssl.truststore.type": "PEM"},
        "PEM files need a client of 2.7 or later (KIP-651)",
    ),
    "ssl.certificate.location": _in_java("ssl.certificate.location", {}, f"see ssl.key.location: {_PEM_KEY}"),
    "ssl.key.location": _in_java(
        "ssl.key.location", {"ssl.keystore.location": "{}", "ssl.keystore.type": "PEM"}, _PEM_KEY
    ),
    "ssl.key.password": _connects("ssl.key.password"),
    "ssl.endpoint.identification.algorithm": _check_hostname,
    "sasl.mechanism": _connects("sasl.mechanism"),
    "sasl.username": _username,
    "sasl.password": _password,
    "sasl.kerberos.service.name": _connects("sasl.kerberos.service.name"),
}


# -- what the file lacks ----------------------------------------------------------------------------------------------


def _lines_for_defaults(target: Target, given: Given) -> Iterator[NextLine]:
    """What the next client needs, and defaults that differ from those of the JVM consumer where it matters."""
    if "bootstrap.servers" not in given:
        note = "required: brokers as host:port,host:port (give --bootstrap-server)"
        yield NextLine("", _connection(target, "bootstrap.servers", ""), note, is_missing=True)
    if "client.id" not in given and given.get("group.id"):
        note = "its default was group.id; quotas and logs of brokers go by it"
        yield NextLine("", _plain(target, "client.id", given["group.id"]), note)
    if target in _NO_GROUP:
        yield from _mirror_lines(target, given) if target == "mm2" else _spark_lines(given)
        return
    if "group.id" not in given:
        yield NextLine("", {"group.id": ""}, "required: the file does not name the group", is_missing=True)
    if "auto.commit.interval.ms" not in given and given.get("auto.commit.enable") != "false":
        yield NextLine("", {"auto.commit.interval.ms": "60000"}, "its default was 60000, and is 5000 now")
    if not given.keys() & {"zookeeper.session.timeout.ms", "session.timeout.ms"}:
        note = "a member that ended without leaving is noticed after 45 s; it was 6 s (zookeeper.session.timeout.ms)"
        yield NextLine("", {"session.timeout.ms": "45000"}, note)
    if "partition.assignment.strategy" not in given:
        yield _assignor(target, "range", given)
    if target == "java":
        note = "the decoders of the JVM consumer were arguments; its default returned bytes"
        yield NextLine("", {"key.deserializer": _BYTES, "value.deserializer": _BYTES}, note)
    else:
        yield from _librdkafka_lines(given)


def _librdkafka_lines(given: Given) -> Iterator[NextLine]:
    """KafkaConsumer's defaults are the JVM consumer's here, librdkafka's are not."""
    if "isolation.level" not in given:
        note = "every record, as before; the default is read_committed, which waits for the end of open transactions"
        yield NextLine("", {"isolation.level": "read_uncommitted"}, note)
    if "check.crcs" not in given:
        yield NextLine("", {"check.crcs": "true"}, "checksums were always verified; the default is false")
    if "exclude.internal.topics" not in given:
        note = "filters excluded internal topics by default; remove the line to consume one of them by name"
        yield _internal_topics("confluent", "true", given)._replace(note=note)


def _spark_lines(given: Given) -> Iterator[NextLine]:
    if "auto.offset.reset" not in given:
        yield _offset_reset("spark", "largest", given)
    note = "required: subscribe, subscribePattern or assign; in the JVM consumer it was an argument"
    yield NextLine("", {"subscribe": ""}, note, is_missing=True)


def _mirror_lines(target: Target, given: Given) -> Iterator[NextLine]:
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
        yield NextLine("", _plain(target, "auto.offset.reset", "latest"), note)
