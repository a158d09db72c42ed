"""ZooKeeper and Kafka in containers, on testcontainers; Kafka in ZooKeeper mode, which testcontainers does not have.

::

    with Network() as network, ZooKeeperContainer("zookeeper:3.9", network=network) as zookeeper:
        with KafkaContainer("confluentinc/cp-kafka:7.6.1", network=network, environment="KAFKA_") as kafka:
            ConsumerConfig(zookeeper_connect=zookeeper.address, group_id="g")

Both servers publish their port on loopback under the number that they listen on, so the address that the broker
advertises is valid on the host, and in containers that share the broker's network namespace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

from zkconsumer.sandbox.kafka import PROPERTIES, ZOOKEEPER_PROPERTIES
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.probes import known_brokers, zookeeper_mode

ZOOKEEPER_PORT: Final = 2181
"""The port of a ZooKeeper server inside its network."""

_READY_TIMEOUT_S: Final = 90
_LOG_LINES: Final = 20


class _Ready(WaitStrategy):
    """Poll until a question about the container has a true answer; a container that has ended is not waited for."""

    def __init__(self, what: str, is_ready: Callable[[], object]) -> None:
        super().__init__()
        self._what = what
        self._is_ready = is_ready
        self.with_startup_timeout(_READY_TIMEOUT_S).with_poll_interval(0.1)

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        """See the base class."""

        def check() -> bool:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            if wrapped.status == "exited":
                raise RuntimeError(f"{self._what} has ended: {wrapped.logs(tail=_LOG_LINES).decode()}")
            return bool(self._is_ready())

        if not self._poll(check):
            logs = container.get_wrapped_container().logs(tail=_LOG_LINES).decode()
            raise TimeoutError(f"{self._what} was not ready within {_READY_TIMEOUT_S} s: {logs}")


class ServerContainer(DockerContainer):
    """What the two have in common: a port, and faults of the server.

    Args:
        image: name and tag.
        network: its network; None for the engine's default.
        alias: its name in the network.
        container_port: where the server listens inside; None for the same number as on the host.
        ready: a question that is asked until the answer is true.
    """

    def __init__(
        self,
        image: str,
        *,
        network: Network | None,
        alias: str,
        container_port: int | None,
        ready: Callable[[int], object],
    ) -> None:
        placed: dict[str, Any] = {} if network is None else {"network": network, "network_aliases": [alias]}
        super().__init__(image, **placed)
        self.port = free_port()
        self.ports[f"{container_port or self.port}/tcp"] = (HOST, self.port)  # type: ignore[assignment] # an address, as the engine's client takes it
        self._ready = _Ready(f"{alias} ({image})", lambda: ready(self.port))
        self.waiting_for(self._ready)

    @property
    def address(self) -> str:
        """Where clients on the host connect, ``host:port``."""
        return f"{HOST}:{self.port}"

    def pause(self) -> None:
        """Freeze the server: its connections stay open and nothing is answered."""
        self.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let a frozen server continue."""
        self.get_wrapped_container().unpause()

    def kill(self) -> None:
        """End the server by SIGKILL; its data stay."""
        self.get_wrapped_container().kill()

    def restart(self) -> None:
        """Stop the server if it runs, start it on the same port and data, and return when it serves."""
        self.get_wrapped_container().restart()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when the server serves.

        Raises:
            RuntimeError: the container has ended.
            TimeoutError: it does not serve in time. Both have the last lines of its log.
        """
        self._ready.wait_until_ready(self)


class ZooKeeperContainer(ServerContainer):
    """A ZooKeeper server; ready when it answers ``srvr`` with its mode, which in an ensemble takes a quorum.

    Args:
        image: any whose server listens on port 2181 and allows the command ``srvr``, such as the official
            ``zookeeper``; the default is the one of ``docker/zookeeper``.
        network: of the container; a broker in another container needs one.
        alias: name of the server in the network.
    """

    def __init__(
        self, image: str = "zkconsumer/zookeeper", *, network: Network | None = None, alias: str = "zookeeper"
    ) -> None:
        super().__init__(image, network=network, alias=alias, container_port=ZOOKEEPER_PORT, ready=zookeeper_mode)

    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; "" if the server does not serve."""
        return zookeeper_mode(self.port)


class KafkaContainer(ServerContainer):
    """A broker in ZooKeeper mode; ready when it lists itself as alive.

    Args:
        image: with a release that knows ZooKeeper, up to 3.9; the default is the one of ``docker/kafka``.
        network: of the container, the one of ZooKeeper.
        zookeeper_connect: as the broker reaches ZooKeeper in the network.
        broker_id: unique in the cluster.
        environment: prefix of the environment variables that the image makes settings of: ``KAFKA_`` for Confluent's
            and Apache's images, ``KAFKA_CFG_`` for Bitnami's. None passes them as arguments ``--override key=value``,
            which ``docker/kafka`` takes.
        inner_port: adds a listener for containers of the network, at this port of the broker's alias ``kafka-<id>``,
            which is the address that consumers find in ZooKeeper; without it they find the one of the host.
        properties: further settings of ``server.properties``, in the JVM's spelling; they outrank ours.
    """

    def __init__(
        self,
        image: str = "zkconsumer/kafka",
        *,
        network: Network | None = None,
        zookeeper_connect: str = f"zookeeper:{ZOOKEEPER_PORT}",
        broker_id: int = 0,
        environment: str | None = None,
        inner_port: int | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            image,
            network=network,
            alias=f"kafka-{broker_id}",
            container_port=None,
            ready=lambda port: broker_id in known_brokers(port),
        )
        settings = {
            "broker.id": broker_id,
            "zookeeper.connect": zookeeper_connect,
            **self._listeners(f"kafka-{broker_id}", inner_port),
            **ZOOKEEPER_PROPERTIES,
            **PROPERTIES,
            **(properties or {}),
        }
        if environment is None:
            self.with_command([word for key, value in settings.items() for word in ("--override", f"{key}={value}")])
        else:
            for key, value in settings.items():
                self.with_env(environment + key.upper().replace(".", "_"), str(value))

    def _listeners(self, alias: str, inner_port: int | None) -> dict[str, str]:
        if inner_port is None:
            return {"listeners": f"PLAINTEXT://:{self.port}", "advertised.listeners": f"PLAINTEXT://{self.address}"}
        # Consumers take the first listener whose protocol is theirs, JVM consumers the one named PLAINTEXT.
        return {
            "listeners": f"PLAINTEXT://:{inner_port},HOST://:{self.port}",
            "advertised.listeners": f"PLAINTEXT://{alias}:{inner_port},HOST://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
        }

    def restart(self) -> None:
        """As for every server; a broker that was killed ends again until ZooKeeper has let its session expire."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            try:
                return super().restart()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, on the host."""
        return self.address
