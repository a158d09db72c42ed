"""The stack of ``docker/compose.yaml``, started by Compose itself under a project name of its own; skips without it."""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.sandbox.ports import HOST, free_port

_FILE = Path(__file__).resolve().parent.parent / "docker" / "compose.yaml"
_TIMEOUT_S = 300


class ComposeStack:
    """Services of the file, by the names that they have there."""

    def __init__(self, compose: list[str]) -> None:
        self._kafka_port = free_port()
        self._compose = [*compose, "-p", f"zkconsumer{uuid.uuid4().hex[:8]}", "-f", str(_FILE)]
        self._environment = {
            **os.environ,
            "ZKCONSUMER_ZOOKEEPER_PORT": str(free_port()),
            "ZKCONSUMER_KAFKA_PORT": str(self._kafka_port),
        }

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address on this host."""
        return f"{HOST}:{self._kafka_port}"

    def run(self, *words: str) -> str:
        """Run a Compose command and return what it prints."""
        done = _run([*self._compose, *words], self._environment)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def health(self, service: str) -> str:
        """What the engine knows of a service's health: ``starting``, ``healthy`` or ``unhealthy``."""
        return self._inspect(service, "{{.State.Health.Status}}")

    def started_at(self, service: str) -> str:
        """When the container's process was started."""
        return self._inspect(service, "{{.State.StartedAt}}")

    def values(self, service: str, since: str = "") -> set[str]:
        """The values that a consumer has printed, all or those printed since a time."""
        printed = self._docker("logs", *(("--since", since) if since else ()), self._container(service))
        return {json.loads(line)["value"] for line in printed.rpartition("\n")[0].splitlines()}

    def describe_group(self, service: str) -> dict[str, Any]:
        """What the group looks like to a command that runs in a consumer's container, as docker/README.md shows it."""
        command = ("describe", "--zookeeper", "zookeeper:2181", "--group", "example", "--json")
        found: dict[str, Any] = json.loads(self.run("exec", "-T", service, "zkconsumer", "groups", *command))
        return found

    def errors(self) -> str:
        """The last lines of every service, for the message of a failure."""
        return _run([*self._compose, "logs", "--no-color", "--tail", "15"], self._environment).stdout

    def _container(self, service: str) -> str:
        return self.run("ps", "-q", service).strip()

    def _inspect(self, service: str, template: str) -> str:
        return self._docker("inspect", "--format", template, self._container(service)).strip()

    def _docker(self, *words: str) -> str:
        done = _run(["docker", *words])
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr[-2000:]}"
        return done.stdout


def _run(command: list[str], environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env=environment,
    )


def _compose_command() -> list[str] | None:
    """The plugin or, where there is none, the older program."""
    if shutil.which("docker") and _run(["docker", "compose", "version"]).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


@pytest.fixture
def compose_stack(container_images: None) -> Iterator[ComposeStack]:
    """The stack, up; its services become healthy by and by."""
    compose = _compose_command()
    if compose is None:
        pytest.skip("there is no Docker Compose; install it, or see .ci/engine for how CI does")
    stack = ComposeStack(compose)
    try:
        stack.run("up", "-d", "--no-build")
        yield stack
    finally:
        stack.run("down", "--volumes", "--timeout", "5")
