"""The servers of a command, in the commands that it names."""

import shlex
from pathlib import Path

import pytest

from zkconsumer.cli.connection import ToolConnection

COMMAND = "zkconsumer groups verify --group 'a b'"
CONNECTION = ToolConnection("h1:2181,h2:2181/kafka", Path("my file"), ("client.id=x y", "sasl.password=s"), "b:9092")


@pytest.mark.parametrize("before", ["", "stop all members, then "])
def test_a_command_gets_the_servers_and_no_secret(before):
    options = ["--zookeeper", "h1:2181,h2:2181/kafka", "--bootstrap-server", "b:9092", "--config", "my file"]
    options += ["--property", "client.id=x y"]
    text = CONNECTION.complete(before + COMMAND)
    assert text.startswith(before + COMMAND)
    assert shlex.split(text.removeprefix(before)) == [*shlex.split(COMMAND), *options]


@pytest.mark.parametrize("text", ["", "restart it with zkconsumer", "kafka-topics.sh --describe --topic zkconsumer"])
def test_what_is_no_command_stays(text):
    assert CONNECTION.complete(text) == text


def test_a_command_without_options_adds_nothing():
    assert ToolConnection(None, None, (), None).complete(COMMAND) == COMMAND
