"""Leftovers of killed processes, made by real processes that are killed."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.fix_fork import idle_forked_child
from zkconsumer.leftovers import Claim, OwnedDirectory, remove_abandoned_files

OWNER = """
import sys
from pathlib import Path
from zkconsumer.leftovers import Claim, OwnedDirectory

directory = OwnedDirectory("owned-")
(directory.path / "data").mkdir()
(directory.path / "data" / "file").write_bytes(b"x")
claim = Claim(Path(sys.argv[1]))
print(directory.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary directory of this test and its processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def owner(file):
    """A process that owns a directory and has claimed ``file``; it is killed at the end."""
    command = [sys.executable, "-c", OWNER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_only_what_killed_processes_left_is_removed(place):
    with owner(place / "a") as killed:
        pass
    assert (killed / "data" / "file").exists()
    with owner(place / "b") as living:
        assert not killed.exists()  # the second process has removed it
        assert (place / "a").exists()
        assert remove_abandoned_files([place / "a", place / "b", place / "none"]) == [0]
        assert not (place / "a").exists()
        assert (place / "b").exists()
        mine = OwnedDirectory("owned-")
        assert (living / "data" / "file").exists()
        mine.remove()
        mine.remove()
    assert sorted(path.name for path in place.iterdir()) == sorted(["b", living.name])


def test_directories_that_are_not_ours_stay(place):
    (place / "owned-by-another-version").mkdir()
    other = OwnedDirectory("other-")
    other.leave()
    OwnedDirectory("owned-").remove()
    assert (place / "owned-by-another-version").is_dir()
    assert other.path.is_dir()


def test_a_directory_that_was_left_is_removed_by_the_next(place):
    left = OwnedDirectory("owned-")
    left.leave()
    assert left.path.is_dir()
    OwnedDirectory("owned-").remove()
    assert list(place.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_keeps_a_claim_alive(place):
    claim = Claim(place / "a")
    with idle_forked_child():
        claim.release()
        assert remove_abandoned_files([place / "a"]) == []
    assert remove_abandoned_files([place / "a"]) == [0]
