"""Commands of a fleet whose reader ends, or that another command overtakes."""

import ast
import os
import sys
from contextlib import contextmanager, suppress

import pytest
from click.testing import CliRunner

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, TO_KAFKA
from zkconsumer.cli import migratefleet, migratefleetgroups
from zkconsumer.cli.main import EXIT_FAILED, EXIT_PROBLEM, command, main
from zkconsumer.operate.migrate import survey
from zkconsumer.operate.migrate.fleetfiles import GroupFiles, read_fleets

NEW = '[groups."{}"]\nwave = {}\nowner = "them"\ntarget = "kafka:{}"\n'


@pytest.fixture
def fleet(servers, tmp_path, monkeypatch):
    """A directory for the fleet of the servers in memory, whose group g has offsets in ZooKeeper."""

    @contextmanager
    def connected(_connection):
        session = session_in_memory(servers.server)
        try:
            yield session, servers.brokers
        finally:
            servers.server.end_session(session.session_id)
            session.close()

    @contextmanager
    def tool_session(_config):
        with connected(None) as (session, _):
            yield session

    for module in (migratefleetgroups, migratefleet):
        monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(migratefleet, "tool_session", tool_session)
    servers.store(OFFSETS)
    directory = tmp_path / "fleet"
    directory.mkdir()
    return directory


def file_of(fleet, *groups):
    """The file of a cluster that has these groups, in waves of their numbers."""
    named = (NEW.format(group, wave, group) for wave, group in enumerate(groups, 1))
    text = "\n".join(['[cluster]\nzookeeper = "h:2181"\n', *named])
    (fleet / "c.toml").write_text(text)
    return text


def test_a_way_back_is_planned_although_its_reader_has_ended(servers, fleet, monkeypatch):
    """`fleet reverse | head -1` would otherwise plan a part, with exit code 0."""
    file_of(fleet, "g")
    files = GroupFiles(fleet / "c" / "g")
    files.directory.mkdir(parents=True)
    servers.file = files.plan_file
    servers.begin(*TO_KAFKA)
    servers.run()
    servers.brokers.store("g", {**OFFSETS, next(iter(OFFSETS)): 40})
    servers.register()
    monkeypatch.setattr(sys, "argv", ["zkconsumer", "migrate", "fleet", "reverse", str(fleet), "--wave", "1"])
    reader, writer = os.pipe()
    os.close(reader)
    with suppress(BrokenPipeError), os.fdopen(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as ended:
            main(command)
    assert ended.value.code == EXIT_PROBLEM, "a member is registered in ZooKeeper, which refuses the way back"


def test_what_stays_in_kafka_is_said_of_groups_that_came_back_though_another_one_fails(servers, fleet):
    """Once that one is ready, the same command skips the others."""
    file_of(fleet, "g", "h")
    (fleet / "c.toml").write_text((fleet / "c.toml").read_text().replace("wave = 2", "wave = 1"))
    for name in ("g", "h"):
        files = GroupFiles(fleet / "c" / name)
        files.directory.mkdir(parents=True)
        files.plan_file.write_text("no plan")
    servers.file = GroupFiles(fleet / "c" / "g").plan_file
    servers.begin(*TO_KAFKA)
    servers.run()
    servers.brokers.store("g", {**OFFSETS, next(iter(OFFSETS)): 40})
    done = CliRunner().invoke(command, ["migrate", "fleet", "reverse", str(fleet), "--wave", "1", "--execute"])
    assert (done.exit_code, "1 of 2 groups written back, 1 failed" in done.stdout) == (EXIT_FAILED, True), done.output
    assert "groups delete --group g --store kafka" in done.stderr
    assert "to do: start" not in done.stderr


def fleet_command(*words):
    return CliRunner().invoke(command, ["migrate", "fleet", *map(str, words)])


def test_what_is_next_is_what_the_groups_wait_for(servers, fleet):
    """A run would be refused: first because offsets have moved, then because of a window."""
    file_of(fleet, "g")
    of_wave = (fleet, "--wave", 1)
    assert "next: zkconsumer migrate fleet run" in fleet_command("plan", *of_wave).stderr
    servers.store({next(iter(OFFSETS)): 99})
    assert f"next: zkconsumer migrate fleet plan {fleet} --wave 1\n" in fleet_command("status", fleet).stderr
    refused = fleet_command("run", *of_wave, "--execute")
    assert f"next: zkconsumer migrate fleet status {fleet} --wave 1\n" in refused.stderr, refused.output
    assert "dry run: nothing was written\n" in fleet_command("run", *of_wave).stderr
    fleet_command("plan", *of_wave)
    window = 'window = "2020-01-01T00:00Z/2020-01-02T00:00Z"\n'
    (fleet / "c.toml").write_text((fleet / "c.toml").read_text() + window)
    status = fleet_command("status", fleet)
    assert ("its window ended 2020-01-02" in status.stdout, "next:" in status.stderr) == (True, False), status.output


def test_commands_that_are_repeated_skip_what_is_done(servers, fleet):
    """Neither a window nor new consumers make a healthy group one that is refused."""
    file_of(fleet, "g")
    of_wave = (fleet, "--wave", 1)
    fleet_command("plan", *of_wave)
    assert fleet_command("run", *of_wave, "--execute").exit_code == 0
    window = 'window = "2020-01-01T00:00Z/2020-01-02T00:00Z"\n'
    (fleet / "c.toml").write_text((fleet / "c.toml").read_text() + window)
    again = fleet_command("run", *of_wave, "--execute")
    assert (again.exit_code, "0 of 1 groups written, 1 skipped" in again.stdout) == (0, True), again.output
    servers.brokers.store("g", {**OFFSETS, next(iter(OFFSETS)): 40})
    status = fleet_command("status", fleet)
    assert "1 groups: 1 continue in Kafka\n" in status.stdout
    assert f"next: zkconsumer migrate fleet mirror {fleet} --wave 1 --execute\n" in status.stderr
    assert "next: zkconsumer groups delete --group g --store zookeeper --zookeeper h:2181\n" in status.stderr
    verified = fleet_command("verify", *of_wave)
    assert (verified.exit_code, "g: skipped: it is consumed" in verified.stdout) == (0, True), verified.output


def test_a_group_of_wave_0_is_shown_and_named(fleet):
    """Otherwise it would be forgotten."""
    (fleet / "c.toml").write_text(file_of(fleet, "g").replace("wave = 1", "wave = 0"))
    shown = fleet_command("status", fleet, "--wave", 0)
    assert "wave,owner,target,protocol,state,reason,members" in fleet_command("status", fleet, "--csv").stdout
    assert "it is in wave 0: the comment in its file has why" in shown.stdout
    assert f"next: zkconsumer migrate fleet plan {fleet} --group g --cluster c\n" in shown.stderr
    refused = fleet_command("plan", fleet, "--wave", 0)
    assert (refused.exit_code, "only with --group" in refused.stderr) == (2, True)


def test_properties_of_new_consumers_can_be_used_as_they_are_printed(fleet):
    """librdkafka knows no escapes of Java."""
    file_of(fleet, "g")
    words = ("config", fleet, "--wave", 1, "--bootstrap-server", "b1:9092,b2:9092")
    new = {"group.id": "g", "group.protocol": "classic", "bootstrap.servers": "b1:9092,b2:9092"}
    heading, printed = fleet_command(*words, "--target", "confluent").stdout.split("\n", 1)
    assert (heading, ast.literal_eval(printed)) == ("# c g, owner them", new)
    warned = fleet_command("config", fleet, "--wave", 1)
    warning = f"no brokers are known: set bootstrap_servers in {fleet}/c.toml, or give --bootstrap-server"
    assert (warned.exit_code, warned.stderr) == (EXIT_PROBLEM, f"warning: {warning}\n")
    assert fleet_command(*words, "--target", "java").stdout.splitlines()[1:4] == [f"{k}={v}" for k, v in new.items()]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 0, "c.toml: no new groups"),
        (("--name", "c"), 0, "c.toml: no new groups"),
        (("--name", "d"), 0, "d.toml: no new groups"),
        (("--name", "c", "--zookeeper", "i:2181"), 1, "c.toml has groups of h:2181: give another --name"),
        (("--zookeeper", "i:2181"), 0, "cluster.toml: 1 groups"),
    ],
)
def test_a_group_gets_into_one_file_alone(fleet, words, code, text):
    """As with the command that `migrate survey --all` names, which has no --name."""
    file_of(fleet, "g")
    done = fleet_command("init", fleet, "--zookeeper", "h:2181", *words)
    assert (done.exit_code, text in f"{done.output}{done.exception}") == (code, True), (done.output, done.exception)


def test_a_group_that_two_files_have_is_refused(fleet):
    text = file_of(fleet, "g")
    (fleet / "d.toml").write_text(text.replace("h:2181", "i:2181,h:2181"))
    assert "g in c.toml and d.toml; remove" in str(fleet_command("status", fleet).exception)
    assert fleet_command("status", fleet, "--cluster", "d").exit_code == 0
    (fleet / "d.toml").write_text(text.replace("h:2181", "h:2181/kafka"))
    assert fleet_command("status", fleet).exit_code == 0


@pytest.mark.parametrize("exists", [True, False])
def test_groups_that_another_command_has_added_meanwhile_are_not_added_again(fleet, monkeypatch, exists):
    """1. A survey takes minutes; 2. another `fleet init` completes, and its file is edited."""
    if exists:
        file_of(fleet, "h")
    edited = []

    def read_meanwhile(session, config, names, **options):
        facts = read(session, config, names, **options)
        edited.append(file_of(fleet, *(["h"] if exists else []), "g"))
        return facts

    read = survey.read_survey_facts
    monkeypatch.setattr(survey, "read_survey_facts", read_meanwhile)
    words = ["migrate", "fleet", "init", str(fleet), "--name", "c", "--zookeeper", "h:2181"]
    done = CliRunner().invoke(command, words)
    assert (done.exit_code, "no new groups" in done.stdout) == (0, True), (done.output, done.exception)
    assert ("next:" in done.stdout, done.stderr.count("next: zkconsumer migrate fleet status")) == (False, 1)
    (read_again,) = read_fleets(fleet)
    assert [group.group for group in read_again.groups] == (["h", "g"] if exists else ["g"])
    assert (fleet / "c.toml").read_text().strip() == edited[0].strip()
