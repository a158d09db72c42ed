"""How commands end that cannot read all groups."""

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from tests.fixtures.groups import znodes_of_a_group
from tests.fixtures.scriptedserver import SilentServer, running
from zkconsumer.cli import groupdescribe, groupsource, migrate, offsets
from zkconsumer.cli.main import command
from zkconsumer.errors import GroupMissing, ZkConsumerError, ZooKeeperRefused
from zkconsumer.operate.groups import groupznodes, zookeepergroups
from zkconsumer.operate.offsets import offsetexport
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths

SHORT = ("--interval", "10ms", "--samples", "2", "--without-verdict")
OF_ALL = [
    ("groups", "list", "--long"),
    ("groups", "list", "--topic", "t"),
    ("groups", "describe", "--all"),
    ("groups", "status", "--all", *SHORT),
    ("offsets", "export"),
    ("migrate", "survey", "--all"),
]
NAMED = [
    ("groups", "describe"),
    ("groups", "status", *SHORT),
    ("groups", "verify"),
    ("groups", "explain"),
    ("offsets", "export"),
    ("migrate", "survey"),
]


@pytest.fixture
def znodes():
    """A group ``g``, and one ``h`` of which the offsets may not be read."""
    made = znodes_of_a_group()
    made.write("/consumers/h/offsets/t/0", b"1")
    made.refused.add("/consumers/h/offsets")
    return made


@pytest.fixture
def run(monkeypatch, znodes):
    for module in (groupsource, offsets, migrate):
        monkeypatch.setattr(module, "tool_session", lambda _config: nullcontext(znodes))
    for module in (groupsource, groupdescribe):
        monkeypatch.setattr(module, "LateSession", lambda *_: Mock(return_value=znodes))
    return lambda *words: CliRunner().invoke(command, [*words, "--zookeeper", "h:1"])


VERIFY_ALL = ("groups", "verify", "--all")


@pytest.mark.parametrize("words", [*OF_ALL, VERIFY_ALL], ids=" ".join)
def test_a_group_that_cannot_be_read_does_not_hide_others_and_is_told(run, words):
    ended = run(*words)
    assert (ended.exit_code, "g" in ended.stdout) == (3, True), ended.exception
    assert "group h cannot be read: " in ended.stderr


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_the_same_holds_for_groups_that_are_named(run, words):
    for other, why in (("h", "/consumers/h/offsets"), ("nowhere", "does not exist")):
        ended = run(*words, "--group", "g", "--group", other)
        assert (ended.exit_code, "g" in ended.stdout) == (3, True), ended.exception
        assert f"group {other} cannot be read: " in ended.stderr
        assert why in ended.stderr


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_a_command_in_a_warning_has_the_servers(run, monkeypatch, words):
    def existing_groups(_session, names):
        missing = {name: GroupMissing("check its name (`zkconsumer groups list`)") for name in names if name != "g"}
        return {"g": GroupPaths("g")} if "g" in names else {}, missing

    for module in (groupznodes, offsetexport):
        monkeypatch.setattr(module, "existing_groups", existing_groups)
    ended = run(*words, "--group", "g", "--group", "nowhere")
    assert "cannot be read: check its name (`zkconsumer groups list --zookeeper h:1`)" in ended.stderr


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_a_command_fails_if_none_of_the_groups_that_are_named_can_be_read(run, words):
    for named, kind in (("h", ZooKeeperRefused), ("nowhere", GroupMissing)):
        ended = run(*words, "--group", named)
        assert (type(ended.exception), ended.stdout) == (kind, "")
    assert issubclass(kind, ZkConsumerError), "which main() makes exit code 1"


@pytest.mark.parametrize("words", OF_ALL, ids=" ".join)
def test_brokers_that_are_silent_hide_groups(run, words, znodes):
    znodes.refused.clear()
    ended = run(*words, "--bootstrap-server", "127.0.0.1:1")
    is_of_zookeeper = words[0] != "groups"
    assert ("groups that brokers coordinate cannot be listed now" in ended.stderr) != is_of_zookeeper
    assert (ended.exit_code, "g" in ended.stdout) == (0 if words[0] == "offsets" else 3, True)


@pytest.mark.parametrize("words", [("describe",), ("status", *SHORT), ("verify",), ("explain",)], ids=" ".join)
def test_a_command_asks_a_silent_broker_once_for_both_kinds_of_groups(run, znodes, monkeypatch, words):
    znodes.refused.clear()
    monkeypatch.setattr(zookeepergroups, "TIMEOUT_MS", 200)
    with running(SilentServer) as silent:
        servers = f"{silent.broker.host}:{silent.broker.port}"
        ended = run("groups", *words, "--group", "g", "--group", "h", "--bootstrap-server", servers)
    assert "no answer in time" in ended.output + str(ended.exception)
    assert silent.asked == (2 if words[0] == "status" else 1)  # once a sample


def test_all_groups_are_verified_with_the_worst_exit_code(run, znodes):
    znodes.refused.clear()
    ended = run(*VERIFY_ALL)
    assert ended.stdout == "g: Rebalance operation successful !\nh: Rebalance operation failed !\n"
    assert (ended.exit_code, ended.stderr) == (3, "h: no consumer of group h is registered\n")
    znodes.delete("/consumers/h")
    ended = run(*VERIFY_ALL, "--json")
    assert ended.stdout == '[{"group": "g", "successful": true, "findings": []}]\n'
    assert ended.exit_code == 0


def test_a_group_without_members_and_lag_fails_only_if_it_is_named(run, znodes):
    znodes.delete("/consumers/h")
    znodes.write("/consumers/old/offsets", b"")
    ended = run(*VERIFY_ALL)
    assert ended.stdout.splitlines()[1:] == ["old: Rebalance operation successful !"]
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert run("groups", "verify", "--group", "old").exit_code == 3


def test_groups_that_silent_brokers_do_not_list_are_not_verified(run):
    ended = run(*VERIFY_ALL, "--bootstrap-server", "127.0.0.1:1")
    assert (ended.exit_code, "groups that brokers coordinate cannot be listed now" in ended.stderr) == (3, True)


def test_a_survey_asks_for_access_to_an_offset_that_may_not_be_read(run, znodes):
    znodes.refused = {"/consumers/g/offsets/t/0"}
    znodes.write("/consumers/g/offsets/t/1", b"x")
    znodes.delete("/consumers/g/owners")  # the fixture's are persistent
    ended = run("migrate", "survey", "--group", "g")
    assert "the offset znodes of t-0 may not be read" in ended.stdout
    assert "the offset znodes of t-1 hold no number" in ended.stdout
    assert ended.stdout.endswith("next: zkconsumer migrate survey --group g --zookeeper h:1\n")


def test_a_topic_that_no_group_consumes_may_be_misspelt(run):
    ended = run("groups", "list", "--topic", "tt")
    assert ended.stdout == ""
    assert "no group subscribes to topic tt, owns it or has committed it; check its name" in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--match", "prd-.*"), "no group matches prd-.*; check --match"),
        (("status", *SHORT, "--match", "prd-.*"), "no group matches prd-.*; check --match"),
        (("list", "--match", "prd-.*", "--topic", "t"), "no group that matches prd-.* subscribes to topic t, owns it"),
    ],
)
def test_a_pattern_that_matches_no_group_is_reported(run, znodes, words, message):
    znodes.refused.clear()
    ended = run("groups", *words, "--json")
    assert (ended.exit_code, ended.stdout) == (0, "[]\n")
    assert ended.stderr.startswith(f"warning: {message}")
    assert "no group" not in run("groups", *(word.replace("prd-", "") for word in words), "--json").stderr


def test_one_group_is_an_object_only_if_it_is_named(run):
    shapes = [
        run("groups", "status", *SHORT, "--json", *words).stdout[:2] for words in (("--group", "g"), ("--match", "g"))
    ]
    assert shapes == ['{"', "[{"]
    named = run("groups", "verify", "--json", "--group", "g", "--group", "g2").stdout
    assert named == '[{"group": "g", "successful": true, "findings": []}]\n'


def test_a_group_that_is_deleted_after_it_was_listed_is_no_problem(run, znodes, monkeypatch):
    znodes.refused.clear()
    children = znodes.children
    monkeypatch.setattr(znodes, "children", lambda path, _watch=None: [*(children(path) or ()), "gone"])
    ended = run("groups", "describe", "--all")
    assert "warning: a part of groups g, h cannot be read" in ended.stderr, ended.exception  # no broker is registered
    assert "gone" not in ended.output


def test_a_survey_of_no_groups_names_the_chroot(run, znodes):
    for group in ("g", "h"):
        znodes.delete(f"/consumers/{group}")
    ended = run("migrate", "survey", "--all")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "no groups below /consumers; check the chroot" in ended.stderr
