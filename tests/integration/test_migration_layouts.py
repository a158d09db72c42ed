"""Migrations from other layouts: the new consumer reads exactly the next record."""

import json

import pytest

from zkconsumer.errors import WriteRefused
from zkconsumer.operate.migrate.rules.migrationrecheck import verify
from zkconsumer.operate.migrate.run import run_plan

pytestmark = pytest.mark.integration

NEXT = {0: 4, 1: 7}


class Layouts:
    """Stores the same positions in each layout, as its consumer does; returns the URI."""

    def __init__(self, migration, zookeeper, directory) -> None:
        self._topic = migration.topic
        self._root = f"/other/{migration.group.name}"
        self._zookeeper = zookeeper
        self._directory = directory

    def _write(self, path, text):
        self._zookeeper.ensure_path(path)
        self._zookeeper.set(path, text.encode())

    def _json(self, number, offset):
        broker = {"host": "127.0.0.1", "port": 9092}
        return json.dumps({"offset": offset, "partition": number, "broker": broker, "topic": self._topic})

    def storm(self, offsets):
        for number, offset in offsets.items():
            self._write(f"{self._root}/partition_{number}", self._json(number, offset))
        return f"storm:{self._root}"

    def receiver(self, offsets):
        for number, offset in offsets.items():
            self._write(f"{self._root}/offsets/{self._topic}/{number}", str(offset - 1))
        return f"dibbhatt:{self._root}"

    def older_receiver(self, offsets):
        for number, offset in offsets.items():
            self._write(f"{self._root}/{self._topic}/processed/partition_{number}", self._json(number, offset - 1))
        return f"dibbhatt:{self._root}"

    def checkpoint(self, offsets):
        for name in ("offsets", "commits"):
            (self._directory / name).mkdir(exist_ok=True)
            (self._directory / name / "3").write_text(f"v1\n{{}}\n{json.dumps({self._topic: offsets})}")
        return f"spark:{self._directory}"

    def options(self, offsets):
        file = self._directory / "source.json"
        file.write_text(json.dumps({self._topic: offsets}))
        return f"spark-options:{file}"


@pytest.fixture
def layouts(migration, zookeeper, tmp_path):
    return Layouts(migration, zookeeper, tmp_path)


@pytest.mark.parametrize("layout", ["storm", "receiver", "older_receiver", "checkpoint", "options"])
def test_a_new_consumer_continues_at_the_next_record(migration, layouts, consume, layout):
    ends = getattr(layouts, layout)(NEXT), migration.forward[1]
    plan = migration.plan(*ends)
    assert plan.refusals == ()
    assert run_plan(migration.ends(*ends), plan, migration.file).faults == []
    assert all(row.is_equal for row in verify(plan, migration.ends(*ends).observe()))
    assert consume(migration.group.name, migration.topic, 2) == NEXT


@pytest.mark.parametrize("layout", ["storm", "receiver"])
def test_a_source_that_moved_is_refused(migration, layouts, layout):
    ends = getattr(layouts, layout)(NEXT), migration.forward[1]
    plan = migration.plan(*ends)
    getattr(layouts, layout)({0: 5, 1: 7})
    with pytest.raises(WriteRefused, match="have moved"):
        run_plan(migration.ends(*ends), plan, migration.file)
    assert migration.in_kafka() == {}


def test_a_spouts_offsets_become_those_of_a_group_in_zookeeper(migration, layouts):
    ends = layouts.storm(NEXT), migration.forward[0]
    assert run_plan(migration.ends(*ends), migration.plan(*ends), migration.file).faults == []
    assert migration.group.offsets(migration.topic) == NEXT
    assert migration.group.children() == ["offsets"], "the hold leaves nothing"


def test_a_spout_in_another_chroot_is_read_there(migration, layouts, migrate, sandbox, zookeeper):
    layouts.storm(NEXT)
    source = f"storm:/{migration.group.name}@{sandbox.zookeeper_connect}/other"
    arguments = ("plan", "--from", source, "--to", migration.forward[0], "--output", migration.file)
    assert migrate(*arguments, servers=False)[0] == 2, "neither the group nor the command names servers"
    assert migrate(*arguments)[0] == 0
    assert migrate("run", migration.file, "--execute", servers=False)[0] == 0
    assert migration.group.offsets(migration.topic) == NEXT
    assert zookeeper.exists("/other/consumers") is None
    assert migrate("verify", migration.file)[1]["equal"]


def test_offsets_of_a_group_become_starting_offsets_of_spark(migration, tmp_path):
    migration.group.store(migration.topic, NEXT)
    file = tmp_path / "starting.json"
    ends = migration.forward[0], f"spark-options:{file}"
    plan = migration.plan(*ends)
    report = run_plan(migration.ends(*ends), plan, migration.file)
    assert (report.faults, report.snapshot) == ([], None)
    assert json.loads(file.read_text()) == {migration.topic: {"0": 4, "1": 7}}
    assert run_plan(migration.ends(*ends), plan, migration.file).written == []
    assert migration.group.children() == ["offsets"]


def test_znodes_of_a_receiver_are_not_migrated_as_a_jvm_group(migration, zookeeper):
    migration.group.store(migration.topic, NEXT)
    zookeeper.create(migration.group.path("ids", migration.topic, "Receiver-0"), b"", makepath=True)
    assert any("dibbhatt:/consumers/" in reason for reason in migration.plan().refusals)
