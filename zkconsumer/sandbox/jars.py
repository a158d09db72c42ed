"""The source of a server's jars, and their verification.

A lock file pins the jars (``lockfile.py``). They come from a directory of the user, or are fetched once into the cache
(``maven.py``), and are verified before every use.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError, name_some
from zkconsumer.sandbox.cache import cache_directory, exclusive
from zkconsumer.sandbox.lockfile import LockedJar, LockFile, verify_all
from zkconsumer.sandbox.maven import fetch
from zkconsumer.sandbox.progress import Progress

DEFAULT_KAFKA_VERSION = "3.9.1"
MAVEN_URL_VARIABLE = "ZKCONSUMER_MAVEN_URL"
JARS_DIR_VARIABLE = "ZKCONSUMER_JARS_DIR"


@dataclass(frozen=True)
class JarSource:
    """The source of jars.

    ``jars_dir`` is a directory that has them, flat or laid out like a Maven repository; then none are fetched.
    ``maven_url`` is the root of a Maven repository to use in place of Maven Central. ``cache`` is the directory for
    fetched jars; None for the user's cache directory.
    """

    maven_url: str | None = None
    jars_dir: Path | None = None
    cache: Path | None = None

    @classmethod
    def from_environment(
        cls, maven_url: str | None = None, jars_dir: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> "JarSource":
        """Use ZKCONSUMER_MAVEN_URL, ZKCONSUMER_JARS_DIR and ZKCONSUMER_CACHE for arguments that are not given."""
        environ = os.environ if environ is None else environ
        directory = environ.get(JARS_DIR_VARIABLE)
        return cls(
            maven_url=maven_url or environ.get(MAVEN_URL_VARIABLE) or None,
            # A mirror given as an argument takes precedence over a directory in the environment.
            jars_dir=jars_dir or (Path(directory).expanduser() if directory and not maven_url else None),
            cache=cache_directory(environ),
        )

    def provide(self, lock: LockFile, progress: Progress) -> list[Path]:
        """Return the verified jars of a list, in its order, and fetch those that are not in the cache.

        Raises SandboxError if a missing jar cannot be fetched, or a jar's checksum differs from the lock file.
        """
        if self.jars_dir is not None:
            return _from_directory(lock.jars, self.jars_dir)
        directory = (self.cache or cache_directory()) / "jars" / lock.name
        paths = [directory / jar.file_name for jar in lock.jars]
        if not all(path.exists() for path in paths):
            self._fill(directory, lock, progress)
        verify_all(lock.jars, paths, f"delete {directory} to fetch it again")
        return paths

    def _fill(self, directory: Path, lock: LockFile, progress: Progress) -> None:
        """Fetch missing jars into another directory, verify them, then rename jar by jar.

        So a jar in the cache is always complete, whenever a process is killed; and one process fetches while others
        wait.
        """
        origin = self.maven_url or "Maven Central"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with exclusive(directory.parent / f"{lock.name}.lock", progress):
                missing = [jar for jar in lock.jars if not (directory / jar.file_name).exists()]
                if not missing:  # another process was faster
                    return
                with _empty_directory(directory.parent / f"{lock.name}.fetch") as temporary:
                    fetched = fetch(lock.name, missing, temporary, self.maven_url, progress)
                    verify_all(missing, fetched, f"it came from {origin}: check for a mirror or proxy that replaces it")
                    for path in fetched:
                        path.replace(directory / path.name)
        except OSError as error:
            raise SandboxError(f"cannot store jars in {directory}: {error}; check space and permissions") from error


@contextmanager
def _empty_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory, removed at the end; one that a killed process left is removed first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _from_directory(jars: Sequence[LockedJar], directory: Path) -> list[Path]:
    paths: list[Path] = []
    missing: list[str] = []
    for jar in jars:
        candidates = (directory / jar.file_name, directory / jar.repository_path)
        jar_path = next((path for path in candidates if path.is_file()), None)
        if jar_path is None:
            missing.append(jar.file_name)
        else:
            paths.append(jar_path)
    if missing:
        raise SandboxError(f"{directory} lacks {name_some(missing)}; check --jars-dir and {JARS_DIR_VARIABLE}")
    verify_all(jars, paths, f"check --jars-dir and {JARS_DIR_VARIABLE}, and the origin of that file")
    return paths
