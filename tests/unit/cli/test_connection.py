"""The servers of a command, in the commands that it names."""

import shlex
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkconsumer.cli import migratefleet
from zkconsumer.cli.connection import ToolConnection, consumer_config
from zkconsumer.cli.main import command
from zkconsumer.cli.migratefleetgroups import ChosenGroups
from zkconsumer.cli.migrationoptions import connection_of
from zkconsumer.errors import ConfigError, ZooKeeperUnavailable
from zkconsumer.operate.migrate.fleet import GroupOutcome
from zkconsumer.operate.migrate.rules.fleetfile import FleetFile
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, Place, planning

COMMAND = "zkconsumer groups verify --group 'a b'"
CONNECTION = ToolConnection("h1:2181,h2:2181/kafka", Path("my file"), ("client.id=x y", "sasl.password=s"), "b:9092")


def test_a_command_gets_the_servers_and_no_secret():
    options = ["--zookeeper", "h1:2181,h2:2181/kafka", "--bootstrap-server", "b:9092", "--config", "my file"]
    options += ["--property", "client.id=x y"]
    assert shlex.split(CONNECTION.complete(COMMAND)) == [*shlex.split(COMMAND), *options]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "restart it with zkconsumer",
        "stop members, then zkconsumer groups verify --group g",
        "kafka-topics.sh --describe --topic zkconsumer",
    ],
)
def test_what_is_no_command_stays(text):
    assert CONNECTION.complete(text) == text


def test_a_command_without_options_adds_nothing():
    assert ToolConnection(None, None, (), None).complete(COMMAND) == COMMAND


BOTH_SPELLINGS = pytest.mark.parametrize("name", ["zookeeper.connect", "zookeeper_connect"])


@BOTH_SPELLINGS
def test_other_servers_replace_those_of_a_property(name):
    connection = ToolConnection(None, None, (f"{name}=h1:1", "client.id=me"), None)
    assert connection.config().zookeeper_connect == "h1:1"
    assert connection.at(zookeeper="h2:1/kafka").config().zookeeper_connect == "h2:1/kafka"
    assert connection.at(zookeeper=None).properties == ("client.id=me",)
    plan = MigrationPlan(
        End("zookeeper", "g", "h2:1"), End("kafka", "g"), Place("", None, None), "h3:1", 1, "fail", None, (), {}, ()
    )
    assert connection_of(connection, plan).config().zookeeper_connect == "h2:1"


@BOTH_SPELLINGS
def test_servers_of_a_property_replace_those_of_a_fleet(tmp_path, name):
    connection = ToolConnection(None, None, (f"{name}=h1:1", "bootstrap_servers=b1:1"), None)
    chosen = ChosenGroups(connection, tmp_path, None, (), (), 1)
    config = chosen.connection_of(FleetFile("c", "h2:1", "b2:1", "", ())).config()
    assert (config.zookeeper_connect, config.bootstrap_servers) == ("h1:1", "b1:1")


@BOTH_SPELLINGS
def test_the_page_shows_the_fleet_at_its_own_servers(tmp_path, monkeypatch, name):
    servers = 'zookeeper = "h2:1"\nbootstrap_servers = "b2:1"'
    (tmp_path / "c.toml").write_text(f"[cluster]\n{servers}\n[groups.g]\nwave = 1\n")
    asked = []

    @contextmanager
    def connected(connection):
        asked.append(connection.config())
        raise ZooKeeperUnavailable("away")
        yield

    monkeypatch.setattr(migratefleet, "connected", connected)
    migratefleet.fleet_document(ToolConnection(None, None, (f"{name}=h1:1", "bootstrap.servers=b1:1"), None), tmp_path)
    assert [(config.zookeeper_connect, config.bootstrap_servers) for config in asked] == [("h2:1", "b2:1")]


def test_a_command_in_a_reason_about_a_group_of_a_fleet_is_that_of_the_fleet(tmp_path):
    chosen = ChosenGroups(ToolConnection(None, None, (), None), tmp_path, 1, (), (), 1)
    to_kafka, back = (f"{planning(*ends)}" for ends in permutations((End("zookeeper", "g"), End("kafka", "g"))))
    reasons = (f"`{to_kafka}` begins a new migration", f"`{back}` overwrites them", "see `zkconsumer migrate verify`")
    outcome = chosen.pasteable(
        GroupOutcome("main", "g", "refused", reasons=reasons), ToolConnection("z:1", None, (), None)
    )
    assert outcome.reasons == (
        f"`zkconsumer migrate fleet plan {tmp_path} --group g --cluster main` begins a new migration",
        f"`{back} --zookeeper z:1` overwrites them",
        f"see `zkconsumer migrate fleet verify {tmp_path} --group g --cluster main`",
    )


def test_a_consumer_of_brokers_alone_is_told_which_protocol_needs_no_zookeeper():
    ended = CliRunner().invoke(command, ["consume", "--bootstrap-server", "b:1", "--group", "g", "--topic", "t"])
    assert isinstance(ended.exception, ConfigError)
    assert "needs none, but --group-protocol kafka or consumer" in str(ended.exception)


def test_an_option_replaces_a_property_in_either_spelling_and_two_spellings_are_refused():
    made = consumer_config("z:1", None, ("zookeeper_connect=z:1", "group.id=a"), group_id="b")
    assert (made.zookeeper_connect, made.group_id) == ("z:1", "b")
    with pytest.raises(ConfigError, match=r"group\.id is given in both spellings"):
        consumer_config("z:1", None, ("group.id=a", "group_id=b"))
