"""A source of a streaming query in a process of its own, driven by the calls that Spark makes; it can be killed.

Spark's JVM does not run: what it contributes is the order of the calls (FACTS C.2b), which is the test's.
"""

import logging
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from kazoo.client import KazooClient

from tests.fix_waiting import eventually

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["zkconsumer.spark.source", "zkconsumer.spark.driver", "zkconsumer.spark.executor"])
_ANSWER_S = 100.0


class SourceProcess:
    """``ask(name, *arguments)`` calls a function of :class:`_Served` in the process.

    Args:
        options: of the query.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        ours, theirs = _CONTEXT.Pipe()
        self._pipe = ours
        self._process = _CONTEXT.Process(target=_serve, args=[theirs, dict(options)], daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, name: str, *arguments: Any) -> Any:
        """The function's result; what it raised is raised here."""
        self._pipe.send((name, arguments))
        assert self._pipe.poll(_ANSWER_S), f"{name} takes more than {_ANSWER_S} s"
        error, result = self._pipe.recv()
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """As Spark does: the group has been left when this returns."""
        self.ask("stop")
        self._end()

    def kill(self, zookeeper: str) -> None:
        """``kill -9``, and the ZooKeeper session ends at once rather than after its timeout."""
        identity = self.ask("identity")
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        if identity is not None:
            thief = KazooClient(zookeeper, client_id=identity)
            thief.start(15)
            thief.stop()
            thief.close()
        self._pipe.close()

    def _end(self) -> None:
        self._pipe.close()
        self._process.join(_ANSWER_S)
        assert self._process.exitcode == 0


class _Warnings(logging.Handler):
    """Keeps what is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class _Served:
    """What the process does when it is asked to."""

    def __init__(self, options: dict[str, str]) -> None:
        from zkconsumer.spark.source import ZkConsumerDataSource

        self._warnings = _Warnings()
        logging.getLogger("zkconsumer").addHandler(self._warnings)
        source = ZkConsumerDataSource(options)
        self._reader = source.streamReader(source.schema())

    def prepare(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def latest_offset(self, start: dict[str, Any], limit: int | None) -> dict[str, Any]:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return self._reader.latestOffset(start, ReadAllAvailable() if limit is None else ReadMaxRows(limit))

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, bytes]]:
        """Topic, partition, offset and value of each row of the batch."""
        return [
            (row["topic"], row["partition"], row["offset"], row["value"])
            for task in self._reader.partitions(start, end)
            for batch in self._reader.read(task)
            for row in batch.to_pylist()
        ]

    def report(self) -> dict[str, Any] | None:
        return self._reader.reportLatestOffset()

    def warnings(self) -> list[str]:
        return self._warnings.messages

    def join(self) -> None:
        self._reader._query()._join()

    def share(self) -> tuple[list[tuple[str, int]], dict[str, int | str]] | None:
        """Owned partitions, and identities of the subscribed topics; None while a rebalance is under way."""
        assignment = self._reader._query()._control.await_assignment(0)
        if assignment is None:
            return None
        identities = {name: topic.identity.recorded for name, topic in assignment.topics.items()}
        return sorted(map(tuple, assignment.threads)), identities

    def consumer_id(self) -> str:
        return self._reader._query()._member.consumer_id

    def identity(self) -> tuple[int, bytes] | None:
        driver = self._reader._driver
        return None if driver is None or driver._member is None else driver._member._session._client.client_id

    def stop(self) -> None:
        self._reader.stop()


def _serve(pipe: Connection, options: dict[str, str]) -> None:
    served = _Served(options)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            result = None, getattr(served, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - the test raises it
            result = error, None
        pipe.send(result)


def await_gone(zookeeper: KazooClient, group: str, consumer_ids: set[str]) -> None:
    """Return when none of these members is registered."""

    def gone() -> bool:
        path = f"/consumers/{group}/ids"
        return not zookeeper.exists(path) or not consumer_ids & set(zookeeper.get_children(path))

    eventually(gone)
