"""Migrations of a group to and fro under random commands, kills and lost answers: no record is skipped or read again.

The last test plants bugs, and plays the courses that lead to them: a model that does not notice them proves nothing.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings

from tests.fixtures import migrationmodel
from tests.fixtures.examples import examples
from tests.fixtures.migrationmodel import PARTITIONS, Fault, MigrationModel
from zkconsumer.errors import ZkConsumerError
from zkconsumer.operate.migrate import mirror as tools_mirror
from zkconsumer.operate.migrate import rollback as migrationrollback
from zkconsumer.operate.migrate import run as migrationrun
from zkconsumer.operate.migrate.rules import migrationplan, migrationrecheck
from zkconsumer.operate.migrate.rules import mirrorplan as core_mirror
from zkconsumer.operate.migrate.rules import waysback as migrationback
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import snapshot_of_plan

SETTINGS = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMigrationModel = MigrationModel.TestCase
TestMigrationModel.settings = SETTINGS
TestMigrationModel.pytestmark = pytest.mark.timeout(600)  # shrinking takes time


def takes_offsets_back(monkeypatch):
    monkeypatch.setattr(migrationplan, "moving_back", lambda new, stored, logs: [])


def mirrors_offsets_that_move_back(monkeypatch):
    monkeypatch.setattr(core_mirror, "moving_back", lambda new, stored, logs: [])


def copies_back_what_no_run_has_completed(monkeypatch):
    """The guards of offsets that move back, and of the mark, would hide it."""

    def has_begun(plan, run):
        return None if run is not None else migrationplan.why_not_migrated(plan, run)

    for module in (migrationback, core_mirror):
        monkeypatch.setattr(module, "why_not_migrated", has_begun)
    monkeypatch.setattr(tools_mirror, "mark_verdict", lambda mark, *, has_members: "done")
    mirrors_offsets_that_move_back(monkeypatch)


def decides_what_only_the_target_knows(monkeypatch):
    planned = migrationplan._planned
    monkeypatch.setattr(
        migrationplan,
        "_planned",
        lambda seen, partition, missing: planned(replace(seen, lost=[partition]), partition, missing),
    )


def mirrors_topics_of_the_plan_only(monkeypatch):
    counting = tools_mirror._counting_in_kafka

    def of_these(ends, group, planned):
        return {p: offset for p, offset in counting(ends, group, planned).items() if p in planned}

    monkeypatch.setattr(tools_mirror, "_counting_in_kafka", of_these)


def rolls_back_although_consumers_run_on_a_new_topic(monkeypatch):
    monkeypatch.setattr(migrationback, "beyond_plan", lambda plan, partitions: [])


def forgets_that_a_rollback_wrote_nothing(monkeypatch):
    def roll_back(plan, plan_file, *arguments):
        try:
            return migrationrollback.roll_back(plan, plan_file, *arguments)
        except ZkConsumerError:
            snapshot_of_plan(plan, plan_file).mark(WriteState.UNDONE)
            raise

    monkeypatch.setattr(migrationmodel, "roll_back", roll_back)


def forgets_what_a_copy_was_about_to_write(monkeypatch):
    kept = tools_mirror.Mirror._kept

    def as_before(mirror, copy, changes):
        del changes
        return kept(mirror, copy, ())

    monkeypatch.setattr(tools_mirror.Mirror, "_kept", as_before)


def forgets_that_a_run_has_begun(monkeypatch):
    monkeypatch.setattr(
        migrationrun,
        "recheck",
        lambda plan, now, run: migrationrecheck.recheck(plan, now, None),
    )


def run_killed(model, step):
    model.migrate(Fault("kill", step, True))
    model.sessions_expire()


def run_killed_and_mirrored(model, step):
    run_killed(model, step)
    if model._has_begun():
        model.mirror(0, None, False)


def run_killed_and_resumed(model, step):
    run_killed(model, step)
    model.run(0, None)


def migrated_again(model, step):
    model.migrate(None)
    model.consume({PARTITIONS[step % 4]}, 1)
    model.plan("kafka", "earliest")
    model.run(0, None)


def migrated_twice_and_rolled_back_once(model, step):
    model.migrate(None)
    model.plan("kafka", "earliest")
    model.run(0, None)
    model.undo(1, None)
    model.mirror(0, None, False)


def mirrored_back(model, step):
    model.migrate(None)
    model.consume({PARTITIONS[step % 4]}, 1)
    model.mirror(0, None, True)


def rolled_back(model, step):
    model.migrate(None)
    model.consume({PARTITIONS[step % 4]}, 1)
    model.undo(0, None)


def rolled_back_when_a_member_started(model, step):
    model.migrate(None)
    model.undo(0, Fault("old member", step, False))
    model.reverse(0)


def mirror_killed(model, step):
    model.migrate(None)
    model.consume({PARTITIONS[0]}, 1)
    model.mirror(0, Fault("kill", step, True), False)
    model.sessions_expire()
    model.reverse(0)


def play(course, steps=60):
    """Play a course in which something happens at a step, for each step."""
    for step in range(steps):
        model = MigrationModel()
        try:
            model.begin([10, 12], 0)
            course(model, step)
            model.consumers_continue_where_they_are()
            model.nobody_is_ahead_of_what_was_read()
        finally:
            model._end()


@pytest.mark.parametrize(
    ("course", "plant", "steps"),
    [
        (run_killed_and_mirrored, copies_back_what_no_run_has_completed, 13),
        (run_killed_and_resumed, forgets_that_a_run_has_begun, 13),
        (migrated_again, takes_offsets_back, 4),
        (migrated_again, decides_what_only_the_target_knows, 4),
        (migrated_twice_and_rolled_back_once, mirrors_offsets_that_move_back, 1),
        (mirrored_back, mirrors_topics_of_the_plan_only, 4),
        (rolled_back, rolls_back_although_consumers_run_on_a_new_topic, 4),
        (rolled_back_when_a_member_started, forgets_that_a_rollback_wrote_nothing, 60),
        (mirror_killed, forgets_what_a_copy_was_about_to_write, 13),
    ],
)
def test_planted_bugs_are_found(monkeypatch, course, plant, steps):
    play(course, steps)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play(course, steps)
