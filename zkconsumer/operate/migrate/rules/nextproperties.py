"""Rules of ``migrate config``: what becomes of each property of a JVM consumer in the configuration of the next client.

Sources: jvm-consumer.md#configuration for what each property does here; for its successors Kafka's "Consumer Configs",
librdkafka's "Configuration properties", Spark's "Structured Streaming + Kafka Integration Guide", and KIP-382
(MirrorMaker 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from zkconsumer.config.propertydef import names_object

ClientTarget = Literal["java", "confluent", "spark", "mm2"]
TARGETS: Final[tuple[ClientTarget, ...]] = get_args(ClientTarget)

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LEAST_SESSION_MS: Final = 6000
_HEARTBEAT_MS: Final = 3000
_NO_SUCCESSORS: Final[Mapping[str, str]] = MappingProxyType({})

NO_GROUP: Final = {
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
_Rule = Callable[[ClientTarget, str, Given], NextLine]
"""Makes the line of one property from the target, the property's value, and all properties."""


def _successor(target: ClientTarget, java: str, confluent: str, value: str) -> Mapping[str, str]:
    """The line in the spelling of the target; librdkafka may have another name."""
    if target == "confluent":
        return {confluent: value}
    return {{"java": java, "spark": f"kafka.{java}", "mm2": f"source.consumer.{java}"}[target]: value}


def _becomes(java: str, confluent: str, note: str = "") -> _Rule:
    return lambda target, value, _given: NextLine("", _successor(target, java, confluent, value), note)


def _of_members(rule: _Rule) -> _Rule:
    """A rule for what only members of a consumer group have."""

    def limited(target: ClientTarget, value: str, given: Given) -> NextLine:
        if target in NO_GROUP:
            return NextLine("", note=f"no successor: {NO_GROUP[target]}")
        return rule(target, value, given)

    return limited


def _no_successor(why: str) -> _Rule:
    return lambda _target, _value, _given: NextLine("", note=f"no successor: {why}")


def plain(target: ClientTarget, name: str, value: str) -> Mapping[str, str]:
    """A line with a name that all clients know, in the spelling of the target."""
    return _successor(target, name, name, value)


def connection(target: ClientTarget, name: str, value: str) -> Mapping[str, str]:
    """As :func:`plain`, for what all clients of one cluster share, which MirrorMaker 2 sets for the cluster."""
    return {f"source.{name}": value} if target == "mm2" else plain(target, name, value)


def _group_id(_target: ClientTarget, value: str, _given: Given) -> NextLine:
    note = "offsets of the group in ZooKeeper are not read: move them with `zkconsumer migrate plan`"
    return NextLine("", {"group.id": value}, note)


def _session_timeout(target: ClientTarget, value: str, _given: Given) -> NextLine:
    timeout_ms = int(value)
    note = "the session is one with the group's coordinator now"
    if timeout_ms < _LEAST_SESSION_MS:
        note += f"; brokers accept it only if their group.min.session.timeout.ms ({_LEAST_SESSION_MS}) is lowered"
    successors = dict(plain(target, "session.timeout.ms", value))
    if timeout_ms < 3 * _HEARTBEAT_MS:
        successors |= plain(target, "heartbeat.interval.ms", str(max(1, timeout_ms // 3)))
    return NextLine("", successors, note)


def offset_reset(target: ClientTarget, value: str, _given: Given) -> NextLine:
    """The rule of ``auto.offset.reset``."""
    new = {"smallest": "earliest", "largest": "latest"}[value]
    if target == "spark":
        note = "counts only without a checkpoint; partitions that are added later are always read from their beginning"
        return NextLine("", {"startingOffsets": new}, note)
    return NextLine("", plain(target, "auto.offset.reset", new), f"{value} is {new} now")


_JAVA: Final = "org.apache.kafka.clients.consumer."
_ASSIGNORS: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "roundrobin-natural": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def assignor(target: ClientTarget, value: str, _given: Given) -> NextLine:
    """The rule of ``partition.assignment.strategy``; the value may be a list, divided by commas."""
    given = [name.strip() for name in value.split(",")]
    names = [name for name in given if name in _ASSIGNORS]
    java = ",".join(f"{_JAVA}{_ASSIGNORS[name]}" for name in names)
    name = ",".join(name.removesuffix("-natural") for name in names if name != "sticky")  # librdkafka lacks that one
    note = "all members of the group must have one assignor in common"
    if value == "roundrobin":
        note += "; partitions are dealt out in another order"
    if own := [name for name in given if names_object(name)]:
        note += f"; {', '.join(own)} has to be written again for that client"
    successor = name or "range" if target == "confluent" else java or f"{_JAVA}RangeAssignor"
    return NextLine("", plain(target, "partition.assignment.strategy", successor), note)


def _auto_commit(target: ClientTarget, value: str, _given: Given) -> NextLine:
    note = "records that poll() has returned are committed by a later poll(), also if they are still being processed"
    return NextLine("", plain(target, "enable.auto.commit", value), note if value == "true" else "")


def _storage(_target: ClientTarget, value: str, given: Given) -> NextLine:
    if value.lower() == "zookeeper":
        return NextLine("", note="no successor: offsets are stored in Kafka; move them with `zkconsumer migrate plan`")
    dual = given.get("dual.commit.enabled", "true") == "true"
    check_first = "; first check with `zkconsumer migrate survey` that Kafka has them all" if dual else ""
    return NextLine("", note=f"no successor: offsets are stored in Kafka, where they are already{check_first}")


def _filters(option: str) -> _Rule:
    def rule(target: ClientTarget, value: str, _given: Given) -> NextLine:
        if target == "mm2" and value:
            return NextLine("", {option: value}, "a list of regexes, divided by commas")
        return NextLine("", note="no successor: the JVM consumer does not use it")

    return rule


def internal_topics(target: ClientTarget, value: str, _given: Given) -> NextLine:
    """The rule of ``exclude.internal.topics``."""
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
    return lambda target, value, _given: NextLine("", connection(target, name, value))


def _in_java(name: str, java: Mapping[str, str], note: str) -> _Rule:
    """A property of librdkafka, and the lines that replace it in Java; ``{}`` stands for the value there."""

    def rule(target: ClientTarget, value: str, _given: Given) -> NextLine:
        if target == "confluent":
            return NextLine("", {name: value})
        successors: dict[str, str] = {}
        for java_name, form in java.items():
            successors |= connection(target, java_name, form.replace("{}", value))
        return NextLine("", successors, note)

    return rule


def _check_hostname(target: ClientTarget, value: str, _given: Given) -> NextLine:
    java = "" if value == "none" else value
    name = "ssl.endpoint.identification.algorithm"
    return NextLine("", connection(target, name, value if target == "confluent" else java))


def _username(target: ClientTarget, value: str, given: Given) -> NextLine:
    if target == "confluent":
        return NextLine("", {"sasl.username": value})
    module = _LOGIN_MODULES.get(given.get("sasl.mechanism", ""))
    if module is None:
        return NextLine("", note="no successor: only sasl.mechanism PLAIN and SCRAM have a user name")
    user, password = (_quoted(text) for text in (value, given.get("sasl.password", "")))
    jaas = f"{module} required username={user} password={password};"
    return NextLine("", connection(target, "sasl.jaas.config", jaas), "user and password are one property in Java")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _password(target: ClientTarget, value: str, _given: Given) -> NextLine:
    if target == "confluent":
        return NextLine("", {"sasl.password": value})
    return NextLine("", note="see sasl.username")


_PEM_KEY: Final = "in Java one file has the key and its certificates: concatenate both files"

RULES: Final[Mapping[str, _Rule]] = {
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
    "auto.offset.reset": offset_reset,
    "consumer.timeout.ms": _no_successor("poll() takes a timeout and returns without records"),
    "exclude.internal.topics": internal_topics,
    "partition.assignment.strategy": _of_members(assignor),
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
