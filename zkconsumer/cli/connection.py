"""The options that specify a cluster, shared by all commands, and the configuration that they give."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from zkconsumer.config.consumerconfig import PROPERTIES, ConsumerConfig, is_broker_list, load_properties
from zkconsumer.errors import ConfigError, GroupMissing, MissingProperty

if TYPE_CHECKING:
    from zkconsumer.zookeeper.session import ZkSession

_WHERE: Final = {
    "group.id": "; give --group, or --config FILE with group.id",
    "zookeeper.connect": "; give --zookeeper, or --config FILE with zookeeper.connect",
}
"""The option that supplies a missing property."""
_FOR_BROKERS: Final = {
    False: "; for groups that brokers coordinate give --bootstrap-server in its place, to commands that know them",
    True: "; this command is for groups in ZooKeeper: those that brokers coordinate have `groups delete`, and `offsets "
    "copy` in place of rename; `kafka-consumer-groups --bootstrap-server B --list --state` shows which are empty",
}
"""What else may be meant without a ZooKeeper, by whether brokers are named."""

F = TypeVar("F", bound=Callable[..., Any])
Command = Callable[..., None]

METRICS_PORT_VARIABLE = "ZKCONSUMER_METRICS_PORT"
"""Environment variable with the metrics port of a process, for images whose health check must know it."""

_TOOL_GROUP = "zkconsumer-tools"

_COMMAND = re.compile("^zkconsumer [a-z]+ ")
_QUOTED = re.compile("`(zkconsumer (?:groups list|(?!migrate fleet )[^`]* --[^`]*))`")


def connection_options(function: F) -> F:
    """Add ``--zookeeper``, ``--config`` and ``--property`` to a command."""
    for option in (
        click.option(
            "--property", "-p", "properties", multiple=True, metavar="K=V", help="Any consumer property; repeatable."
        ),
        click.option(
            "--config",
            "config_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Properties file of a consumer, with the names of the old JVM consumer (zookeeper.connect, group.id).",
        ),
        click.option("--zookeeper", metavar="HOST:PORT[,..][/CHROOT]", help="ZooKeeper of the Kafka cluster."),
    ):
        function = option(function)
    return function


def _check_brokers(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_broker_list(value):
        raise click.BadParameter(f"{value}: write it as HOST:PORT[,HOST:PORT..]")
    return value


def _bootstrap_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--bootstrap-server", "bootstrap_servers", callback=_check_brokers, metavar="HOST:PORT[,..]", help=text
    )


bootstrap_option = _bootstrap_option(
    "Read brokers, topics and partitions from these brokers instead of ZooKeeper; needed for Kafka 4, and for groups "
    "that brokers coordinate."
)
brokers_of_zookeeper_groups_option = _bootstrap_option(
    "Read topics and partitions from these brokers instead of ZooKeeper; needed for Kafka 4. The groups are those in "
    "ZooKeeper."
)


def consumer_config(
    zookeeper: str | None,
    config_file: Path | None,
    properties: tuple[str, ...],
    *,
    without_zookeeper: str = "",
    **overrides: object,
) -> ConsumerConfig:
    """The configuration that the options specify; a later source overrides: file, properties, options.

    ``without_zookeeper`` ends the violation that no ZooKeeper is named.

    Raises:
        ConfigError: with every violation.
        click.UsageError: a property is not of the form K=V, or contradicts ``--zookeeper``.
    """
    refuse_conflicts(properties, {"zookeeper.connect": ("--zookeeper", zookeeper)})
    options = {"zookeeper.connect": zookeeper, **{name.replace("_", "."): value for name, value in overrides.items()}}
    set_by_options = {name: value for name, value in options.items() if value is not None}
    others = _parse_properties(properties).items()
    given: dict[str, Any] = {name: v for name, v in others if name.replace("_", ".") not in set_by_options}
    given.update(set_by_options)
    try:
        return ConsumerConfig.from_properties({} if config_file is None else str(config_file), **given)
    except ConfigError as error:
        hints = {**_WHERE, "zookeeper.connect": _WHERE["zookeeper.connect"] + without_zookeeper}
        violations = error.violations
        raise ConfigError(
            [v + hints.get(v.property_name, "") if isinstance(v, MissingProperty) else v for v in violations]
        ) from error


def _parse_properties(properties: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.UsageError(f"--property {text}: write it as NAME=VALUE")
        given[name] = value
    return given


def _by_name(properties: tuple[str, ...]) -> dict[str, str]:
    """The values by the names that the JVM has, whichever spelling was given."""
    return {name.replace("_", "."): value.strip() for name, value in _parse_properties(properties).items()}


def refuse_conflicts(properties: tuple[str, ...], options: Mapping[str, tuple[str, object]]) -> None:
    """Refuse an option and a ``--property`` of the same command line that set one property to different values.

    A different value in the file is no conflict: the command line overrides it.

    Args:
        properties: values of ``--property``, as NAME=VALUE.
        options: by property name, the option that sets it, too, and its value; None if not given.

    Raises:
        click.UsageError: the message names both.
    """
    given = _by_name(properties)
    for name, (option, value) in options.items():
        if value is not None and name in given and given[name] != str(value):
            raise click.UsageError(
                f"{option} sets {name} to {value}, but --property sets it to {given[name]}; omit one"
            )


def group_name(group: str | None, zookeeper: str | None, config_file: Path | None, properties: tuple[str, ...]) -> str:
    """The group that a tool works on: ``--group``, else ``group.id`` of the properties or the file.

    Raises:
        click.UsageError: no group is given, or two.
        ConfigError: the properties cannot be used.
    """
    refuse_conflicts(properties, {"group.id": ("--group", group)})
    if group is not None:
        return group
    if config_file is None and not properties:
        raise click.UsageError("give --group, or --config FILE with group.id")
    return consumer_config(zookeeper, config_file, properties).group_id


@contextmanager
def tool_session(config: ConsumerConfig) -> Iterator[ZkSession]:
    """An open ZooKeeper session.

    Raises:
        ZooKeeperUnavailable, ChrootMissing: see :meth:`ZkSession.open`.
    """
    from zkconsumer.zookeeper.session import ZkSession

    session = ZkSession.from_config(config)
    session.open()
    try:
        yield session
    finally:
        session.close()


@dataclass(frozen=True, slots=True)
class ToolConnection:
    """What the options of a tool name: a cluster, and the brokers to ask.

    Attributes:
        zookeeper, config_file, properties: as given, see :func:`connection_options`.
        bootstrap_servers: brokers to ask for brokers, topics and partitions, instead of ZooKeeper; None if not given.
    """

    zookeeper: str | None
    config_file: Path | None
    properties: tuple[str, ...]
    bootstrap_servers: str | None

    def config(self) -> ConsumerConfig:
        """The configuration of a tool that is not a member of a group; raises as :func:`consumer_config`.

        Raises:
            ConfigError: the properties are those of a group that brokers coordinate, which these tools do not know.
        """
        config = self._config(without_zookeeper=_FOR_BROKERS[self.bootstrap_servers is not None])
        if config.brokers_coordinate:
            raise ConfigError(
                f"group.protocol={config.group_protocol}: this command is for groups in ZooKeeper; use "
                "kafka-consumer-groups for groups that brokers coordinate"
            )
        return config

    def _config(self, **others: Any) -> ConsumerConfig:
        refuse_conflicts(self.properties, {"bootstrap.servers": ("--bootstrap-server", self.bootstrap_servers)})
        return consumer_config(
            self.zookeeper,
            self.config_file,
            self.properties,
            group_id=_TOOL_GROUP,
            client_id=_TOOL_GROUP,
            bootstrap_servers=self.bootstrap_servers,
            **others,
        )

    def names_property(self, name: str) -> bool:
        """True if ``--property`` or the file of ``--config`` has a property."""
        in_file = {} if self.config_file is None else load_properties(self.config_file)
        return name in {given.replace("_", ".") for given in (*_parse_properties(self.properties), *in_file)}

    def names_zookeeper(self) -> bool:
        """True if the options name servers of ZooKeeper."""
        return self.zookeeper is not None or self.names_property("zookeeper.connect")

    def broker_config(self) -> ConsumerConfig | None:
        """The configuration for groups that brokers coordinate: if brokers are named, and no ZooKeeper is; else None.

        Raises:
            ConfigError: a property cannot be used.
        """
        if self.names_zookeeper():
            return None
        if self.bootstrap_servers is None and not self.names_property("bootstrap.servers"):
            return None
        return self._config(group_protocol="kafka")

    def named_zookeeper(self) -> str | None:
        """The servers that the command line names, by the option or the property; None if it does not."""
        return self.zookeeper or _by_name(self.properties).get("zookeeper.connect")

    def named_brokers(self) -> str | None:
        """As :meth:`named_zookeeper`."""
        return self.bootstrap_servers or _by_name(self.properties).get("bootstrap.servers")

    def known_brokers(self) -> str:
        """The brokers that the command line, or the file of ``--config``, names; empty if they do not."""
        in_file = {} if self.config_file is None else load_properties(self.config_file)
        return self.named_brokers() or str(in_file.get("bootstrap.servers", ""))

    def at(self, **servers: str | None) -> ToolConnection:
        """The same with other ``zookeeper`` or ``bootstrap_servers``, which replace what a property says, too."""
        names = {"zookeeper": "zookeeper.connect", "bootstrap_servers": "bootstrap.servers"}
        replaced = {names[option] for option in servers}
        others = tuple(text for text in self.properties if replaced.isdisjoint(_by_name((text,))))
        return dataclasses.replace(self, properties=others, **cast(Any, servers))

    def complete(self, text: str) -> str:
        """A command of this program with the servers added, so that it can be pasted.

        Other texts stay as they are. Properties that hold a password, or are unknown, are not repeated.
        """
        if _COMMAND.search(text) is None:
            return text
        return " ".join((text, *map(shlex.quote, self._options())))

    def completed(self, reasons: Iterable[str]) -> list[str]:
        """Reasons whose commands in backquotes, if nothing else is missing in them, get the servers, too."""
        return [_QUOTED.sub(lambda quoted: f"`{self.complete(quoted[1])}`", reason) for reason in reasons]

    def _options(self) -> Iterator[str]:
        options = {
            "--zookeeper": self.zookeeper,
            "--bootstrap-server": self.bootstrap_servers,
            "--config": None if self.config_file is None else str(self.config_file),
        }
        for option, value in options.items():
            if value is not None:
                yield from (option, value)
        for name, value in _parse_properties(self.properties).items():
            if not _is_secret(name):
                yield from ("--property", f"{name}={value}")

    def group_names(self, groups: tuple[str, ...]) -> tuple[str, ...]:
        """The groups of repeatable ``--group`` options, else the one that :func:`group_name` finds."""
        if len(groups) > 1:
            return tuple(dict.fromkeys(groups))
        return (group_name(groups[0] if groups else None, self.zookeeper, self.config_file, self.properties),)


def _is_secret(name: str) -> bool:
    known = PROPERTIES.get(name.replace(".", "_"))
    return known is None or known.secret


def tool_options(
    function: Callable[..., None], *, brokers: Callable[[Command], Command] = bootstrap_option
) -> Callable[..., None]:
    """Add the options that name a cluster and the brokers to ask; they come as a :class:`ToolConnection`.

    ``brokers`` adds ``--bootstrap-server``, with what it means for the command.
    """

    @connection_options
    @brokers
    @functools.wraps(function)
    def command(
        zookeeper: str | None,
        config_file: Path | None,
        properties: tuple[str, ...],
        bootstrap_servers: str | None,
        **options: object,
    ) -> None:
        connection = ToolConnection(zookeeper, config_file, properties, bootstrap_servers)
        try:
            function(connection, **options)
        except GroupMissing as missing:
            raise GroupMissing(*connection.completed(missing.args)) from None

    return command
