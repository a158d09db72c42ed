"""Which servers of ZooKeeper a command about a plan uses, and commands that can be pasted."""

import os
from contextlib import nullcontext
from dataclasses import replace

import click
import pytest

from zkconsumer.cli.connection import ToolConnection
from zkconsumer.cli.migrationoptions import connection_of, refuse_to_overwrite, write_plan
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, Place
from zkconsumer.operate.migrate.rules.planfile import decode_plan, encode_plan
from zkconsumer.operate.offsets.snapshot import exclusive

PLAN = MigrationPlan(
    End("zookeeper", "g"), End("kafka", "g"), Place("", None, None), "zk1:1", 1, "fail", None, (), {}, ()
)


@pytest.mark.parametrize(
    ("zookeeper", "content", "properties", "used"),
    [
        ("zk2:1", None, (), "zk2:1"),
        (None, None, ("zookeeper.connect=zk2:1",), "zk2:1"),
        (None, "zookeeper.connect=zk2:1", (), "zk2:1"),
        (None, None, (), "zk1:1"),
        (None, "client.id=me", (), "zk1:1"),
    ],
)
def test_the_servers_of_the_plan_are_used_where_the_command_names_none(tmp_path, zookeeper, content, properties, used):
    file = None if content is None else tmp_path / "c.properties"
    if file is not None:
        file.write_text(content)
    connection = connection_of(ToolConnection(zookeeper, file, properties, None), PLAN)
    assert connection.config().zookeeper_connect == used


def test_a_command_within_a_reason_can_be_pasted():
    connection = ToolConnection("zk:1", None, (), "b:1")
    reasons = ["see `zkconsumer migrate verify`; `zkconsumer migrate plan --from a --output f` overwrites them", "no"]
    assert connection.completed(reasons) == [
        "see `zkconsumer migrate verify`; `zkconsumer migrate plan --from a --output f --zookeeper zk:1 "
        "--bootstrap-server b:1` overwrites them",
        "no",
    ]


def test_a_pipe_is_no_place_for_a_plan(tmp_path):
    os.mkfifo(output := tmp_path / "plan.json")
    with pytest.raises(click.UsageError, match="is no plan; give a new name"):
        refuse_to_overwrite(output)


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_plan_whose_run_has_begun_meanwhile_is_not_replaced(tmp_path, has_begun, capsys):
    """1. `migrate plan` has found that the former plan was not run, and reads; 2. a run of it begins."""
    output = tmp_path / "plan.json"
    output.write_text(encode_plan(PLAN))
    refuse_to_overwrite(output)
    with exclusive(output) if not has_begun else nullcontext():
        if has_begun:
            (tmp_path / "plan.json.snapshot.json").touch()
        with pytest.raises(click.UsageError if has_begun else click.exceptions.Exit):
            write_plan(output, replace(PLAN, created_ms=2), ToolConnection("zk:1", None, (), None), as_json=False)
    assert decode_plan("plan", output.read_bytes()) == PLAN
    assert has_begun or "another run of" in capsys.readouterr().err


def test_a_plan_names_the_command_that_runs_it(tmp_path, capsys):
    output = tmp_path / "g plan.json"
    write_plan(output, PLAN, ToolConnection("zk:1", None, (), None), as_json=False)
    assert capsys.readouterr().err == f"next: zkconsumer migrate run '{output}' --zookeeper zk:1\n"
    write_plan(output, PLAN, ToolConnection("zk:1", None, (), None), as_json=True)
    assert capsys.readouterr().err == ""
