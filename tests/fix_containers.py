"""Fixtures around servers and consumers in containers, for tests that need a Docker engine; without one they skip.

All stands on one Docker network, where ZooKeeper is ``zookeeper:2181``. Kafka listens on a port that is published under
the same number, and the consumers share Kafka's network namespace: so ``127.0.0.1:PORT``, which the broker advertises,
is right inside and outside. Ports are published on loopback only.

The images are those of ``docker/``, built by ``docker/images.py``; ZKCONSUMER_JAVA_IMAGE and ZKCONSUMER_PYTHON_IMAGE
name other base images than those made of this machine's files.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.probes import four_letter_word, known_brokers

# Before testcontainers is imported: its image that reaps containers cannot be pulled everywhere, and the fixtures below
# remove what they start.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

_IMAGES = Path(__file__).resolve().parent.parent / "docker" / "images.py"
_ANSWER_TIMEOUT_S = 30
_BUILD_TIMEOUT_S = 900
_ZOOKEEPER_PORT = 2181


class _Ready(WaitStrategy):
    """Poll until a question about the container has a true answer; a container that has ended is not waited for."""

    def __init__(self, what: str, is_ready: Callable[[], object]) -> None:
        super().__init__()
        self._what = what
        self._is_ready = is_ready
        self.with_startup_timeout(90).with_poll_interval(0.1)

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        def check() -> bool:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            if wrapped.status == "exited":
                raise AssertionError(f"{self._what}: the container has ended: {wrapped.logs(tail=20).decode()}")
            return bool(self._is_ready())

        if not self._poll(check):
            raise TimeoutError(f"{self._what}: not ready in time")


class ZooKeeperContainer(DockerContainer):
    """A ZooKeeper server; ready when it answers ``srvr`` with its mode, which in an ensemble takes a quorum."""

    def __init__(self, network: Network) -> None:
        super().__init__("zkconsumer/zookeeper", network=network, network_aliases=["zookeeper"])
        self.port = free_port()
        self.ports[f"{_ZOOKEEPER_PORT}/tcp"] = (HOST, self.port)
        self.waiting_for(_Ready("ZooKeeper", lambda: "Mode:" in four_letter_word(self.port, "srvr")))

    @property
    def connect(self) -> str:
        """What ``zookeeper.connect`` is outside the network."""
        return f"{HOST}:{self.port}"

    def pause(self) -> None:
        """Freeze the server: its connections stay open and nothing is answered."""
        self.get_wrapped_container().pause()

    def unpause(self) -> None:
        """Let the server go on."""
        self.get_wrapped_container().unpause()


class KafkaContainer(DockerContainer):
    """A broker that is registered in ``zookeeper``; ready when it knows itself to be alive.

    ``properties`` are settings of server.properties, in the JVM's spelling.
    """

    def __init__(self, network: Network, zookeeper_session_timeout_ms: int) -> None:
        super().__init__("zkconsumer/kafka", network=network)
        self.port = free_port()
        self.ports[f"{self.port}/tcp"] = (HOST, self.port)
        properties = {
            "listeners": f"PLAINTEXT://:{self.port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "zookeeper.session.timeout.ms": zookeeper_session_timeout_ms,
            "auto.create.topics.enable": "false",
        }
        self.with_command([word for key, value in properties.items() for word in ("--override", f"{key}={value}")])
        self.waiting_for(_Ready("Kafka", lambda: 0 in known_brokers(self.port)))

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, inside and outside the network."""
        return f"{HOST}:{self.port}"


class ConsumerContainer(DockerContainer):
    """A process ``zkconsumer consume`` that prints JSON."""

    def __init__(self, kafka: KafkaContainer, group: str, topic: str, properties: dict[str, object]) -> None:
        namespace = f"container:{kafka.get_wrapped_container().id}"
        super().__init__("zkconsumer/consumer", network_mode=namespace)
        command = ["consume", "--zookeeper", f"zookeeper:{_ZOOKEEPER_PORT}", "--group", group, "--topic", topic]
        command += ["--from-beginning", "--format", "json"]
        command += [word for key, value in properties.items() for word in ("--property", f"{key}={value}")]
        self.with_command(command)

    def is_running(self) -> bool:
        """False when the process has ended."""
        wrapped = self.get_wrapped_container()
        wrapped.reload()
        return wrapped.status == "running"

    def records(self) -> list[dict[str, Any]]:
        """Return what the process has printed so far, but for a line that is not complete yet."""
        printed, _ = self.get_logs()
        complete, _, _ = printed.rpartition(b"\n")
        return [json.loads(line) for line in complete.splitlines()]


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skip, saying why, unless a Docker engine answers."""
    # Asked by the command that builds the images: the Python client leaves sockets open when nobody answers it.
    try:
        asked = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
        problem = "" if asked.returncode == 0 else asked.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        pytest.skip(f"no Docker engine answers ({problem}); start one, or see .ci/engine for how CI does")


@pytest.fixture(scope="session")
def container_images(docker_engine: None) -> None:
    """The images of ``docker/``, built from what is in this checkout."""
    # Elsewhere there is no glibc to copy, and the engine runs in a virtual machine that can pull.
    bases = ["--local-bases"] if sys.platform == "linux" else []
    command = [sys.executable, str(_IMAGES), "build", *bases]
    built = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
    )
    assert built.returncode == 0, f"the images could not be built:\n{built.stdout[-4000:]}{built.stderr[-4000:]}"


@pytest.fixture
def container_network(container_images: None) -> Iterator[Network]:
    """A network of the test's own."""
    with Network() as network:
        yield network


@pytest.fixture
def zookeeper_container(container_network: Network) -> Iterator[ZooKeeperContainer]:
    """A ZooKeeper of the test's own."""
    with ZooKeeperContainer(container_network) as zookeeper:
        yield zookeeper


@pytest.fixture
def kafka_container(
    container_network: Network, zookeeper_container: ZooKeeperContainer
) -> Iterator[Callable[..., KafkaContainer]]:
    """Start a broker that is registered in the test's ZooKeeper; the argument is its session timeout in ms."""
    with contextlib.ExitStack() as started:
        yield lambda session_timeout_ms: started.enter_context(KafkaContainer(container_network, session_timeout_ms))


@pytest.fixture
def consumer_container() -> Iterator[Callable[..., ConsumerContainer]]:
    """Start consumer processes: ``consumer_container(kafka, group, topic, properties)``."""
    with contextlib.ExitStack() as started:
        yield lambda *arguments: started.enter_context(ConsumerContainer(*arguments))
