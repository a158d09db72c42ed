"""A JVM that Python drives through py4j, so that no Java is compiled, and what its consumers have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.ports import HOST
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.pysparkjars import py4j_jar
from zkconsumer.sandbox.server import LocalServer

SMALL: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options of a JVM that starts quickly and needs little memory."""

_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)
# Up to 0.11 the consumer logs through log4j 1, which logs nothing unless it is configured.
_LOG4J: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d [%t] %p %c - %m%n
"""
_BYTES = r"null|\[[-\d, ]*\]"
RECORD: Final = rf"([\w.-]+), (\d+), (\d+), ({_BYTES}), ({_BYTES})"
"""Java's text of topic, partition, offset, key and value of a record."""
_ROW: Final = re.compile(rf"\[{RECORD}\]")


class JvmRecord(NamedTuple):
    """A record returned by a JVM consumer."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class GatewayJvm(LocalServer):
    """A JVM with some jars; see `LocalServer` for its life cycle. Killing or pausing it does so to all its consumers.

    ``lock`` names the list of jars, ``jars`` is their source (default: chosen by the environment, else Maven Central),
    ``progress`` reports fetching them (default: no reports).
    """

    def __init__(
        self,
        directory: Path,
        *,
        lock: str,
        name: str,
        jvm_options: Sequence[str] = SMALL,
        jars: JarSource | None = None,
        progress: Progress | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(name, directory, None, ready_timeout_s)
        self._jvm_options = tuple(jvm_options)
        source = jars or JarSource.from_environment()
        self._jars = source.provide(read_lock(lock), progress or Progress(quiet=True))
        self._gateway: Any = None

    def is_serving(self) -> bool:
        """True if the JVM obeys the gateway, to which the secret from its log gives access."""
        word = self._word()
        if word is None:
            return False
        from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]  # it has no types
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        parameters = GatewayParameters(
            address=HOST,
            port=self.port,
            auth_token=word,
            auto_convert=True,
            # It would call the JVM during Python's garbage collection, where a paused JVM would block any thread.
            enable_memory_management=False,
        )
        gateway = JavaGateway(gateway_parameters=parameters)
        try:
            gateway.jvm.java.lang.System.nanoTime()
        except Py4JError:
            gateway.close()
            return False
        self._gateway = gateway
        return True

    def stop(self, timeout_s: float = 15.0) -> None:
        """End the JVM by SIGTERM: consumers that were not shut down leave their groups by session expiry."""
        super().stop(timeout_s)
        self._disconnect()

    def kill(self) -> None:
        """End the JVM by SIGKILL; its consumers leave their groups by session expiry."""
        super().kill()
        self._disconnect()

    @property
    def gateway(self) -> Any:
        """The py4j gateway. Raises SandboxError if the JVM does not run."""
        if self._gateway is None:
            raise SandboxError(f"{self.name} is not running; start() it first")
        return self._gateway

    def tool(self, main: str, *args: str) -> list[str]:
        """The command line of a tool of this Kafka version, such as ``kafka.admin.ConsumerGroupCommand``."""
        return java_command(find_java().executable, (*SMALL, *_LOGGING), self._jars, main, *args)

    def _word(self) -> str | None:
        """The secret that the gateway wrote to the log after its port."""
        words = re.findall(rf"^{self.port}\n(\S+)\n", self.log.read_text(encoding="utf-8"), re.MULTILINE)
        return words[-1] if words else None

    def _disconnect(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None

    def _command(self) -> list[str]:
        log4j = self.directory / "log4j.properties"
        log4j.write_text(_LOG4J, encoding="utf-8")
        options = (
            *self._jvm_options,
            *_LOGGING,
            f"-Dlog4j.configuration={log4j.as_uri()}",
            f"-Djava.io.tmpdir={self.directory}",
        )
        jars = [*self._jars, py4j_jar()]
        return java_command(
            find_java().executable, options, jars, "py4j.GatewayServer", "--enable-auth", str(self.port)
        )


@contextmanager
def as_sandbox_error(jvm: GatewayJvm) -> Iterator[None]:
    """Turn py4j's errors into SandboxError with the JVM's error."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise SandboxError(f"{jvm.name}: {error.java_exception.toString()}; see {jvm.log}") from error
    except Py4JError as error:
        raise SandboxError(f"{jvm.name} did not answer: {error}; see {jvm.log}") from error


@contextmanager
def released_objects(gateway: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that registers Java objects which the JVM may drop afterwards."""
    objects: list[Any] = []

    def passing(java_object: Any) -> Any:
        objects.append(java_object)
        return java_object

    try:
        yield passing
    finally:
        for java_object in objects:
            gateway.detach(java_object)


def drained(jvm: GatewayJvm, queue: Any) -> list[JvmRecord]:
    """Take all rows out of a queue in the JVM, see `Handles.rows_into`.

    Raises SandboxError with the JVM's error.
    """
    with as_sandbox_error(jvm), released_objects(jvm.gateway) as passing:
        java = jvm.gateway.jvm
        batch = passing(java.java.util.ArrayList())
        if not queue.drainTo(batch):
            return []
        text = java.java.util.Arrays.deepToString(passing(batch.toArray()))
        return [record_of(*row) for row in _ROW.findall(text)]


def record_of(topic: str, partition: str, offset: str, key: str, value: str) -> JvmRecord:
    """The record of the groups that :data:`RECORD` matches."""
    return JvmRecord(topic, int(partition), int(offset), _bytes(key), _bytes(value))


def _bytes(text: str) -> bytes | None:
    """Parse Java's text of a byte array, whose elements are signed."""
    if text == "null":
        return None
    return bytes(int(number) & 0xFF for number in text.strip("[]").split(",") if number)
