"""ConsumerConfig: every property of the consumer in one validated, immutable value.

The properties themselves are the table in ``config/consumerproperties.py``. This module turns a user's values into a
configuration, and checks the rules that involve several properties.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from zkconsumer.config.consumerproperties import RENAMED, STRATEGIES, ConsumerProperties
from zkconsumer.config.propertydef import DescribedAttribute, Property, names_object, parse
from zkconsumer.config.typedkeywords import Keywords
from zkconsumer.errors import ConfigError, MissingProperty

_log = logging.getLogger(__name__)

_LEGAL_CONNECT = re.compile(
    r"(?:[^\s,/:]+|\[[^\s\]]+\])(?::\d+)?(?:,\s*(?:[^\s,/:]+|\[[^\s\]]+\])(?::\d+)?)*(?:/\S*)?\Z"
)
_LEGAL_BROKER = re.compile(r"[^\s,:\[\]]+:\d+|\[[^\s\]]+\]:\d+")
_LEGAL_ID = re.compile(r"[a-zA-Z0-9._-]*\Z")

_typed = Keywords(ConsumerProperties)


@dataclass(frozen=True, init=False)
class ConsumerConfig(ConsumerProperties):
    """All properties of one consumer.

    Each property is a keyword argument, and an attribute with the value that is used. ``help(ConsumerConfig)`` lists
    them with meanings and defaults, as the page "Configuration" of the documentation does.

    Values are in either spelling: ``zookeeper_session_timeout_ms=6000`` or, through ``**``,
    ``{"zookeeper.session.timeout.ms": "6000"}``. Texts are parsed as the JVM parses a properties file. Type checkers
    know the first spelling and the types; for texts there is :meth:`from_properties`.

    Raises:
        ConfigError: with *every* violation, not only the first.
    """

    @_typed
    def __init__(self, **values: object) -> None:
        given, violations = _by_attribute(values)
        violations += [f"{n} is not a property of this consumer{_suggestion(n)}" for n in given if n not in PROPERTIES]
        for attribute, row in PROPERTIES.items():
            vars(self)[attribute] = self._read(attribute, row, given, violations)
        violations.extend(_violations(self))
        if violations:
            raise ConfigError(violations)

    def _read(self, attribute: str, row: Property, given: Mapping[str, object], violations: list[str]) -> Any:
        value = given.get(attribute)
        if value is None:
            return self._default(attribute)
        try:
            return parse(row, value)
        except ValueError as error:
            violations.append(f"{row.name} {'cannot be used' if row.secret else error}")
            return self._default(attribute)

    def _default(self, attribute: str) -> Any:
        computed = _COMPUTED_DEFAULTS.get(attribute)
        return computed(self) if computed else _DEFAULTS[attribute]

    @classmethod
    @_typed
    def from_properties(cls, source: str | Path | Mapping[str, object], /, **overrides: object) -> Self:
        """Read a JVM consumer's properties file (or a mapping with the same names), unchanged.

        Unknown names are ignored with a warning, as in the JVM; names that start with ``external`` without one.

        Args:
            source: path of a properties file, or a mapping of property names to values.
            overrides: values that override those of the file, in either spelling; an unknown name is an error here.

        Raises:
            ConfigError: with every violation, or the file is not a properties file.
            OSError: the file cannot be read.
        """
        values: Mapping[str, object] = source if isinstance(source, Mapping) else load_properties(Path(source))
        given = _once(values)
        for name in [name for name in given if name not in PROPERTIES]:
            del given[name]
            if not name.startswith("external"):
                _log.warning("property %s is not known to this consumer and is ignored%s", name, _suggestion(name))
        return cls(**{**given, **_once(overrides)})

    @classmethod
    @_typed
    def without_group(cls, **values: object) -> Self:
        """The configuration of what joins no group, such as :func:`zkconsumer.read`.

        ``zookeeper.connect`` or ``bootstrap.servers`` is enough; ``client.id`` is ``zkconsumer`` unless it is given.

        Raises:
            ConfigError: with every violation.
        """
        given = {name: value for name, value in _once(values).items() if value is not None}
        if not given.keys() & {"zookeeper_connect", "bootstrap_servers"}:
            raise ConfigError(["zookeeper.connect or bootstrap.servers is missing"])
        protocol = {} if "zookeeper_connect" in given else {"group_protocol": "kafka"}
        return cls(**{"group_id": "zkconsumer", "client_id": "zkconsumer", **protocol, **given})

    @_typed
    def replace(self, **changes: object) -> Self:
        """A copy with some values changed; defaults that depend on others stay as they were computed."""
        return type(self)(**{**dataclasses.asdict(self), **_once(changes)})

    @property
    def brokers_coordinate(self) -> bool:
        """True for a group of Kafka's own: ``group.protocol`` is ``kafka`` or ``consumer``."""
        return self.group_protocol in ("kafka", "consumer")

    @property
    def offsets_only_in_kafka(self) -> bool:
        """True if no offset is written to ZooKeeper."""
        return self.offsets_storage == "kafka" and not self.dual_commit_enabled

    @property
    def membership_timeout_ms(self) -> int:
        """Time in ms without an answer after which the group gives this consumer's partitions to other members."""
        return self.session_timeout_ms if self.brokers_coordinate else self.zookeeper_session_timeout_ms

    def zookeeper_servers(self) -> str:
        """``zookeeper.connect``, for what cannot do without it.

        Raises:
            ConfigError: it is not given, which is only possible with ``group.protocol`` ``kafka`` or ``consumer``.
        """
        if self.zookeeper_connect is None:
            raise ConfigError(["zookeeper.connect is missing; only group.protocol kafka and consumer use no ZooKeeper"])
        return self.zookeeper_connect

    def __getitem__(self, name: str) -> str | int | None:
        """Value of a property by its JVM name."""
        value: str | int | None = getattr(self, name.replace(".", "_"))
        return value


PROPERTIES: Mapping[str, Property] = {f.name: Property.of(f) for f in dataclasses.fields(ConsumerConfig)}
"""Every property by attribute name, in the order of the reference."""

for _field in dataclasses.fields(ConsumerConfig):
    setattr(ConsumerConfig, _field.name, DescribedAttribute(PROPERTIES[_field.name], _field))


def _suggestion(name: str) -> str:
    """The likely correct name for an unknown one, as the end of a message; empty if no name is similar."""
    spelling = name if "." in name else name.replace("_", ".")
    new = RENAMED.get(spelling.lower())
    if new is not None:
        return f"; its name here is {new}"
    from difflib import get_close_matches

    close = get_close_matches(spelling.lower(), [row.name for row in PROPERTIES.values()], n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


def _by_attribute(values: Mapping[str, object]) -> tuple[dict[str, Any], list[str]]:
    """The values by attribute, from names in either spelling, and the violations.

    An unknown name stays as the user wrote it.
    """
    given: dict[str, Any] = {}
    violations = []
    for name, value in values.items():
        attribute = name.replace(".", "_")
        if attribute in given and attribute in PROPERTIES:
            violations.append(f"{PROPERTIES[attribute].name} is given in both spellings")
        given[attribute if attribute in PROPERTIES else name] = value
    return given, violations


def _once(values: Mapping[str, object]) -> dict[str, Any]:
    given, violations = _by_attribute(values)
    if violations:
        raise ConfigError(violations)
    return given


def _digest(config: ConsumerConfig) -> str | None:
    """``user:password`` of the two properties; None without them."""
    user, password = config.zookeeper_digest_username, config.zookeeper_digest_password
    return None if user is None or password is None else f"{user}:{password}"


_DEFAULTS: Mapping[str, Any] = {
    f.name: None if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(ConsumerConfig)
}
_COMPUTED_DEFAULTS: Mapping[str, Callable[[ConsumerConfig], object]] = {
    "zookeeper_connection_timeout_ms": lambda config: config.zookeeper_session_timeout_ms,
    "rebalance_backoff_ms": lambda config: config.zookeeper_sync_time_ms,
    "client_id": lambda config: config.group_id,
    "zookeeper_digest": _digest,
    "partition_assignment_strategy": lambda config: (
        "zkconsumer,cooperative-sticky" if config.group_protocol == "kafka" else "range"
    ),
    "max_stream_idle_ms": lambda config: config.max_poll_interval_ms if config.brokers_coordinate else -1,
    "offsets_storage": lambda config: "kafka" if config.brokers_coordinate else "zookeeper",
    "dual_commit_enabled": lambda config: config.offsets_storage == "kafka" and not config.brokers_coordinate,
}


def _violations(config: ConsumerConfig) -> Iterable[str]:
    """Violated rules, one sentence each: rules that involve several properties, and rules of form that a type lacks."""
    server = "bootstrap_servers" if config.brokers_coordinate else "zookeeper_connect"
    missing = [name for name in ("group_id", server) if getattr(config, name) is None]
    for attribute in missing:
        why = f"; group.protocol={config.group_protocol} needs it" if attribute == "bootstrap_servers" else ""
        yield MissingProperty(PROPERTIES[attribute].name, why)
    yield from _name_violations(config)
    if config.zookeeper_connect is not None and not _LEGAL_CONNECT.match(config.zookeeper_connect):
        yield f"zookeeper.connect {config.zookeeper_connect!r} is not of the form host:port,host:port/chroot"
    yield from _zookeeper_violations(config)
    yield from _bootstrap_violations(config)
    yield from _group_violations(config)
    yield from _broker_violations(config)
    if config.fetch_wait_max_ms > config.socket_timeout_ms:
        yield "fetch.wait.max.ms must not exceed socket.timeout.ms, or every idle fetch would time out"


_WHY_LEGAL = {
    "group_id": "a slash would name another znode",
    "client_id": "its metrics are named after it",
    "consumer_id": "a slash would name another znode",
}


def _name_violations(config: ConsumerConfig) -> Iterable[str]:
    if config.group_id in ("", ".", ".."):
        yield f"group.id {config.group_id!r} cannot be the name of a znode"
    for attribute in ("group_id", "client_id", "consumer_id"):
        value = getattr(config, attribute)
        if value is not None and not _LEGAL_ID.match(value):
            yield (
                f"{PROPERTIES[attribute].name} {value!r} is illegal: only letters, digits, dot, underscore and hyphen, "
                f"as with the JVM consumer ({_WHY_LEGAL[attribute]})"
            )
            if attribute == "group_id":
                break  # the client id defaults to the group id: one sentence for one mistake


def _zookeeper_violations(config: ConsumerConfig) -> Iterable[str]:
    if config.zookeeper_digest is not None and ":" not in config.zookeeper_digest:
        yield "zookeeper.digest must be of the form user:password"
    user, password = config.zookeeper_digest_username, config.zookeeper_digest_password
    if (user is None) != (password is None):
        yield "zookeeper.digest.username and zookeeper.digest.password need each other"
    elif user is not None and config.zookeeper_digest != _digest(config):
        yield "zookeeper.digest contradicts zookeeper.digest.username and zookeeper.digest.password: omit it"
    if user is not None and ":" in user:
        yield "zookeeper.digest.username must not have a colon, at which ZooKeeper would begin the password"
    if config.zookeeper_set_acl and not (config.zookeeper_digest or config.zookeeper_sasl_mechanism):
        yield "zookeeper.set.acl needs zookeeper.digest or zookeeper.sasl.mechanism: it restricts access to a principal"


def is_broker_list(text: str) -> bool:
    """True for addresses of the form host:port,host:port, also with spaces after the commas."""
    addresses = [address.strip() for address in text.split(",")]
    return all(
        _LEGAL_BROKER.fullmatch(address) and 0 < int(address.rpartition(":")[2]) < 1 << 16 for address in addresses
    )


def _bootstrap_violations(config: ConsumerConfig) -> Iterable[str]:
    servers = config.bootstrap_servers
    if servers is not None and not is_broker_list(servers):
        yield f"bootstrap.servers {servers!r} is not of the form host:port,host:port"


_STRATEGIES = STRATEGIES[:3]


def _group_violations(config: ConsumerConfig) -> Iterable[str]:
    protocol = f"group.protocol={config.group_protocol}"
    if config.group_remote_assignor is not None and config.group_protocol != "consumer":
        yield "group.remote.assignor has no effect without group.protocol=consumer"
    if config.group_protocol == "consumer":
        if config.partition_assignment_strategy != "range":
            yield (
                "partition.assignment.strategy has no effect with group.protocol=consumer, where a broker assigns: "
                "omit it, and see group.remote.assignor"
            )
    elif config.group_protocol != "kafka":
        yield from _strategy_violations(config.partition_assignment_strategy, config.group_protocol)
    if not config.brokers_coordinate:
        if config.group_instance_id is not None:
            yield "group.instance.id has no effect without group.protocol=kafka or consumer"
        return
    if config.offsets_storage != "kafka":
        yield f"{protocol} stores offsets in Kafka: omit offsets.storage, or set it to kafka"
    if config.dual_commit_enabled:
        yield f"{protocol} uses no ZooKeeper: omit dual.commit.enabled, or set it to false"
    if config.group_protocol == "kafka" and 3 * config.heartbeat_interval_ms > config.session_timeout_ms:
        yield (
            f"heartbeat.interval.ms ({config.heartbeat_interval_ms}) must be at most a third of session.timeout.ms "
            f"({config.session_timeout_ms}), or one lost heartbeat would end the membership"
        )


def _strategy_violations(strategy: str, protocol: str) -> Iterable[str]:
    """What forbids a strategy in a group on ZooKeeper."""
    if names_object(strategy):
        if protocol == "zookeeper":
            yield (
                f"partition.assignment.strategy {strategy} is an assignor of your own, which needs "
                "group.protocol=coordinator or kafka: with zookeeper every member, also the JVM's, computes the "
                "assignment by itself"
            )
    elif strategy not in _STRATEGIES:
        yield (
            f"partition.assignment.strategy must be one of {', '.join(_STRATEGIES)}, not {strategy!r}, which needs "
            "group.protocol=kafka"
        )


def _broker_violations(config: ConsumerConfig) -> Iterable[str]:
    logs_in, mechanism = config.security_protocol.startswith("SASL_"), config.sasl_mechanism
    if logs_in and mechanism is None:
        yield f"security.protocol {config.security_protocol} needs sasl.mechanism"
    if mechanism is not None and not logs_in:
        yield "sasl.mechanism needs security.protocol SASL_PLAINTEXT or SASL_SSL, or it has no effect"
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and not (config.sasl_username and config.sasl_password):
        yield f"sasl.mechanism {mechanism} needs sasl.username and sasl.password"
    if mechanism == "OAUTHBEARER":
        provider = config.sasl_oauthbearer_token_provider
        if (config.sasl_oauthbearer_token is None) == (provider is None):
            yield "sasl.mechanism OAUTHBEARER needs either sasl.oauthbearer.token or sasl.oauthbearer.token.provider"
        if provider is not None and not all(provider.partition(":")):
            yield f"sasl.oauthbearer.token.provider {provider!r} is not of the form module:function"
    if config.ssl_key_location is not None and config.ssl_certificate_location is None:
        yield "ssl.key.location needs ssl.certificate.location"


def load_properties(path: Path) -> dict[str, str]:
    """Names and values of a properties file.

    Raises:
        ConfigError: it is not one.
        OSError: the file cannot be read.
    """
    import javaproperties

    # Bytes: the format is Latin-1 with escapes, which the parser knows. Some editors begin a file with a byte order
    # mark, which would become part of the first name.
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        return dict(javaproperties.load(io.BytesIO(content)))
    except ValueError as error:
        raise ConfigError(f"{path} is not a properties file: {error}; write each backslash twice") from error
