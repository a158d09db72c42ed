"""``migrate config``: the text and the JSON that it prints, for each target."""

import json

import javaproperties
import pytest
from click.testing import CliRunner

from zkconsumer.cli.migrateconfig import config_command
from zkconsumer.errors import UsageError
from zkconsumer.operate.migrate.rules.nextproperties import TARGETS

SERVERS = "b1:9092,b2:9092"


@pytest.fixture
def convert(tmp_path):
    """Convert properties: ``convert(target, *options, **more properties) -> the command's result``."""

    def run(target, *options, more=""):
        file = tmp_path / "consumer.properties"
        file.write_text(f"zookeeper.connect=h:2181\ngroup.id=g\nbootstrap.servers={SERVERS}\n{more}", encoding="utf-8")
        return CliRunner().invoke(config_command, [str(file), "--target", target, *options])

    return run


def settings(text):
    """Names and values, as a script of a user reads them for librdkafka or Spark."""
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("target", TARGETS)
def test_json_has_the_settings_of_the_text(convert, target):
    ended = convert(target, "--json")
    assert ended.exit_code in (0, 3), ended.exception
    found = {}
    for line in json.loads(ended.stdout):
        found |= line["successors"]
    text = convert(target).stdout
    assert found == (javaproperties.loads(text) if target in ("java", "mm2") else settings(text))


@pytest.mark.parametrize(("target", "name"), [("confluent", ""), ("spark", "kafka.")])
def test_librdkafka_and_spark_get_values_without_escapes(convert, target, name):
    found = settings(convert(target, more="client.id = \\u00e9 a\\\\b=c:#!").stdout)
    assert (found[f"{name}bootstrap.servers"], found[f"{name}client.id"]) == (
        SERVERS,
        "\N{LATIN SMALL LETTER E WITH ACUTE} a\\b=c:#!",
    )


def test_a_line_break_in_a_value_is_refused_and_not_a_second_line(convert):
    more = "client.id=a\\nacks=0"
    assert isinstance(convert("confluent", more=more).exception, UsageError)
    assert convert("confluent", "--json", more=more).exit_code == 0
    assert javaproperties.loads(convert("java", more=more).stdout)["client.id"] == "a\nacks=0"
