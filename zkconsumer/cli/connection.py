"""The options that name a cluster, shared by all commands, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zkconsumer.config import ConsumerConfig

if TYPE_CHECKING:
    from zkconsumer.zookeeper.session import ZkSession

F = TypeVar("F", bound=Callable[..., Any])

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
        click.UsageError: a property is not of the form K=V.
    """
    given: dict[str, object] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--property {text}: write it as NAME=VALUE")
        given[name] = value
    options = {"zookeeper.connect": zookeeper, **{name.replace("_", "."): value for name, value in overrides.items()}}
    given.update((name, value) for name, value in options.items() if value is not None)
    return ConsumerConfig.from_properties({} if config_file is None else str(config_file), **given)


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
