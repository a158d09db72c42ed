"""An application whose threads declare records done out of order, and some of them much later: ``commit.on=done``."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from zkconsumer.testing.ledger import Done
from zkconsumer.testing.ledgerfile import LedgerFile

THREADS: Final = 8
"""That work on the records of one member."""
MOST_UNFINISHED: Final = 100
"""``max.unfinished.records``: so few that partitions are paused."""

_HELD: Final = 1 / 60
"""Part of the records whose thread waits for something else."""
_HELD_S: Final = (0.3, 3.0)


class OutOfOrderWork:
    """Threads to which a stream's thread gives its records.

    Args:
        ledger: gets a fact for each record, before the record is declared done.
        consumer_id: of the member.
        record_s: how long the work on most records takes, on average, in seconds.
    """

    def __init__(self, ledger: LedgerFile, consumer_id: str, record_s: float) -> None:
        self._ledger = ledger
        self._consumer_id = consumer_id
        self._record_s = record_s
        self._chance = random.Random()
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="work")

    def begin(self, stream: Any, message: Any) -> None:
        """Work on a record, on another thread."""
        held = self._chance.random() < _HELD
        seconds = self._chance.uniform(*_HELD_S) if held else self._chance.uniform(0.0, 2 * self._record_s)
        self._pool.submit(self._work, stream, message, seconds)

    def _work(self, stream: Any, message: Any, seconds: float) -> None:
        self._ending.wait(seconds)
        try:
            self._finish(stream, message)
        except Exception:  # the pool would keep it in a future where no one looks
            logging.getLogger(__name__).exception("not done: %s", message)
            os.kill(os.getpid(), signal.SIGKILL)

    def _finish(self, stream: Any, message: Any) -> None:
        place = (int(message.value), message.topic, message.partition, message.offset)
        self._ledger.append(Done(*place, self._consumer_id, time.monotonic()))
        stream.done(message)

    def finish(self) -> None:
        """Finish all records now, since no further ones will come."""
        self._ending.set()
        self._pool.shutdown()
