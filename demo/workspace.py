"""The directory for the demo's files: a temporary one, or one that the user keeps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from zkconsumer.errors import ZkConsumerError


class Workspace:
    """The directory with the consumers' output, the Spark query's files and all logs.

    It is removed at the end, unless the user named it or :meth:`keep` was called because something failed.

    Args:
        directory: directory to use and keep, new or empty. None: a temporary one.
        parent: parent of a temporary one; None for the directory of temporary files.

    Raises:
        ZkConsumerError: the directory cannot be used.
    """

    def __init__(self, directory: Path | None, parent: Path | None = None) -> None:
        self.kept = directory is not None
        try:
            if directory is None:
                self.path = Path(tempfile.mkdtemp(prefix="zkconsumer-demo-", dir=parent))
            else:
                directory.mkdir(parents=True, exist_ok=True)
                self.path = directory.resolve()
                # Consumers append: the records of an earlier run would count as duplicates.
                if any(self.path.iterdir()):
                    raise ZkConsumerError(f"{directory} is not empty; set an empty or new directory, or none")
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
        """Keep the directory at the end, for inspection."""
        self.kept = True

    def close(self) -> None:
        """Remove the directory, unless it must be kept."""
        if not self.kept:
            shutil.rmtree(self.path, ignore_errors=True)
