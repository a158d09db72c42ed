"""LedgerFeed: produces numbered records all the time, and records where each was appended."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from zkconsumer.testing.ledger import Produced
from zkconsumer.testing.ledgerfile import LedgerFile

_EVERY_S: Final = 0.05
_FLUSH_S: Final = 60.0


class LedgerFeed:
    """A thread that produces until :meth:`stop`.

    Args:
        bootstrap_servers: of the cluster.
        topic: where to append, to all partitions.
        ledger: gets a record for each acknowledged one.
        backlog: number of records to append before this returns.
        per_second: records after that.
        idempotent: True if no record is appended twice; False where a broker may lose what it has acknowledged: then a
            producer that counts what it has appended fails for good.

    Attributes:
        acknowledged: numbers of the records that the brokers have; written by the producer's thread.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        ledger: LedgerFile,
        *,
        backlog: int,
        per_second: int,
        idempotent: bool = True,
    ) -> None:
        self.acknowledged: set[int] = set()
        # Without duplicates of its own: what it sends again after a lost answer is recognised.
        settings = {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "acks": "all", "log_level": 2}
        self._producer: Any = Producer({**settings, "enable.idempotence": idempotent})
        self._topic = topic
        self._ledger = ledger
        self._each_time = max(1, round(per_second * _EVERY_S))
        self._numbers = count()
        self._ending = threading.Event()
        self._produce(backlog)
        self._producer.flush(_FLUSH_S)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def burst(self, records: int) -> None:
        """Append so many further records at once, as soon as the topic is known."""
        deadline = time.monotonic() + _FLUSH_S
        while (left := records - self._produce(records)) > 0 and time.monotonic() < deadline:
            records = left
            time.sleep(_EVERY_S)  # a producer does not tell when it knows the topic

    def stop(self) -> None:
        """End it; all records are acknowledged then, or have failed. Idempotent."""
        self._ending.set()
        self._thread.join()
        if self._producer is not None:
            self._producer.flush(_FLUSH_S)
            self._producer = None  # else it complains of a broker that the trial's end has stopped

    def _run(self) -> None:
        while not self._ending.wait(_EVERY_S):
            self._produce(self._each_time)
            self._producer.poll(0)

    def _produce(self, records: int) -> int:
        """Append records; returns how many were accepted."""
        for done in range(records):
            number = next(self._numbers)
            # Not in batches to one partition, as librdkafka does by itself: every partition has a steady flow.
            try:
                self._producer.produce(self._topic, b"%d" % number, key=b"%d" % number, on_delivery=self._delivered)
            except KafkaException as error:
                # A broker that has just been started again does not know its topics at first.
                if error.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                    raise
                return done
        return records

    def _delivered(self, error: Any, message: Message) -> None:
        if error is None:
            number = int(message.value() or b"")
            place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
            self._ledger.append(Produced(number, *place, time.monotonic()))
            self.acknowledged.add(number)
