"""What the command line accepts and refuses before it connects to anything."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from zkconsumer.cli.connection import ToolConnection, consumer_config, group_name, tool_options
from zkconsumer.cli.main import command
from zkconsumer.errors import ConfigError, GroupMissing

COMMAND = (sys.executable, "-m", "zkconsumer")
FULL = Path("/dev/full")
CONSUME = ("consume", "--zookeeper", "h:1")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--group", "g", "--topic", "t", "--threads", "5"), "--topic TOPIC:THREADS"),
        (("--group", "g", "--topic", "t", "--topic", "t:2"), "given twice"),
        (("--group", "g", "--topic", "t", "--format", "parquet", "--output", "d", "--commit-each"), "Parquet file for"),
        (("--group", "g", "--topic", "t", "-p", "group.id=b"), "--group sets group.id to g"),
        (("--group", "g", "--topic", "t", "-p", "group_id=b"), "--group sets group.id to g"),
        (("--group", "g", "--topic", "t", "-p", "zookeeper.connect=i:1"), "--zookeeper sets"),
        (("--group", "g", "--topic", "t", "--from-beginning", "-p", "auto.offset.reset=largest"), "--from-beginning"),
        (("--group", "g", "--topic", "t", "--timeout-ms", "5", "-p", "consumer.timeout.ms=6"), "--timeout-ms sets"),
    ],
)
def test_contradictory_options_are_refused(arguments, named):
    ended = CliRunner().invoke(command, [*CONSUME, *arguments])
    assert (ended.exit_code, named in ended.output) == (2, True), ended.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--group", "g", "--topic", "a+b"), "'a+b' cannot be the name of a topic"),
        (("--group", "a/b", "--topic", "t"), "illegal"),
        (("--group", "g", "--topic", "t", "-p", "auto.offset.reset=Smallest"), "auto.offset.reset"),
    ],
)
def test_values_of_properties_are_checked_before_anything_is_asked(arguments, named):
    ended = CliRunner().invoke(command, [*CONSUME, *arguments])
    assert isinstance(ended.exception, ConfigError)  # exit code 2, see main()
    assert named in str(ended.exception)


def test_a_topic_is_required():
    ended = CliRunner().invoke(command, [*CONSUME, "--group", "g"])
    assert (ended.exit_code, "--topic" in ended.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        (("groups", "describe"), logging.WARNING),
        (("-v", "groups", "describe"), logging.INFO),
        (("groups", "describe", "-v"), logging.INFO),
        (("-v", "groups", "describe", "-v"), logging.DEBUG),
        (("groups", "-vv", "describe"), logging.DEBUG),
    ],
)
def test_verbose_may_be_written_before_and_after_the_command(arguments, level):
    ended = CliRunner().invoke(command, arguments)
    assert "give --group" in ended.output
    assert logging.getLogger().level == level


def test_a_tool_takes_the_group_from_the_file(tmp_path):
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=g\nzookeeper.connect=h:1\n")
    assert group_name(None, None, file, ()) == "g"
    assert group_name("other", None, file, ()) == "other"
    with pytest.raises(click.UsageError, match="--group"):
        group_name("other", None, file, ("group.id=third",))


def test_a_full_output_is_reported_in_a_line():
    if not FULL.exists():
        pytest.skip("this system has no /dev/full")
    with FULL.open("wb") as full:
        ended = subprocess.run([*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert "No space left on device" in ended.stderr


def test_a_closed_output_is_reported_in_a_line():
    shell = f"exec {sys.executable} -m zkconsumer {' '.join(CONSUME)} --group g --topic t >&-"
    ended = subprocess.run(shell, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert "standard output is closed" in ended.stderr


@pytest.mark.parametrize("arguments", ["--help", "--version", "consume --help"])
def test_what_cannot_be_printed_is_reported(arguments):
    shell = f"exec {sys.executable} -m zkconsumer {arguments} >&-"
    ended = subprocess.run(shell, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert "standard output is closed" in ended.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["consume", "--help"]])
def test_a_reader_that_closes_its_pipe_is_a_normal_end(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_command_for_groups_in_zookeeper_refuses_a_group_that_brokers_coordinate():
    arguments = ["migrate", "survey", "--group", "g", "--bootstrap-server", "h:1", "-p", "group.protocol=kafka"]
    ended = CliRunner().invoke(command, arguments)
    assert ended.exit_code != 0
    assert "kafka-consumer-groups" in str(ended.exception or ended.output)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--all-chroots"],
        ["describe", "--group", "g", "--offsets", "both"],
        ["describe", "--group", "g", "--format", "checker"],
        ["status", "--group", "g", "--offsets", "zookeeper"],
        ["watch", "--offsets", "both"],
    ],
)
def test_an_option_that_needs_zookeeper_is_refused_without_one(arguments):
    ended = CliRunner().invoke(command, ["groups", *arguments, "--bootstrap-server", "h:1"])
    assert ended.exit_code == 2
    assert "ZooKeeper" in ended.output


def test_the_command_that_lists_groups_can_be_pasted_where_one_does_not_exist():
    @click.command
    @tool_options
    def reading(connection):
        raise GroupMissing("group g does not exist; check its name (`zkconsumer groups list`), or give --zookeeper")

    ended = CliRunner().invoke(reading, ["--bootstrap-server", "h:1"])
    assert "(`zkconsumer groups list --bootstrap-server h:1`), or give --zookeeper" in str(ended.exception)


@pytest.mark.parametrize("name", ["describe", "status"])
def test_a_command_for_all_groups_names_the_option(name):
    ended = CliRunner().invoke(command, ["groups", name, "--bootstrap-server", "h:1"])
    assert (ended.exit_code, "give --group, --all, or --config FILE" in ended.output) == (2, True)


def test_a_missing_setting_names_its_option():
    with pytest.raises(ConfigError) as refused:
        consumer_config(None, None, ())
    first, second = refused.value.violations
    assert "give --group" in first
    assert "give --zookeeper" in second


@pytest.mark.parametrize(
    ("brokers", "hint"), [(None, "give --bootstrap-server in its place"), ("h:1", "this command is for groups in Zoo")]
)
def test_a_missing_zookeeper_may_mean_that_brokers_coordinate_the_group(brokers, hint):
    with pytest.raises(ConfigError) as refused:
        ToolConnection(None, None, ("fetch.min.bytes=x",), brokers).config()
    assert [hint in violation for violation in refused.value.violations].count(True) == 1
    assert "give --zookeeper" in next(one for one in refused.value.violations if hint in one)


def test_a_newer_name_of_a_value_is_explained():
    with pytest.raises(ConfigError, match="newer consumers' earliest is smallest here"):
        consumer_config("h:1", None, ("group.id=g", "auto.offset.reset=earliest"))
