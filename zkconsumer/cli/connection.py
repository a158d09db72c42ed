"""The options that name a cluster, shared by all commands, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigError

if TYPE_CHECKING:
    from zkconsumer.zookeeper.session import ZkSession

_WHERE = {
    "group.id is missing": "; give --group, or --config FILE with group.id",
    "zookeeper.connect is missing": "; give --zookeeper, or --config FILE with zookeeper.connect",
}
"""Which option gives what is missing."""

F = TypeVar("F", bound=Callable[..., Any])

METRICS_PORT_VARIABLE = "ZKCONSUMER_METRICS_PORT"
"""Environment variable with the metrics port of a process, for images whose health check must know it."""

_TOOL_GROUP = "zkconsumer-tools"


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
            help="Properties file of a JVM consumer.",
        ),
        click.option("--zookeeper", metavar="HOST:PORT[,..][/CHROOT]", help="ZooKeeper of the Kafka cluster."),
    ):
        function = option(function)
    return function


def consumer_config(
    zookeeper: str | None, config_file: Path | None, properties: tuple[str, ...], **overrides: object
) -> ConsumerConfig:
    """The configuration that the options describe; a later source wins: file, properties, options.

    Raises:
        ConfigError: with every violation.
        click.UsageError: a property is not of the form K=V, or contradicts ``--zookeeper``.
    """
    refuse_conflicts(properties, {"zookeeper.connect": ("--zookeeper", zookeeper)})
    given: dict[str, object] = dict(_parse_properties(properties))
    options = {"zookeeper.connect": zookeeper, **{name.replace("_", "."): value for name, value in overrides.items()}}
    given.update((name, value) for name, value in options.items() if value is not None)
    try:
        return ConsumerConfig.from_properties({} if config_file is None else str(config_file), **given)
    except ConfigError as error:
        raise ConfigError([violation + _WHERE.get(violation, "") for violation in error.violations]) from error


def _parse_properties(properties: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.UsageError(f"--property {text}: write it as NAME=VALUE")
        given[name] = value
    return given


def refuse_conflicts(properties: tuple[str, ...], options: Mapping[str, tuple[str, object]]) -> None:
    """Refuse an option and a ``--property`` of the same command line that set one property to different values.

    A file with another value is no contradiction: the command line overrides it.

    Args:
        properties: texts NAME=VALUE.
        options: by property, the option that sets it too and its value; None if it is not given.

    Raises:
        click.UsageError: naming both.
    """
    given = {name.replace("_", "."): value.strip() for name, value in _parse_properties(properties).items()}
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


def tool_config(zookeeper: str | None, config_file: Path | None, properties: tuple[str, ...]) -> ConsumerConfig:
    """The configuration of a tool that is in no group; raises as :func:`consumer_config`."""
    return consumer_config(zookeeper, config_file, properties, group_id=_TOOL_GROUP, client_id=_TOOL_GROUP)


@contextmanager
def tool_session(config: ConsumerConfig) -> Iterator[ZkSession]:
    """An open ZooKeeper session.

    Raises:
        ZooKeeperUnavailable, ChrootMissing: see there.
    """
    from zkconsumer.zookeeper.session import ZkSession

    session = ZkSession.from_config(config)
    session.open()
    try:
        yield session
    finally:
        session.close()
