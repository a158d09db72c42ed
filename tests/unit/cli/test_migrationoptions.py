"""Which servers of ZooKeeper a command about a plan uses, and commands that can be pasted."""

import pytest

from zkconsumer.cli.connection import ToolConnection
from zkconsumer.cli.migrationoptions import connection_of
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, Place

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
