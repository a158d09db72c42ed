"""``zkconsumer sandbox``: a real ZooKeeper and Kafka until Ctrl-C."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkconsumer.errors import SandboxError

if TYPE_CHECKING:
    from zkconsumer.sandbox import Sandbox

# Signals that end the sandbox, all in the same way.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PORT = click.IntRange(1, 65_535)

kafka_version_option = click.option(
    "--kafka-version", metavar="V", help="Kafka version to run; the default is the newest one that uses ZooKeeper."
)


def require_kafka_version(version: str | None) -> str:
    """The version that the option names, or the default.

    Raises:
        click.BadParameter: the sandbox does not have it.
    """
    from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, known_kafka_versions

    if version is not None and version not in known_kafka_versions():
        known = ", ".join(known_kafka_versions())
        raise click.BadParameter(f"{version} is not known; known are: {known}", param_hint="'--kafka-version'")
    return version or DEFAULT_KAFKA_VERSION


@click.command(name="sandbox")
@click.option(
    "--json", "as_json", is_flag=True, help="When ready, print one line of JSON; progress is on standard error."
)
@kafka_version_option
@click.option(
    "--zookeepers",
    type=click.IntRange(0, 7),
    default=1,
    show_default=True,
    help="Number of ZooKeeper servers; more than one are an ensemble. 0, with Kafka 4, for groups that brokers "
    "coordinate.",
)
@click.option("--brokers", type=click.IntRange(0, 32), default=1, show_default=True, help="Number of Kafka brokers.")
@click.option("--zookeeper-port", type=_PORT, metavar="PORT", help="The first ZooKeeper's port. [default: a free one]")
@click.option("--kafka-port", type=_PORT, metavar="PORT", help="The first broker's port. [default: a free one]")
@click.option("--maven-url", metavar="URL", help="Maven repository instead of Maven Central. [ZKCONSUMER_MAVEN_URL]")
@click.option(
    "--jars-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with Kafka's jars; then nothing is downloaded. [ZKCONSUMER_JARS_DIR]",
)
def sandbox(
    as_json: bool,
    kafka_version: str | None,
    zookeepers: int,
    brokers: int,
    zookeeper_port: int | None,
    kafka_port: int | None,
    maven_url: str | None,
    jars_dir: Path | None,
) -> None:
    """Run a real ZooKeeper and Kafka in a temporary directory until Ctrl-C or SIGTERM.

    Nothing is installed. The first run downloads Kafka's jars (36 MB) into the user's cache and checks them against
    pinned SHA-256 sums; later runs need no network. ZooKeeper is part of pyspark's jars.

    If a server ends, the sandbox ends, with all servers; its directory stays until a sandbox is started again. To try
    what happens when a server fails, stop its java process with SIGSTOP, and let it continue with SIGCONT;
    it is the child of a Python process that has the same arguments.
    """
    from zkconsumer.errors import UsageError
    from zkconsumer.sandbox import JarSource, Sandbox
    from zkconsumer.sandbox.progress import Progress

    try:
        box = Sandbox(
            kafka_version=require_kafka_version(kafka_version),
            zookeepers=zookeepers,
            brokers=brokers,
            zookeeper_port=zookeeper_port,
            kafka_port=kafka_port,
            jars=JarSource.from_environment(maven_url, jars_dir),
            progress=Progress(),
        )
    except UsageError as error:
        raise click.BadParameter(str(error), param_hint="'--zookeepers'") from None
    _run(box, as_json)


def _run(box: "Sandbox", as_json: bool) -> None:
    """Run the sandbox until a signal; in any case stop it without a further interruption."""
    former = {number: signal.getsignal(number) for number in _ENDING}
    for number in _ENDING:
        # The same handler for all. A shell that starts a process in the background makes it ignore SIGINT; one that is
        # sent must still end it. The SIGHUP that nohup makes it ignore must stay ignored.
        if not (number == signal.SIGHUP and former[number] == signal.SIG_IGN):
            signal.signal(number, signal.default_int_handler)
    ready = failed = False
    try:
        box.start()
        ready = True
        _announce(box, as_json)
        box.wait()
    except KeyboardInterrupt:
        if not ready:
            raise SandboxError("stopped before the sandbox was ready") from None
    except SandboxError:
        failed = True
        raise
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        box.close(keep_directory=failed)
        for number, handler in former.items():
            signal.signal(number, handler)


def _announce(box: "Sandbox", as_json: bool) -> None:
    """Print where the servers are, flushed: a program that reads this from a pipe waits for it."""
    if as_json:
        places = {"zookeeper": box.zookeeper_connect, "kafka": box.bootstrap_servers, "directory": str(box.directory)}
        click.echo(json.dumps(places))
        return
    if box.zookeeper_connect:
        click.echo(f"ZooKeeper  {box.zookeeper_connect}")
    click.echo(f"Kafka      {box.bootstrap_servers}")
    click.echo(f"Directory  {box.directory}")
    click.echo("Ready. Ctrl-C ends it and removes the directory.")
