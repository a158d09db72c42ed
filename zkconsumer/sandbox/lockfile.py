"""Lists of pinned jars: ``locks/NAME.lock``, one jar per line, ``<sha256> group:artifact:version``."""

import hashlib
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError


@dataclass(frozen=True)
class LockedJar:
    """One line of a lock file: a Maven artifact and the SHA-256 (hexadecimal) that its jar must have."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def coordinates(self) -> str:
        """Its Maven coordinates, ``group:artifact:version``."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The jar's file name, ``artifact-version.jar``."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> Path:
        """The jar's path in a directory laid out like a Maven repository."""
        return Path(*self.group.split("."), self.artifact, self.version, self.file_name)


@dataclass(frozen=True)
class LockFile:
    """A named list of pinned jars; ``name`` is also its directory in the cache."""

    name: str
    jars: tuple[LockedJar, ...]


def known_kafka_versions() -> list[str]:
    """Return the Kafka versions that have a lock file, oldest first."""
    names = (name.removeprefix("kafka-") for name in known_locks() if name.startswith("kafka-"))
    return sorted(names, key=version_tuple)


def version_tuple(version: str) -> tuple[int, ...]:
    """Return a version such as ``0.10.2.2`` as numbers, which compare in version order."""
    return tuple(int(part) for part in version.split("."))


def known_locks() -> list[str]:
    """Return the names of all lock files of this package."""
    names = (entry.name for entry in (importlib.resources.files(__package__) / "locks").iterdir())
    return sorted(name.removesuffix(".lock") for name in names if name.endswith(".lock"))


def read_lock(name: str) -> LockFile:
    """Read a lock file of this package, such as ``kafka-3.9.1``.

    Raises SandboxError if there is none of that name or a line is malformed.
    """
    file = importlib.resources.files(__package__) / "locks" / f"{name}.lock"
    if not file.is_file():
        raise SandboxError(f"no list of jars for {name}; there are lists for Kafka {', '.join(known_kafka_versions())}")
    return parse_lock(file.read_text(encoding="utf-8"), name)


def parse_lock(text: str, name: str) -> LockFile:
    """Parse the text of a lock file with this name. Empty lines and ``#`` comments are allowed."""
    jars: list[LockedJar] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        sha256, _, coordinates = line.strip().partition(" ")
        parts = coordinates.split(":")
        if len(sha256) != 64 or len(parts) != 3 or not all(parts):
            raise SandboxError(f"lock file {name}, line {number}: expected '<sha256> group:artifact:version'")
        jars.append(LockedJar(sha256.lower(), *parts))
    if len({jar.file_name for jar in jars}) != len(jars):
        raise SandboxError(f"lock file {name}: two jars would have the same file name")
    return LockFile(name, tuple(jars))


def verify_all(jars: Sequence[LockedJar], paths: Sequence[Path], advice: str) -> None:
    """Verify each path against its jar; see `verify`."""
    for jar, path in zip(jars, paths, strict=True):
        verify(path, jar, advice)


def verify(path: Path, jar: LockedJar, advice: str) -> None:
    """Raise SandboxError, ending in ``advice``, unless the file has exactly the checksum of the lock."""
    try:
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SandboxError(f"cannot read {path}: {error.strerror}; {advice}") from error
    if actual != jar.sha256:
        raise SandboxError(
            f"refused {path}: its SHA-256 is {actual}, but {jar.coordinates} must have {jar.sha256}; {advice}"
        )
