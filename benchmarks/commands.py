"""Commands: processes of zkconsumer's commands and of the JVM's tools, timed from their start to their end."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import zkconsumer
from jvmclients.zookeeperconsumer import ConsumerJvm
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox import Sandbox

DESCRIBE: Final = "kafka.admin.ConsumerGroupCommand"
"""The JVM's tool that describes groups, and resets their offsets."""
EXPORT: Final = "kafka.tools.ExportZkOffsets"
IMPORT: Final = "kafka.tools.ImportZkOffsets"

_COMMAND_S: Final = 600.0
_SHOWN, _SHOWN_CHARACTERS = 8, 1000


class Commands:
    """Commands on the servers of a benchmark.

    Args:
        sandbox: running servers.
        jvm: gives the command lines of the JVM's tools; it need not run.
        directory: for files that the commands write.
    """

    def __init__(self, sandbox: Sandbox, jvm: ConsumerJvm, directory: Path) -> None:
        self._connect = sandbox.zookeeper_connect
        self._bootstrap_servers = sandbox.bootstrap_servers
        self._jvm, self._directory = jvm, directory
        self._environment = installed_environment()
        self._numbers = count()

    def new_file(self) -> Path:
        """A path at which there is nothing."""
        return self._directory / f"file-{next(self._numbers)}"

    def name_of(self, main: str) -> str:
        """Name of a tool of the JVM in the report."""
        return f"{main.rpartition('.')[2]} {self._jvm.version}"

    def ours(self, *arguments: str) -> float:
        """Seconds of a command of zkconsumer.

        Raises:
            SandboxError: it failed.
        """
        command = [sys.executable, "-m", "zkconsumer", *arguments, "--zookeeper", self._connect]
        return timed(command, self._environment)

    def theirs(self, main: str, *arguments: str) -> float:
        """Seconds of a tool of the JVM that asks ZooKeeper; raises as :meth:`ours`."""
        option = "--zookeeper" if main == DESCRIBE else "--zkconnect"
        return timed(self._jvm.tool(main, option, self._connect, *arguments), os.environ)

    def theirs_of_brokers(self, main: str, *arguments: str) -> float:
        """Seconds of a tool of the JVM that asks brokers; raises as :meth:`ours`."""
        return timed(self._jvm.tool(main, "--bootstrap-server", self._bootstrap_servers, *arguments), os.environ)


def installed_environment() -> dict[str, str]:
    """Environment of a command of the checkout that starts as an installed one: its modules are compiled already.

    Raises:
        SandboxError: they cannot be compiled.
    """
    if not compileall.compile_dir(Path(zkconsumer.__file__).parent, quiet=1):
        raise SandboxError(f"{zkconsumer.__file__}: the package cannot be compiled; check who may write there")
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def timed(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Seconds from the start of a command's process to its end.

    Raises:
        SandboxError: it failed.
    """
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False, env=environment)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SandboxError(
            f"{Path(command[0]).name} ... {' '.join(command[-_SHOWN:])} ended with exit code {done.returncode}; its "
            f"output ends with: {(done.stdout + done.stderr)[-_SHOWN_CHARACTERS:]}"
        )
    return seconds
