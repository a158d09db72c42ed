"""A group of a fleet under random commands, kills and clients: what its status names is what the commands accept.

The commands are the steps themselves, on servers in memory. What only a setting accepts, such as ``--rewind``, and what
the status does not ask, such as partitions that were added, are no refusals here.
"""

import re
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.migrationsinmemory import TO_KAFKA, TO_ZOOKEEPER, Killed, Servers
from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate import fleetfiles, migrationmark
from zkconsumer.operate.migrate.fleetfiles import GroupFiles, Job
from zkconsumer.operate.migrate.fleetstatus import read_status
from zkconsumer.operate.migrate.fleetsteps import plan_step, reverse_step, rollback_step, run_step
from zkconsumer.operate.migrate.mirror import Mirror
from zkconsumer.operate.migrate.rules.fleetfacts import FleetState, Judged
from zkconsumer.operate.migrate.rules.fleetfile import FleetFile, FleetGroup
from zkconsumer.operate.migrate.rules.fleetnext import FleetPosition, next_steps
from zkconsumer.operate.migrate.rules.fleetstate import why_not_begun
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.operate.offsets.snapshot import SnapshotFile
from zkconsumer.zookeeper.session import ZkSession

GROUP = FleetGroup("g", 1, "", End("kafka", "g"), rewind=True)
P0, P1 = PARTITIONS = [TopicPartition("t", 0), TopicPartition("u", 0)]
MEMBER = "g_member"
WRITES = [
    (SnapshotFile, "_put"),
    (ZkSession, "commit_changes"),
    (migrationmark, "write_mark"),
    (migrationmark, "remove_mark"),
    (fleetfiles, "write_whole"),
]
SETTING = "--rewind|--missing|is outside their logs|reset them first"


def steps(*, execute: bool) -> dict[str, tuple[Any, tuple[str, str]]]:
    return {
        "plan": (plan_step, TO_KAFKA),
        "run": (run_step(lambda: datetime.now(UTC), execute=execute), TO_KAFKA),
        "rollback": (rollback_step(execute=execute), TO_KAFKA),
        "reverse": (reverse_step(execute=execute, rewind=True), TO_ZOOKEEPER),
        "mirror": (
            lambda ends, job: Mirror(job.files.plan(), job.files.plan_file, rewind=True).copy(ends),
            TO_ZOOKEEPER,
        ),
    }


class Model:
    """One group, its files and both servers."""

    def __init__(self, directory: Path, stored: dict[TopicPartition, int]) -> None:
        self.servers = Servers(directory)
        self.servers.brokers.logs = dict.fromkeys(PARTITIONS, LogRange(0, 1000))
        self.servers.write("/consumers/g/owners/t", b"")
        self.servers.store(stored)
        self.files = GroupFiles(directory / "c" / "g")
        self.has_consumed = self.has_read_in_zookeeper = False
        self.job = Job(FleetFile("c", "h:1", "", "", (GROUP,)), GROUP, self.files)

    def do(self, step: Any, ends: tuple[str, str]) -> Any:
        self.servers._ends = ends
        with closing(session_in_memory(self.servers.server)) as session:
            try:
                return step(self.servers.ends(session), self.job)
            finally:
                self.servers.server.end_session(session.session_id)

    def status(self) -> Judged:
        (row,) = self.do(lambda ends, job: read_status(ends.session, ends.cluster, [job]), TO_KAFKA)
        return row.judged

    def command(self, verb: Any, kill_at: int | None) -> None:
        """A command of a wave, which is killed at one of its writes: before it, or after it."""
        if why_not_begun(verb, self.status()) is not None or not (verb == "plan" or self.files.plan_file.exists()):
            return
        left = kill_at

        def killing(write: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                if left is not None and (left := left - 1) == 0:
                    raise Killed
                answer = write(*arguments, **options)
                if left is not None and (left := left - 1) == 0:
                    raise Killed
                return answer

            return call

        with pytest.MonkeyPatch.context() as patch:
            for of, name in WRITES:
                patch.setattr(of, name, killing(getattr(of, name)))
            for name in ("commit", "delete"):
                patch.setattr(self.servers.brokers, name, killing(getattr(self.servers.brokers, name)))
            with suppress(ZkConsumerError, Killed):
                self.do(*steps(execute=True)[verb])

    def plan_back(self) -> None:
        if why_not_begun("reverse", self.status()) is None and self.files.plan_file.exists():
            self.why_refused("reverse")

    def in_kafka(self, partition: TopicPartition, offset: int | None) -> None:
        """New consumers commit, or an offset expires."""
        self.has_consumed = True
        stored = {**self.servers.brokers.stored("g"), partition: offset}
        self.servers.brokers.store("g", {p: one for p, one in stored.items() if one is not None})

    def in_zookeeper(self, partition: TopicPartition, offset: int) -> None:
        """Old consumers, which know no mark, or an operator."""
        self.has_read_in_zookeeper = True
        self.servers.store({partition: offset})

    def old_consumers(self, *, run: bool) -> None:
        is_running = f"/consumers/g/ids/{MEMBER}" in self.servers.server.nodes
        if run and not is_running:
            self.servers.register()
        elif is_running and not run:
            self.servers.server.end_session(self.servers.member.session_id)

    def new_consumers(self, *, run: bool) -> None:
        (self.servers.brokers.live.add if run else self.servers.brokers.live.discard)("g")

    def delete_znodes(self) -> None:
        nodes = self.servers.server.nodes
        for path in [path for path in nodes if f"{path}/".startswith("/consumers/g/")]:
            del nodes[path]

    def topic_goes(self) -> None:
        self.servers.brokers.logs.pop(P1, None)
        self.in_kafka(P1, None)

    def why_refused(self, verb: str) -> str:
        """Why the command itself refuses, without what settings accept; nothing is written."""
        try:
            self.do(*steps(execute=False)[verb])
        except WriteRefused as refused:
            return "; ".join(reason for reason in refused.reasons if not re.search(SETTING, reason))
        return ""

    def check(self) -> None:
        """Commands that the status names are accepted; none is closed without need, and no idle client is blamed."""
        judged = self.status()
        kept = self.files.directory.with_name("kept")
        refused = {}
        for verb in ("plan", "run", "rollback", "reverse") if self.files.plan_file.exists() else ("plan",):
            shutil.copytree(self.files.directory, kept, dirs_exist_ok=True)
            refused[verb] = self.why_refused(verb)
            for left in self.files.directory.parent.glob("g*"):
                shutil.rmtree(left)
            kept.rename(self.files.directory)
        seen = judged, refused
        if judged.state is FleetState.WRONG and judged.only:
            assert not all(refused[verb] for verb in judged.only), seen
        # of a group that is named, the reason names what is first
        steps_of_wave = (one for one in next_steps([FleetPosition("c", GROUP, judged)]) if one.wave)
        assert not any(refused[one.verb] for one in steps_of_wave if not one.to_do), seen
        if judged.state is FleetState.PLANNED:
            assert bool(refused["run"]) is (judged.waits_for != ""), seen
        if judged.state in (FleetState.WRITTEN, FleetState.CONSUMED, FleetState.MIRRORED):
            assert not refused["reverse"], seen
            assert bool(refused["rollback"]) is (judged.state is not FleetState.WRITTEN), seen
        if "a rollback has begun" in judged.reason and judged.only == {"plan"}:
            stored, rows = self.servers.brokers.stored("g"), self.files.plan().partitions
            undone = [row for row in rows if stored.get(row.partition, -1) < (row.new or 0)]
            # Otherwise a new plan moves back consumers that continue there.
            assert undone or former_is_later(rows), seen
        if "is not complete" in judged.reason and judged.only:
            again = "reverse" if "way back" in judged.reason else "run"
            closed = {"rollback", *(() if "a rollback" in judged.reason else (again,))} - judged.only
            assert all(refused[verb] for verb in closed), seen
        if not self.has_read_in_zookeeper:
            assert "zookeeper:g have moved since" not in f"{judged.reason}; {refused.get('reverse')}", seen
            assert self.has_consumed or "have continued" not in judged.reason, seen


def former_is_later(rows: Any) -> bool:
    """True if Kafka had a later offset than the planned one, so consumers may have begun there."""
    return any((row.before or 0) > (row.new or 0) for row in rows)


KILLS = st.none() | st.integers(1, 14)
EVENTS = st.one_of(
    st.tuples(st.just("command"), st.sampled_from(["plan", "run", "rollback", "reverse", "mirror"]), KILLS),
    st.tuples(st.just("in_kafka"), st.sampled_from(PARTITIONS), st.sampled_from([None, 5, 10, 20, 30, 40, 50])),
    st.tuples(st.just("in_zookeeper"), st.sampled_from(PARTITIONS), st.sampled_from([5, 10, 30, 40])),
    st.tuples(st.sampled_from(["plan_back", "topic_goes"])),
)
MIGRATED = [("command", "plan", None), ("command", "run", None), ("in_kafka", P0, 30)]
REVERSED_AGAIN = [*MIGRATED, ("command", "reverse", None), ("in_kafka", P0, 40)]


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(former=st.sampled_from([{}, {P0: 30}, {P0: 10, P1: 20}]), events=st.lists(EVENTS, max_size=8))
@example(
    {}, [*MIGRATED, ("command", "mirror", None), ("plan_back",), ("in_kafka", P0, 40), ("command", "mirror", None)]
)
@example({}, [*REVERSED_AGAIN, ("command", "reverse", 10), ("in_kafka", P0, 50), ("command", "rollback", None)])
@example({}, [*REVERSED_AGAIN, ("command", "reverse", 1)])
@example({}, [*MIGRATED, ("topic_goes",), ("command", "reverse", 10)])
@example({P0: 30}, [("command", "run", None), ("in_kafka", P0, 30), ("command", "rollback", None)])
@example({P0: 30}, [("command", "run", None), ("plan_back",), ("command", "rollback", None)])
@example({}, [("command", "run", 2), ("command", "run", None)])
@example({}, [("command", "run", None), ("command", "rollback", 8), ("in_kafka", P0, 30)])
@example({}, [("command", "run", None), ("command", "rollback", 6), ("in_kafka", P0, 30)])
def test_what_a_status_names_is_what_the_commands_accept(tmp_path_factory, former, events):
    model = Model(tmp_path_factory.mktemp("fleet"), {P0: 10, P1: 20})
    model.servers.brokers.store("g", former)
    model.command("plan", None)
    for name, *arguments in events:
        getattr(model, name)(*arguments)
        model.check()


STARTS = st.one_of(
    st.tuples(st.just("command"), st.sampled_from(["plan", "run", "rollback", "reverse", "mirror"])),
    st.tuples(st.sampled_from(["old", "new"]), st.booleans()),
    st.just(("znodes are deleted", None)),
)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(STARTS, max_size=8))
@example([("command", "plan"), ("new", True), ("command", "plan"), ("znodes are deleted", None)])
@example([("old", True), ("command", "plan"), ("old", False), ("new", True), ("old", True)])
def test_a_group_whose_offsets_are_all_in_kafka_is_never_written(tmp_path_factory, events):
    """Its members alone show how far it has come."""
    model = Model(tmp_path_factory.mktemp("fleet"), {})
    in_kafka = {P0: 30, P1: 7}
    model.servers.brokers.store("g", in_kafka)
    old = new = False
    for event, what in events:
        match event:
            case "command":
                model.command(what, None)
            case "old":
                old = what
                model.old_consumers(run=what)
            case "new":
                new = what
                model.new_consumers(run=what)
            case _ if not old:
                model.delete_znodes()
        exists = bool(model.servers.server.nodes.get("/consumers/g"))
        expected = FleetState.CONSUMED if new else FleetState.NEEDS_NO_PLAN
        expected = FleetState.WRONG if old and new else expected if exists else FleetState.DONE
        judged = model.status()
        assert judged.state is expected, judged
        assert all(why_not_begun(verb, judged) for verb in steps(execute=True))
        assert (model.servers.stored(), model.servers.brokers.stored("g")) == ({}, in_kafka)
        assert not model.files.plan_file.exists()
        verbs = [step.verb for step in next_steps([FleetPosition("c", GROUP, judged)])]
        assert verbs == {FleetState.CONSUMED: ["delete"], FleetState.NEEDS_NO_PLAN: [""]}.get(judged.state, [])
