"""The jars inside pyspark that the sandbox uses: a ZooKeeper server, Ivy and py4j. pyspark itself is not imported."""

import importlib.util
from pathlib import Path

from zkconsumer.errors import SandboxError

# All jars that a standalone server loads; the log4j jars write its log to standard output.
_ZOOKEEPER_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "metrics-core",
    "snappy-java",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
)
# Further jars that a server needs for TLS.
_NETTY_JARS = (
    "netty-buffer",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
    "netty-tcnative-classes",
)
_INSTALL = "pip install 'zkconsumer[sandbox]'"


def ivy_jar() -> Path:
    """Return Ivy. Raises SandboxError as `zookeeper_jars` does."""
    return _find(_directory(), "ivy")


def py4j_jar() -> Path:
    """Return py4j's server side. Raises SandboxError as `zookeeper_jars` does."""
    return _find(_directory(), "py4j")


def zookeeper_jars(*, tls: bool = False) -> list[Path]:
    """Return the jars inside pyspark that make up a ZooKeeper server, without importing pyspark.

    Raises SandboxError if pyspark is not installed or lacks one of them.
    """
    directory = _directory()
    return [_find(directory, artifact) for artifact in (*_ZOOKEEPER_JARS, *(_NETTY_JARS if tls else ()))]


def _directory() -> Path:
    """Return the directory of pyspark's jars. Raises SandboxError if pyspark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SandboxError(f"pyspark, whose jars hold ZooKeeper, is not installed; {_INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "jars"


def _find(directory: Path, artifact: str) -> Path:
    """Return the jar of an artifact in the directory, of any version. Raises SandboxError if there is none."""
    jars = sorted(directory.glob(f"{artifact}-[0-9]*.jar"))
    if not jars:
        raise SandboxError(f"{directory} has no {artifact} jar; check that pyspark is 4.2 or later and complete")
    return jars[-1]
