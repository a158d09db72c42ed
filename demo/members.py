"""The demo's consumer processes: real ``zkconsumer consume`` commands."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from zkconsumer.sandbox.process import JvmProcess

_SESSION_TIMEOUT_S = 3.0
"""Short enough to watch the takeover after a kill, long enough that a busy machine does not lose sessions."""
_SESSION_TIMEOUT_AT_BROKERS_S = 6.0
"""The least that brokers allow by default."""

_PROPERTIES = {
    "zookeeper.session.timeout.ms": f"{_SESSION_TIMEOUT_S * 1000:.0f}",
    # The default equals the session timeout: a busy machine would prevent members from starting.
    "zookeeper.connection.timeout.ms": "30000",
    # A member may have to wait until the session of a killed member expires: ten seconds in total.
    "rebalance.backoff.ms": "1000",
    "rebalance.max.retries": "10",
    "auto.commit.interval.ms": "500",
}
_AT_BROKERS = {
    "session.timeout.ms": f"{_SESSION_TIMEOUT_AT_BROKERS_S * 1000:.0f}",
    "heartbeat.interval.ms": "500",
}
_STALL_S = 60.0


class Member:
    """One consumer process of a group, which writes JSON lines to its own file.

    Args:
        name: name of the member, unique in its group.
        group: consumer group.
        topic: topic that it consumes, with one thread.
        connection: the properties with which it finds the servers.
        directory: directory for its output.
        logs: directory for its log.

    Attributes:
        consumer_id: name of the member in its group: its consumer id, or its ``client.id`` in a group that brokers
            coordinate.
        session_timeout_s: after which the group gives its partitions to others if it was killed, in seconds.
    """

    def __init__(
        self, name: str, group: str, topic: str, connection: Mapping[str, str], directory: Path, logs: Path
    ) -> None:
        self.name = name
        self.consumer_id, self.session_timeout_s = f"{group}_{name}", _SESSION_TIMEOUT_S
        self.output = directory / f"{name}.jsonl"
        properties = {**_PROPERTIES, **connection, "consumer.id": name}
        if connection.get("group.protocol") == "kafka":
            self.consumer_id, self.session_timeout_s = name, _SESSION_TIMEOUT_AT_BROKERS_S
            properties |= {**_AT_BROKERS, "client.id": name}
        # The class works for any process; here it is Python. The consumer dies with this process, however that ends.
        self._process = JvmProcess(
            name,
            [
                *(sys.executable, "-m", "zkconsumer", "-v", "consume", "--from-beginning", "--format", "json"),
                *("--group", group, "--topic", topic, "--output", str(self.output)),
                *(part for key, value in properties.items() for part in ("--property", f"{key}={value}")),
            ],
            logs / f"{name}.log",
        )
        self._expected = False

    def start(self) -> None:
        """Start the process. Raises SandboxError if that is not possible."""
        self._process.start()
        self._expected = True

    def expect_alive(self) -> None:
        """Raise SandboxError, quoting the log, if the process has ended without a request."""
        if self._expected:
            self._process.expect_running()

    def output_bytes(self) -> int:
        """Size of its output in bytes."""
        return self.output.stat().st_size if self.output.exists() else 0

    def kill(self) -> int:
        """End the process by SIGKILL and return its exit code."""
        self._expected = False
        self._process.signal(signal.SIGKILL)
        return self.await_end()

    def end(self) -> None:
        """Ensure that the process has ended."""
        self._expected = False
        self._process.kill()

    def ask_to_leave(self) -> None:
        """Send SIGTERM, after which a consumer commits, leaves its group and ends."""
        self._expected = False
        self._process.signal(signal.SIGTERM)

    def await_end(self) -> int:
        """Wait for the end after :meth:`ask_to_leave` and return the exit code. Raises SandboxError after a minute."""
        return self._process.run(lambda: None, _STALL_S, lambda: None)
