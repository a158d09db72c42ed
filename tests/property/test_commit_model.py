"""What a member may write to its store, under random events.

The last tests plant bugs, and play the courses that lead to them: a model that does not notice them proves nothing.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.commitmodel import CommitModel, DoneCommitModel
from tests.fixtures.examples import examples
from zkconsumer.group.committer import OffsetCommitter, _expect_all
from zkconsumer.group.rules.ownedpartitions import OwnedPartition

SETTINGS = settings(
    max_examples=examples(300), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
FOR_PLANTED_BUGS = settings(
    SETTINGS, max_examples=20_000, phases=(Phase.generate,), derandomize=True, database=None, print_blob=False
)

TestCommitModel = CommitModel.TestCase
TestCommitModel.settings = SETTINGS
TestCommitModel.pytestmark = pytest.mark.timeout(600)  # shrinking takes time

TestDoneCommitModel = DoneCommitModel.TestCase
TestDoneCommitModel.settings = settings(SETTINGS, max_examples=40)
TestDoneCommitModel.pytestmark = pytest.mark.timeout(600)


def forgets_what_a_listener_committed(monkeypatch):
    wrote, start = OwnedPartition.wrote, OwnedPartition.start

    def keep_what_was_read(self, offset):
        read = self.read
        wrote(self, offset)
        self.read = read

    monkeypatch.setattr(OwnedPartition, "wrote", keep_what_was_read)
    monkeypatch.setattr(OwnedPartition, "start", lambda self, *how, kept, **rest: start(self, *how, kept=False, **rest))


def takes_back_what_was_not_answered(monkeypatch):
    def confirm_what_is_stored(self, offsets, stamp):
        durable = self._made_durable(offsets)
        done = self._write(durable, stamp)
        self.partitions.confirm({partition: durable[partition] for partition in done})
        _expect_all(durable.keys() - done)

    monkeypatch.setattr(OffsetCommitter, "_commit_confirmed", confirm_what_is_stored)


def takes_back_what_the_user_committed(monkeypatch):
    def confirm_nothing(self, offsets, stamp):
        _expect_all(offsets.keys() - self._write(offsets, stamp))

    monkeypatch.setattr(OffsetCommitter, "_commit_confirmed", confirm_nothing)


def commits_what_the_user_still_has(monkeypatch):
    positions = OffsetCommitter._positions
    monkeypatch.setattr(
        OffsetCommitter, "_positions", lambda self, *, handed_out, of_any=False: positions(self, handed_out=True)
    )


def nothing_is_committed(model):
    pass


def the_user_commits(model):
    model.commit("everything", set(), pauses=False)


def the_user_commits_without_an_answer(model):
    model.fail("answer")
    model.commit("everything", set(), pauses=False)


def a_listener_commits(model):
    model.rebalance(share={0, 1}, fails=False, listener_commits=True, reads=1, pauses=False)


def play(course):
    """Play a course between the first records that the user gets and a commit by timer."""
    model = CommitModel()
    try:
        model.begin(incremental=True, has_before_commit=False)
        model.rebalance(share={0}, fails=False, listener_commits=False, reads=0, pauses=False)
        model.read(1)
        course(model)
        model.commit("timer", set(), pauses=False)
        model.no_write_was_wrong()
    finally:
        model.teardown()


BUGS = [
    (nothing_is_committed, commits_what_the_user_still_has),
    (the_user_commits, takes_back_what_the_user_committed),
    (the_user_commits_without_an_answer, takes_back_what_was_not_answered),
    (a_listener_commits, forgets_what_a_listener_committed),
]


@pytest.mark.parametrize(("course", "plant"), BUGS)
def test_planted_bugs_are_found(course, plant, monkeypatch):
    play(course)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play(course)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", [plant for _, plant in BUGS])
def test_random_events_find_planted_bugs(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CommitModel, settings=FOR_PLANTED_BUGS)
