"""Stale files of killed processes, made by real processes that are killed."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.fork import idle_forked_child, in_forked_child
from zkconsumer.process.stalefiles import Claim, OwnedDirectory, remove_abandoned_files

OWNER = """
import sys
from pathlib import Path
from zkconsumer.process.stalefiles import Claim, OwnedDirectory

directory = OwnedDirectory("owned-", Path(sys.argv[1]).parent)
(directory.path / "data").mkdir()
(directory.path / "data" / "file").write_bytes(b"x")
claim = Claim(Path(sys.argv[1]))
print(directory.path, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def owner(file):
    """A process that owns a directory beside ``file`` and has claimed that; it is killed at the end."""
    command = [sys.executable, "-c", OWNER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_only_what_killed_processes_left_is_removed(tmp_path):
    with owner(tmp_path / "a") as killed:
        pass
    assert (killed / "data" / "file").exists()
    with owner(tmp_path / "b") as living:
        assert not killed.exists()  # the second process has removed it
        assert (tmp_path / "a").exists()
        assert remove_abandoned_files([tmp_path / "a", tmp_path / "b", tmp_path / "none"]) == [0]
        assert not (tmp_path / "a").exists()
        assert (tmp_path / "b").exists()
        mine = OwnedDirectory("owned-", tmp_path)
        assert (living / "data" / "file").exists()
        mine.remove()
        mine.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["b", living.name])


def test_directories_that_are_not_ours_stay(tmp_path):
    (tmp_path / "owned-by-another-version").mkdir()
    other = OwnedDirectory("other-", tmp_path)
    other.leave()
    OwnedDirectory("owned-", tmp_path).remove()
    assert (tmp_path / "owned-by-another-version").is_dir()
    assert other.path.is_dir()


def test_a_directory_that_was_left_is_removed_by_the_next(tmp_path):
    left = OwnedDirectory("owned-", tmp_path)
    left.leave()
    assert left.path.is_dir()
    OwnedDirectory("owned-", tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_keeps_a_claim_alive(tmp_path):
    claim = Claim(tmp_path / "a")
    with idle_forked_child():
        claim.release()
        assert remove_abandoned_files([tmp_path / "a"]) == []
    assert remove_abandoned_files([tmp_path / "a"]) == [0]


def test_a_forked_child_does_not_remove_the_directory_of_its_parent(tmp_path):
    directory = OwnedDirectory("x-", tmp_path)
    assert in_forked_child(directory.remove)
    assert directory.path.exists()
    directory.remove()
    assert not directory.path.exists()
