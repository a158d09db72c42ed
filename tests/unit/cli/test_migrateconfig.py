"""``migrate config``: the text and the JSON that it prints, for each target."""

import ast
import json

import javaproperties
import pytest
from click.testing import CliRunner

from zkconsumer.cli.migrateconfig import config_command
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


class Options:
    """Collects what ``.option`` lines set."""

    def __init__(self):
        self.given = {}

    def option(self, name, value):
        self.given[name] = value
        return self


def settings(target, text):
    """Names and values, as a program gets them that the text is pasted into."""
    match target:
        case "confluent":
            return ast.literal_eval(text)
        case "spark":
            return eval(f"(Options()\n{text})", {"Options": Options}).given  # as a user pastes it
    return javaproperties.loads(text)


@pytest.mark.parametrize("target", TARGETS)
def test_json_has_the_settings_of_the_text(convert, target):
    ended = convert(target, "--json")
    assert ended.exit_code in (0, 3), ended.exception
    found = {}
    for line in json.loads(ended.stdout):
        found |= line["successors"]
    assert found == settings(target, convert(target).stdout)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "value",
    [
        "\N{LATIN SMALL LETTER E WITH ACUTE} a\\b=c:#!",
        'a "quoted" $word',
        "two\nlines",
        "\N{ZERO WIDTH SPACE}\N{GRINNING FACE}",
    ],
)
def test_every_client_gets_the_value_of_the_file(convert, target, value):
    more = javaproperties.join_key_value("client.id", value)
    name = {
        "java": "client.id",
        "confluent": "client.id",
        "spark": "kafka.client.id",
        "mm2": "source.consumer.client.id",
    }
    assert settings(target, convert(target, more=more).stdout)[name[target]] == value.strip()


def test_the_text_of_confluent_kafka_has_the_file_as_comments(convert):
    assert convert("confluent", more="consumer.id=a\n").stdout.splitlines()[:2] == [
        "{",
        "    #zookeeper.connect: no successor: the next client does not use ZooKeeper",
    ]


def test_options_of_spark_are_lines_of_a_chain(convert):
    assert f'.option("kafka.bootstrap.servers", "{SERVERS}")' in convert("spark").stdout.splitlines()
