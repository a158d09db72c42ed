"""Fetches pinned jars from a Maven repository with the Ivy inside pyspark.

Ivy knows the address of Maven Central, honours the machine's proxy and certificate settings for Java, and is already
installed. Dependency resolution is off: the list is complete, so no POM is read and only the listed jars are fetched.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.lockfile import LockedJar
from zkconsumer.sandbox.process import JvmProcess, java_command
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.pysparkjars import ivy_jar

_CONNECT_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 30_000
# Longer than both together, so that Ivy reports its own error first.
_STALL_S = 60.0


def fetch(
    lock: str, jars: Sequence[LockedJar], directory: Path, maven_url: str | None, progress: Progress
) -> list[Path]:
    """Fetch jars below ``directory`` and return their paths in the order of ``jars``; they are not verified yet.

    ``maven_url`` replaces Maven Central. Raises SandboxError if a jar cannot be fetched; then Ivy's log remains next to
    ``directory``.
    """
    (directory / "settings.xml").write_text(_settings(maven_url), encoding="utf-8")
    (directory / "ivy.xml").write_text(_module(jars), encoding="utf-8")
    cache, out = directory / "cache", directory / "jars"
    log = directory.parent / f"{lock}.fetch.log"  # outside of ``directory``, which is removed after a failure, too
    log.unlink(missing_ok=True)
    ivy = JvmProcess(f"fetching the jars of {lock}", _command(directory, cache, out), log)
    with progress.step(f"fetching {len(jars)} jars of {lock}", len(jars)) as advance:
        ivy.start()
        try:
            code = ivy.run(lambda: advance(*_fetched(cache)), _STALL_S, lambda: _activity(cache))
        except SandboxError as error:
            raise SandboxError(f"{error}{_advice(maven_url)}") from error
        finally:
            ivy.kill()
    paths = [out / jar.file_name for jar in jars]
    missing = [jar.coordinates for jar, path in zip(jars, paths, strict=True) if not path.exists()]
    if code != 0 or missing:
        example = missing[0] if missing else "some of them"
        raise SandboxError(
            f"{ivy.name} failed, {len(missing)} of {len(jars)} are missing ({example}): {ivy.log_summary()}"
            f"{_advice(maven_url)}"
        )
    log.unlink(missing_ok=True)
    return paths


def _command(directory: Path, cache: Path, out: Path) -> list[str]:
    # Ivy's own directory is set, too: it must neither read the user's settings nor need a writable home.
    options = [f"-Divy.default.ivy.user.dir={directory}", f"-Divy.home={directory}", "-Xmx128m", "-XX:-UsePerfData"]
    arguments = ["-settings", str(directory / "settings.xml"), "-ivy", str(directory / "ivy.xml")]
    arguments += ["-cache", str(cache), "-retrieve", f"{out}/[artifact]-[revision].[ext]"]
    return java_command(find_java().executable, options, [ivy_jar()], "org.apache.ivy.Main", *arguments)


def _settings(maven_url: str | None) -> str:
    root = f" root={quoteattr(maven_url)}" if maven_url else ""
    return (
        '<ivysettings><settings defaultResolver="repository"/>'
        f'<timeout-constraints><timeout-constraint name="limits" connectionTimeout="{_CONNECT_TIMEOUT_MS}"'
        f' readTimeout="{_READ_TIMEOUT_MS}"/></timeout-constraints>'
        f'<resolvers><ibiblio name="repository"{root} timeoutConstraint="limits" m2compatible="true" usepoms="false"'
        ' useMavenMetadata="false"/></resolvers></ivysettings>\n'
    )


def _module(jars: Sequence[LockedJar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default->default"/>\n'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="zkconsumer" module="sandbox"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>\n{dependencies}'
        "</dependencies></ivy-module>\n"
    )


def _fetched(cache: Path) -> tuple[int, str]:
    """Return the number of jars fetched, and a text with the bytes, including incomplete ones."""
    sizes = _sizes(cache, "*/*/jars/*")
    whole = sum(path.suffix == ".jar" for path in sizes)
    return whole, f"({sum(sizes.values()) / 1e6:.1f} MB)"


def _activity(cache: Path) -> tuple[int, int]:
    # Ivy writes a small file for each artifact that it finds, long before the first jar arrives.
    sizes = _sizes(cache, "**/*")
    return len(sizes), sum(sizes.values())


def _sizes(cache: Path, pattern: str) -> dict[Path, int]:
    sizes: dict[Path, int] = {}
    for path in cache.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # renamed in between, as a finished jar is
            sizes[path] = path.stat().st_size
    return sizes


def _advice(maven_url: str | None) -> str:
    where = maven_url or "Maven Central"
    return f"; check that {where} can be reached, or set --maven-url or --jars-dir"
