"""The demo's directory is removed, or kept if it is needed."""

from pathlib import Path

import pytest

from demo.workspace import Workspace
from zkconsumer.errors import ZkConsumerError


def test_a_temporary_one_is_removed_with_its_content() -> None:
    workspace = Workspace(None)
    (workspace.logs / "a.log").write_text("x")
    workspace.close()
    assert not workspace.path.exists()


def test_a_temporary_one_is_kept_after_a_failure(tmp_path: Path) -> None:
    workspace = Workspace(None, tmp_path)
    workspace.keep()
    workspace.close()
    assert workspace.logs.is_dir()


def test_a_named_one_is_made_and_kept(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "a" / "b c")
    workspace.close()
    assert (tmp_path / "a" / "b c" / "consumers").is_dir()


def test_a_named_one_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ZkConsumerError, match="is not empty"):
        Workspace(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_one_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZkConsumerError, match="cannot write to"):
        Workspace(tmp_path / "file" / "below")
