"""Where the demo keeps what it writes: a temporary directory, or one that the user wants to keep."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from zkconsumer.errors import ZkConsumerError


class Workspace:
    """The directory with the consumers' output, the Spark query's files and all logs.

    It is removed at the end, unless the user named it or :meth:`keep` was called because something failed.

    Args:
        directory: to use and keep; must not exist or be empty. None: a temporary one.

    Raises:
        ZkConsumerError: the directory cannot be used.
    """

    def __init__(self, directory: Path | None) -> None:
        self.kept = directory is not None
        try:
            if directory is None:
                self.path = Path(tempfile.mkdtemp(prefix="zkconsumer-demo-"))
            else:
                directory.mkdir(parents=True, exist_ok=True)
                self.path = directory.resolve()
                # Consumers append: the records of an earlier run would count as duplicates.
                if any(self.path.iterdir()):
                    raise ZkConsumerError(f"{directory} is not empty; name a directory that is, or none")
            self.consumers = self._make("consumers")
            self.spark = self._make("spark")
            self.logs = self._make("logs")
        except OSError as error:
            raise ZkConsumerError(f"cannot write to {error.filename}: {error.strerror}") from error

    def _make(self, name: str) -> Path:
        path = self.path / name
        path.mkdir()
        return path

    def keep(self) -> None:
        """Do not remove it: somebody will want to look at it."""
        self.kept = True

    def close(self) -> None:
        """Remove it, unless it is to be kept."""
        if not self.kept:
            shutil.rmtree(self.path, ignore_errors=True)
