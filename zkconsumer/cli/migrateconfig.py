"""``migrate config``: the next client's configuration from the properties of a JVM consumer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.groupoptions import echo_lines, json_option, warn
from zkconsumer.cli.main import EXIT_PROBLEM

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.rules.nextproperties import ClientTarget, NextLine


@click.command("config")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--target",
    required=True,
    type=click.Choice(["java", "confluent", "spark", "mm2"]),
    help='KafkaConsumer; confluent-kafka; options of Spark\'s format("kafka"); MirrorMaker 2.',
)
@click.option("--bootstrap-server", metavar="B", help="Brokers for the new consumers, host:port,host:port.")
@json_option
def config_command(file: Path, target: str, bootstrap_server: str | None, *, as_json: bool) -> None:
    """Convert the properties FILE of a JVM consumer for the new consumers.

    For Java and MirrorMaker 2 the result is a properties file, for confluent-kafka a dict of Python, for Spark lines
    with .option(NAME, VALUE). Each line of FILE is a comment in it, with what changed or why there is no successor,
    above the lines that replace it. Defaults that differ are written out at the end. Passwords are copied. The exit
    code is 3 if a value is required that FILE does not have.
    """
    from zkconsumer.config.consumerconfig import load_properties
    from zkconsumer.operate.migrate.rules.nextconfig import next_config
    from zkconsumer.operate.migrate.rules.nextproperties import TARGETS

    (chosen,) = (known for known in TARGETS if known == target)
    lines = next_config(load_properties(file), chosen, bootstrap_server)
    if as_json:
        click.echo(json.dumps([{**line._asdict(), "successors": dict(line.successors)} for line in lines]))
    else:
        texts = [text for line in lines for text in _text_lines(line, chosen)]
        echo_lines(["{", *(f"    {text}" for text in texts), "}"] if chosen == "confluent" else texts)
    missing = [name for line in lines if line.is_missing for name in line.successors]
    warn(f"{name} has no value yet, and is required" for name in missing)
    if missing:
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _text_lines(line: NextLine, target: ClientTarget) -> Iterator[str]:
    import javaproperties

    if line.name or line.note:
        yield from javaproperties.to_comment(": ".join(text for text in (line.name, line.note) if text)).split("\n")
    for name, value in line.successors.items():
        match target:
            case "java" | "mm2":
                yield javaproperties.join_key_value(name, value)
            case "confluent":
                yield f"{literal(name)}: {literal(value)},"
            case "spark":
                yield f".option({literal(name)}, {literal(value)})"


def literal(text: str) -> str:
    """The text as a literal of Python; those whose characters can be printed are literals of Scala, too."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else _escaped(ord(letter)) for letter in quoted)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
