"""``zkconsumer sandbox``: a real ZooKeeper and Kafka until Ctrl-C."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkconsumer.errors import SandboxError

if TYPE_CHECKING:
    from zkconsumer.sandbox import Sandbox

# Signals that end the sandbox; all three mean the same to it.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PORT = click.IntRange(1, 65_535)


@click.command(name="sandbox")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when ready, nothing else.")
@click.option("--kafka-version", metavar="V", help="Kafka version to run; the default is the newest one known.")
@click.option("--brokers", type=click.IntRange(0, 32), default=1, show_default=True, help="Number of Kafka brokers.")
@click.option("--zookeeper-port", type=_PORT, metavar="PORT", help="ZooKeeper's port. [default: a free one]")
@click.option("--kafka-port", type=_PORT, metavar="PORT", help="The first broker's port. [default: a free one]")
@click.option("--maven-url", metavar="URL", help="Maven repository in place of Maven Central. [ZKCONSUMER_MAVEN_URL]")
@click.option(
    "--jars-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that has Kafka's jars; nothing is fetched then. [ZKCONSUMER_JARS_DIR]",
)
def sandbox(
    as_json: bool,
    kafka_version: str | None,
    brokers: int,
    zookeeper_port: int | None,
    kafka_port: int | None,
    maven_url: str | None,
    jars_dir: Path | None,
) -> None:
    """Run a real ZooKeeper and Kafka in a temporary directory until Ctrl-C.

    Nothing is installed. The first run fetches Kafka's jars (36 MB) into the user's cache and checks them against
    pinned SHA-256 sums; later runs need no network. ZooKeeper comes out of pyspark's jars.
    """
    from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, JarSource, Sandbox, known_kafka_versions
    from zkconsumer.sandbox.progress import Progress

    version = kafka_version or DEFAULT_KAFKA_VERSION
    if version not in known_kafka_versions():
        known = ", ".join(known_kafka_versions())
        raise click.BadParameter(f"{version} is not known; known are: {known}", param_hint="'--kafka-version'")
    box = Sandbox(
        kafka_version=version,
        brokers=brokers,
        zookeeper_port=zookeeper_port,
        kafka_port=kafka_port,
        jars=JarSource.from_environment(maven_url, jars_dir),
        progress=Progress(),
    )
    _run(box, as_json)


def _run(box: "Sandbox", as_json: bool) -> None:
    """Run the sandbox until a signal; whatever happens, take it down undisturbed."""
    former = {number: signal.getsignal(number) for number in _ENDING}
    for number in _ENDING:
        # One way out for all. A shell that starts us in the background has SIGINT ignored, but somebody who sends it to
        # us means it; nohup's ignored SIGHUP, however, is an instruction.
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
    """Print where the servers are, flushed: whoever reads this from a pipe waits for it."""
    if as_json:
        places = {
            "zookeeper": box.zookeeper_connect,
            "kafka": box.bootstrap_servers,
            "directory": str(box.directory),
        }
        click.echo(json.dumps(places))
        return
    click.echo(f"ZooKeeper  {box.zookeeper_connect}")
    click.echo(f"Kafka      {box.bootstrap_servers}")
    click.echo(f"Directory  {box.directory}")
    click.echo("Ready. Ctrl-C ends it and removes the directory.")
