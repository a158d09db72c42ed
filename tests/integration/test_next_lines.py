"""Each ``next:`` line that a command prints is run as it was printed, on real servers."""

import contextlib
import re
import shlex

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.fixtures.groupnodes import GroupNodes
from zkconsumer.cli.main import command

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_GIVES_VERDICT = re.compile(
    "zkconsumer (groups (status|verify|explain)|migrate (survey|plan|fleet (plan|run|status))) "
)
"""Commands that end with 3 where they found a problem, or where a guard of a plan does not hold."""
_SHORTER = {"groups status ": " --interval 20ms --without-verdict", "fleet mirror ": " --interval 1s --for 1s"}
"""Options that make a command end soon, and change nothing else."""


class Shell:
    """Runs commands in one directory, and the lines that they print, each once.

    Attributes:
        pasted: the lines that were run.
    """

    def __init__(self, directory, *servers):
        self.directory, self.servers, self.pasted = directory, servers, []

    def run(self, *words, code=0):
        """Run a command, and return what it prints."""
        return self._run([*words, *self.servers], (code,))

    def paste(self, printed):
        """Run each ``next:`` line, and those that it prints; returns the commands without their options."""
        found = []
        for line in re.findall(r"^ *next: (.*)$", printed, re.MULTILINE):
            found.append(line.split(" --")[0])
            if line not in self.pasted:
                self.pasted.append(line)
                more = next((more for words, more in _SHORTER.items() if words in line), "")
                found += self.paste(self._run(shlex.split(line + more)[1:], _codes(line)))
        return found

    def _run(self, words, codes):
        with contextlib.chdir(self.directory):
            done = CliRunner().invoke(command, words)
        assert done.exit_code in codes, (words, done.output, done.exception)
        assert "unreadable" not in done.output, "it has asked the servers"
        return done.output


def _codes(line):
    assert line.startswith("zkconsumer "), line
    return (0, 3) if _GIVES_VERDICT.match(line) else (0,)


@pytest.fixture
def shell(sandbox, tmp_path):
    """Its options name both homes, and a property; its directory has a space in its name."""
    directory = tmp_path / "a directory"
    directory.mkdir()
    servers = ("--zookeeper", sandbox.zookeeper_connect, "--bootstrap-server", sandbox.bootstrap_servers)
    return Shell(directory, *servers, "-p", "zookeeper.session.timeout.ms=30000")


@pytest.fixture
def group(zookeeper, unique_name, filled_topic):
    """A group with a space and a quote in its name, at 1 of three records in each of two partitions of ``topic``."""
    made = GroupNodes(zookeeper, f"{unique_name} it's")
    made.topic = filled_topic(3)
    for partition in (0, 1):
        made.commit(made.topic, partition, 1)
    yield made
    zookeeper.delete(made.root, recursive=True)


def consume(sandbox, group, offset=2):
    """A new consumer commits, and ends."""
    client = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group.name})
    client.commit(offsets=[TopicPartition(group.topic, 1, offset)], asynchronous=False)
    client.close()


def forget_in_kafka(sandbox, group):
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    admin.delete_consumer_groups([group.name])[group.name].result(30)


@pytest.mark.slow
def test_a_migration_there_and_back(shell, group, sandbox):
    surveyed = shell.run("migrate", "survey", "--group", group.name)
    assert shell.paste(surveyed) == ["zkconsumer migrate plan", f"zkconsumer migrate run {plan_of(group)}"]
    plan = f"{group.name}.plan.json"
    written = shell.run("migrate", "run", plan, "--execute")
    assert shell.paste(written) == [f"zkconsumer migrate verify {plan_of(group)}"]
    assert "to do: start the consumers of kafka:" in shell.run("migrate", "verify", plan)
    shell.run("migrate", "rollback", plan, "--execute")
    again = shell.paste(shell.run("migrate", "survey", "--group", group.name))
    assert again[0] == "zkconsumer migrate plan", "the former plan was run, and is kept"
    second = f"{group.name}.plan-1.json"
    shell.run("migrate", "run", second, "--execute")
    consume(sandbox, group)
    migrated = shell.paste(shell.run("migrate", "survey", "--group", group.name))
    assert migrated == ["zkconsumer groups explain"]
    back = shell.run("migrate", "reverse", second, "--output", "back.json")
    assert shell.paste(back) == ["zkconsumer migrate run back.json"]
    verified = shell.paste(shell.run("migrate", "run", "back.json", "--execute"))
    assert verified == ["zkconsumer migrate verify back.json", "zkconsumer groups delete"]


def plan_of(group):
    return shlex.quote(f"{group.name}.plan.json")


def test_a_fleet_there_and_back(shell, group, sandbox):
    directory = str(shell.directory / "fleet")
    servers, shell.servers = shell.servers, ()
    made = shell.run("migrate", "fleet", "init", directory, "--match", re.escape(group.name), *servers)
    fleet = f"zkconsumer migrate fleet {{}} {shlex.quote(directory)}"
    steps = shell.paste(made)
    assert steps == [fleet.format(verb) for verb in ("status", "plan", "run", "verify", "mirror")]
    assert "session.timeout.ms=30000" in shell.pasted[0], "the file has no property"
    verified = shell.run("migrate", "fleet", "verify", directory, "--wave", "1")
    (config,) = re.findall(r"to do: start the new consumers \(`([^`]*)`\)", verified)
    properties = shell.run(*shlex.split(config)[1:])
    assert f"group.id={group.name}" in properties.replace("\\ ", " ")
    assert "group.protocol=kafka" in properties
    assert f"bootstrap.servers={sandbox.bootstrap_servers}" in properties
    rolled_back = shell.run("migrate", "fleet", "rollback", directory, "--wave", "1", "--execute")
    assert "to do: start the old consumers" in rolled_back
    shell.pasted.clear()
    assert fleet.format("verify") in shell.paste(shell.run("migrate", "fleet", "plan", directory, "--wave", "1"))
    consume(sandbox, group)
    reversed_ = shell.paste(shell.run("migrate", "fleet", "reverse", directory, "--group", group.name))
    assert reversed_ == [fleet.format("reverse"), "zkconsumer groups delete"]


@pytest.mark.parametrize(
    "found",
    [
        "no offset",
        "outside",
        "malformed",
        "running",
        "empty",
        "ahead",
        "lost",
        pytest.param("deleted", marks=pytest.mark.slow),
    ],  # brokers deny a topic for some time before it counts as deleted
)
def test_a_survey(shell, group, sandbox, found, zookeeper):
    code, expected = 3, "offsets reset"
    match found:
        case "no offset":
            zookeeper.delete(f"{group.root}/offsets/{group.topic}/0")
            expected = "migrate plan"
        case "outside":
            group.commit(group.topic, 0, 9)
        case "malformed":
            group.write(f"offsets/{group.topic}/0", b"x")
        case "running":
            group.consume(group.topic, (0, 1), 1)
            code, expected = 0, "migrate plan"
        case "empty":
            zookeeper.delete(f"{group.root}/offsets", recursive=True)
            expected = "groups delete"
        case "deleted":
            zookeeper.delete(f"{group.root}/offsets", recursive=True)
            group.commit(f"{group.topic}-gone", 0, 1)
            expected = "groups delete"
        case "ahead":
            consume(sandbox, group, 3)
            expected = "groups describe"
        case "lost":
            shell.paste(shell.run("migrate", "survey", "--group", group.name))
            shell.run("migrate", "run", f"{group.name}.plan.json", "--execute")
            forget_in_kafka(sandbox, group)
            expected = "groups explain"
    printed = shell.run("migrate", "survey", "--group", group.name, code=code)
    assert shell.paste(printed)[0] == f"zkconsumer {expected}"
    assert ("to do: stop its members" in printed) == (found == "running")


def test_what_explain_finds_in_zookeeper(shell, group):
    group.register("c", {group.topic: 1})
    group.register("idle", {"gone": 1})
    group.own(group.topic, 0, "c")
    group.commit(group.topic, 0, 9)
    printed = shell.run("groups", "explain", "--group", group.name, code=3)
    assert {"offset-outside-log", "no-owner", "idle-member"} <= set(re.findall(r"^\d+\. (\S+):", printed, re.MULTILINE))
    assert "to do: stop all members" in printed
    for member in ("c", "idle"):
        group.zookeeper.delete(f"{group.root}/ids/{group.name}_{member}")
    group.disown(group.topic, 0)
    assert {"zkconsumer groups describe", "zkconsumer groups verify", "zkconsumer offsets reset"} == set(
        shell.paste(printed)
    )


def test_what_explain_finds_nothing_in(shell, group):
    group.consume(group.topic, (0, 1), 3)
    printed = shell.run("groups", "explain", "--group", group.name)
    assert shell.paste(printed) == ["zkconsumer groups status"]


def test_what_explain_finds_at_brokers(shell, group, sandbox):
    consume(sandbox, group, 9)
    shell.servers = ("--bootstrap-server", sandbox.bootstrap_servers)
    assert shell.paste(shell.run("groups", "explain", "--group", group.name, code=3)) == ["zkconsumer offsets reset"]


def test_what_explain_finds_of_a_migrated_group_that_brokers_have_lost(shell, group, sandbox):
    shell.paste(shell.run("migrate", "survey", "--group", group.name))
    shell.run("migrate", "run", f"{group.name}.plan.json", "--execute")
    forget_in_kafka(sandbox, group)
    printed = shell.run("groups", "explain", "--group", group.name, code=3)
    assert shell.paste(printed) == ["zkconsumer offsets reset"]


def test_a_long_command_is_not_cut(shell, group, zookeeper, topic_factory):
    topic = topic_factory(300)
    zookeeper.delete(f"{group.root}/offsets", recursive=True)
    for partition in range(300):
        group.commit(topic, partition, 9)
    printed = shell.run("migrate", "survey", "--group", group.name, code=3)
    assert shell.paste(printed) == ["zkconsumer offsets reset"]
    assert len(shell.pasted[0]) > 1024, "longer than any name that is printed"


def test_each_write_names_the_command_that_undoes_it(shell, group):
    words = ("offsets", "reset", "--group", group.name, "--all-topics", "--to-earliest", "--store", "zookeeper")
    printed = shell.run(*words, "--execute", "--snapshot", "before reset.json")
    (restore,) = re.findall(r"`(zkconsumer [^`]*)` undoes", printed)
    shell.paste(f"next: {restore} --execute")
    assert group.zookeeper.get(f"{group.root}/offsets/{group.topic}/0")[0] == b"1"
    deleted = shell.run("groups", "delete", "--group", group.name, "--execute", "--snapshot", "deleted.json")
    (restore,) = re.findall(r"`(zkconsumer [^`]*)` undoes", deleted)
    shell.paste(f"next: {restore} --execute")
    assert group.zookeeper.get(f"{group.root}/offsets/{group.topic}/0")[0] == b"1"
