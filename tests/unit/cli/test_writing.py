"""What commands that write accept, and the table that they print."""

import json
from contextlib import contextmanager
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.main import command
from zkconsumer.cli.writing import Writing, parse_topics, plan_document, plan_lines, run, show_end
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.offsetfiles import FileFault, FileRefused
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, OffsetRow
from zkconsumer.operate.offsets.snapshot import GroupChange, NodeChange, NodeState, Snapshot, SnapshotFile
from zkconsumer.operate.offsets.writeplan import GroupPlan, WritePlan
from zkconsumer.operate.offsets.writereport import WriteReport

P = TopicPartition("clicks", 0)
HERE = ToolConnection(None, None, (), "b:1")


def plan(*rows, groups=("g",)):
    return WritePlan("reset g", tuple(GroupPlan(GroupChange(name, ()), rows) for name in groups))


def test_the_table_begins_with_the_columns_of_the_jvm_tool():
    of_one = replace(plan(OffsetRow(P, 40, 50, LogRange(10, 60), "a note")), names_its_group=True)
    blank, heading, row, sums = plan_lines(of_one)
    assert blank == ""
    assert heading.startswith(f"{'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}")
    assert row.startswith(f"{'clicks':<30} {'0':<10} {'50':<15}")
    assert row.split()[3:] == ["40", "10", "60", "10", "0", "a", "note"]
    assert sums == "\nto write: nothing; 10 records skipped, 0 replayed"


def test_what_is_unknown_is_not_a_number():
    lines = list(plan_lines(plan(OffsetRow(P, None, 50))))
    assert lines[2].split() == ["clicks", "0", "50", "-", "-", "-", "-", "-"]
    assert lines[3].endswith("unknown for 1 partitions")


def test_groups_that_a_command_has_chosen_are_named():
    lines = list(plan_lines(plan(OffsetRow(P, 1, 2), groups=("g", "h\x1b[2J"))))
    assert [line for line in lines if "GROUP" in line] == ["\nGROUP g", "\nGROUP h\\x1b[2J"]
    assert next(plan_lines(plan(OffsetRow(P, 1, 2)))) == "\nGROUP g"


def test_a_group_that_is_kept_is_no_row_of_the_table():
    gone = NodeChange("/consumers/g", NodeState(b""), None)
    deleted = GroupPlan(GroupChange("g", (gone, gone)), ())
    lines = list(plan_lines(WritePlan("clean", (deleted, GroupPlan(GroupChange("kept", ()), ())))))
    assert [line for line in lines if "GROUP" in line] == ["\nGROUP g"]
    assert lines[-1].startswith("\nto write: 2 znodes; ")


def test_a_plan_is_one_document():
    document = plan_document(plan(OffsetRow(P, 40, 50, LogRange(10, 60))), None)
    assert (document["executed"], document["snapshot"]) == (False, None)
    assert document["groups"][0]["partitions"] == [
        {
            "topic": "clicks",
            "partition": 0,
            "old_offset": 40,
            "new_offset": 50,
            "log_start": 10,
            "log_end": 60,
            "skipped": 10,
            "replayed": 0,
            "note": "",
        }
    ]


def test_topics_are_given_with_or_without_partitions():
    assert parse_topics(["t", "u:0,12"]) == {"t": None, "u": (0, 12)}
    for wrong in (["t:"], ["t:a"], [":1"], ["t", "t:1"], ["t:-1"]):
        with pytest.raises(click.UsageError):
            parse_topics(wrong)


def test_brokers_are_given_as_host_and_port():
    given = []
    show = tool_options(lambda connection: given.append(connection.config().bootstrap_servers))
    for text in ("h:1,[::1]:2", "h", "h:", ":1", "h:x", "h:0"):
        CliRunner().invoke(click.command()(show), ["--zookeeper", "z:1", "--bootstrap-server", text])
    assert given == ["h:1,[::1]:2"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("offsets", "reset", "--group", "g", "--all-topics"), "exactly one of"),
        (("offsets", "reset", "--group", "g", "--all-topics", "--to-latest", "--to-offset", "0"), "exactly one of"),
        (("offsets", "reset", "--group", "g", "--to-latest"), "either --all-topics or --topic"),
        (("offsets", "reset", "--group", "g", "--to-latest", "--all-topics", "--topic", "t"), "either --all-topics"),
        (("offsets", "reset", "--group", "g", "--all-topics", "--to-datetime", "2017-06-01"), "is not a time"),
        (("offsets", "reset", "--group", "g", "--all-topics", "--by-duration", "P1M"), "is not a duration"),
        (("groups", "delete"), "--group, --topic or both"),
        (("groups", "clean", "--older-than", "90"), "write a positive number and its unit"),
        (("groups", "clean", "--older-than", "0d"), "write a positive number and its unit"),
        (("groups", "clean", "--older-than", "0.4ms"), "write a positive number and its unit"),
        (("groups", "clean", "--older-than", f"{'9' * 400}d"), "write a positive number and its unit"),
        (("groups", "clean", "--older-than", "90ms"), "give at least 1m"),
        (
            ("migrate", "plan", "--from", "kafka:g", "--to", "zookeeper:g", "--output", "f", "--retention", "9"),
            "its unit",
        ),
        (("groups", "clean", "--older-than", "9d", "--match", "("), "--match"),
    ],
)
def test_a_command_that_is_not_clear_is_refused(arguments, named):
    ended = CliRunner().invoke(command, [*arguments, "--zookeeper", "h:1"])
    assert (ended.exit_code, named in ended.output) == (2, True), ended.output


@contextmanager
def nowhere(*_where):
    """A dry run of a plan that is made already needs no servers."""
    yield None, None


def dry_run(make, *, as_json=False):
    options = Writing(ToolConnection("h:1", None, (), None), False, None, False, as_json)
    return CliRunner().invoke(click.Command("dry", callback=lambda: run(options, make, connect=nowhere)))


def test_a_dry_run_shows_the_table_and_ends_well():
    ended = dry_run(lambda *_: plan(OffsetRow(P, 40, 50)))
    assert ended.exit_code == 0
    assert "NEW-OFFSET" in ended.stdout
    assert "give --execute" in ended.stderr


def test_a_dry_run_shows_the_same_table_where_a_guard_refuses():
    allowed = plan(OffsetRow(P, 40, 50))
    (group,) = allowed.groups
    refused = replace(allowed, groups=(replace(group, refusals=("members live: m\x1b[2J",)),))
    ended = dry_run(lambda *_: refused)
    assert (ended.exit_code, ended.stdout) == (3, dry_run(lambda *_: allowed).stdout)
    assert "refused: members live: m\\x1b[2J" in ended.stderr
    document = json.loads(dry_run(lambda *_: refused, as_json=True).stdout)
    assert (document["executed"], document["refusals"]) == (False, ["members live: m\x1b[2J"])


def test_what_may_be_written_is_listed_apart(tmp_path):
    report = WriteReport(tmp_path / "s", ["/a"], ["/b"], ["/c"], ["whether /c was written is unknown"])
    ended = CliRunner().invoke(click.Command("end", callback=lambda: show_end(plan(), report, (), HERE)))
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[1:4] == ["written: /a", "not written: /b", "unknown whether written: /c"]
    document = plan_document(plan(), report)
    assert [document[name] for name in ("written", "not_written", "unknown")] == [["/a"], ["/b"], ["/c"]]


def test_what_live_members_keep_is_not_done(tmp_path):
    """`groups delete --topic t --force-live`: the owner znodes of a live member stay."""
    report = WriteReport(tmp_path / "s", ["/a"], ["/b"], [], [], ["/b could not be deleted"])
    ended = CliRunner().invoke(click.Command("end", callback=lambda: show_end(plan(), report, ["Deleted"], HERE)))
    assert (ended.exit_code, "Deleted" in ended.stdout, "not written: /b" in ended.stderr) == (3, False, True)


def test_the_advice_after_a_write_is_what_works(tmp_path):
    """`offsets restore` refuses the file of a migration, and without --execute it writes nothing."""
    of_migration = replace(plan(), snapshot=Snapshot("rollback", "h:1", 1, (), plan="abc"), resume="roll back again")

    def advice(of, written=("/a",), unknown=()):
        report = WriteReport(tmp_path / "a b", [*written], ["/b"], [*unknown], ["/b was not written"])
        ended = CliRunner().invoke(click.Command("end", callback=lambda: show_end(of, report, (), HERE)))
        return ended.stderr.splitlines()[-1]

    restore = f"`zkconsumer offsets restore '{tmp_path / 'a b'}' --execute --bootstrap-server b:1` undoes what was"
    assert advice(plan()).startswith(restore)
    assert advice(plan(), written=(), unknown=("/c",)).startswith(restore)
    assert advice(plan(), written=()) == "not written: /b", "there is nothing to undo"
    done = WriteReport(tmp_path / "s", ["/a"])
    ended = CliRunner().invoke(click.Command("end", callback=lambda: show_end(plan(), done, (), HERE)))
    undo = f"zkconsumer offsets restore {tmp_path / 's'} --execute --bootstrap-server b:1"
    assert ended.stderr == f"written; `{undo}` undoes it\n"
    assert advice(of_migration) == "what was written stays: roll back again"


def test_every_fault_of_a_file_is_shown():
    def make(*_):
        raise FileRefused("f", [FileFault(2, "b"), FileFault(1, "a")])

    ended = dry_run(make)
    assert (ended.exit_code, ended.stderr) == (3, "refused: f, line 1: a\nrefused: f, line 2: b\n")


def test_the_file_of_a_migration_is_not_restored(tmp_path):
    """Its state would say that the migration stands, which the ways back rely on."""
    file = tmp_path / "plan.snapshot.json"
    SnapshotFile(file).begin(Snapshot("migrate", "h:1", 1, (GroupChange("g", ()),), plan="abc"))
    ended = CliRunner().invoke(command, ["offsets", "restore", str(file), "--zookeeper", "h:1"])
    assert (ended.exit_code, "`zkconsumer migrate rollback PLAN` undoes" in ended.stderr) == (3, True)
