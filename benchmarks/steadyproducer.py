"""SteadyProducer: a process that appends a batch to every partition of a topic, again and again."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.stamps import stampable_batch, with_stamp
from zkconsumer.errors import ProtocolError, SandboxError, ZkConsumerError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox.producer import FORMAT_1, FORMAT_2, Record, encode_batches, send_batches
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import error_name

_TIMEOUT_MS: Final = 30_000
_END_S: Final = 10.0
_PRODUCE: Final = 0
_VERSIONS: Final = (2, 9)
_FIRST_WITH_FORMAT_2: Final = 3
_MOST_OVERDUE: Final = 20
"""Appends whose records one batch has at most; what is overdue beyond them is never appended."""


class SteadyProducer:
    """Appends from its construction on; to be closed.

    Args:
        broker: leads all partitions.
        topic: topic to append to.
        partitions: number of its partitions.
        every_s: seconds between two appends to a partition. All are appended to by one request.
        stamped: number of records of a batch, whose values begin with the time of the append
            (:mod:`benchmarks.stamps`); 0 for one record without a time. Brokers before 0.11 do not know the format of
            stamped batches. After an append that took long, the next one has the records of those that are overdue.
    """

    def __init__(self, broker: Broker, topic: str, partitions: int, every_s: float, stamped: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, broker, topic, partitions, every_s, stamped)
        self._process = context.Process(target=_append, args=arguments, name="steady-producer", daemon=True)
        self._process.start()
        theirs.close()

    def expect_running(self) -> None:
        """Raise SandboxError, with the cause, if it has ended."""
        if self._connection.poll():
            try:
                why = self._connection.recv()
            except (EOFError, OSError) as error:
                why = repr(error)
            raise SandboxError(f"the producer has ended: {why}")

    def close(self) -> None:
        """End the process."""
        self._connection.close()  # the child sees it and ends
        self._process.join(_END_S)
        self._process.kill()


def _append(parent: Connection, broker: Broker, topic: str, partitions: int, every_s: float, stamped: int) -> None:
    """Append, in the child process, until the parent closes the connection."""
    connection = BrokerConnection(broker.host, broker.port, client_id="steady-producer", timeout_ms=_TIMEOUT_MS)
    try:
        connection.connect()
        batch = _batches(connection, stamped)
        all_partitions = [TopicPartition(topic, number) for number in range(partitions)]
        due = time.monotonic()
        while not parent.poll(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            appends = min(_MOST_OVERDUE, 1 + int((now - due) / every_s)) if stamped else 1
            due = max(due + appends * every_s, now)  # never a burst of appends that are overdue
            batches = dict.fromkeys(all_partitions, batch(appends))
            for tp, (error, _) in send_batches(connection, batches, _TIMEOUT_MS).items():
                if error:
                    raise ProtocolError(f"{connection} refused a batch for {tp}: {error_name(error)}")
    except ZkConsumerError as error:
        parent.send(str(error))
    except OSError:
        return  # the parent has gone
    finally:
        connection.close()


def _batches(connection: BrokerConnection, stamped: int) -> Callable[[int], bytes]:
    """A function that makes the batch of an append, for a number of appends that are due."""
    if stamped:
        stampable = cache(stampable_batch)
        return lambda appends: with_stamp(stampable(appends * stamped), time.monotonic_ns())
    record = Record(b"x" * 100, None, time.time_ns() // 1_000_000)
    is_old = connection.version(_PRODUCE, "Produce", *_VERSIONS) < _FIRST_WITH_FORMAT_2
    (plain,) = encode_batches([record], magic=FORMAT_1 if is_old else FORMAT_2)
    return lambda _: plain
