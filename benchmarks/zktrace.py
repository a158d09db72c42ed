"""ZooKeeperTrace: samples a ZooKeeper server while a group settles: received packets, and the last write."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from types import TracebackType
from typing import Final, NamedTuple, Self

from zkconsumer.errors import SandboxError

_EVERY_S: Final = 0.02
_RECEIVED: Final = re.compile(r"^Received: (\d+)$", re.MULTILINE)
_ZXID: Final = re.compile(r"^Zxid: 0x([0-9a-f]+)$", re.MULTILINE)


class Sample(NamedTuple):
    """The state of the server at one time.

    Attributes:
        at: ``time.monotonic()`` right before the request.
        packets: number of requests that it has received from clients, including pings.
        zxid: number of its last write.
    """

    at: float
    packets: int
    zxid: int


class Settling(NamedTuple):
    """The settling of a group: seconds until the last write, and packets until ``TAIL_S`` after it."""

    seconds: float
    packets: int


TAIL_S: Final = 1.0
"""Packets are counted this long after the last write, to include reads that led to no write."""


def settling(samples: Sequence[Sample], since: float) -> Settling:
    """The settling of a group that was disturbed at ``since``; the samples must continue for ``TAIL_S`` after it."""
    before = next(sample for sample in reversed(samples) if sample.at <= since)
    last_write = since
    for earlier, later in pairwise(samples):
        if later.zxid != earlier.zxid and later.at > since:
            last_write = later.at
    after = next(sample for sample in samples if sample.at >= last_write + TAIL_S)
    return Settling(last_write - since, after.packets - before.packets)


class ZooKeeperTrace:
    """Samples the server on its own thread during a ``with`` block.

    Args:
        ask: returns the server's answer to a four-letter word.
    """

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask
        self._changed = threading.Condition()
        self._samples: list[Sample] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="zookeeper-trace", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: bool(self._samples))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()

    def wait_until_quiet(self, seconds: float, timeout: float) -> list[Sample]:
        """Wait until nothing was written for ``seconds``; returns all samples so far.

        Raises:
            SandboxError: there was no such period within ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._quiet_for() >= seconds, timeout):
                raise SandboxError(
                    f"ZooKeeper was written to continuously for {timeout:g} s; the group does not settle"
                )
            return list(self._samples)

    def _quiet_for(self) -> float:
        """The seconds for which certainly nothing was written.

        A sample's ``at`` is before the request: the write reported by the first sample with the newest number may have
        happened after its ``at``, but not after that of the second one.
        """
        newest = self._samples[-1]
        same = list(takewhile(lambda sample: sample.zxid == newest.zxid, reversed(self._samples)))
        return newest.at - same[-2].at if len(same) > 1 else 0.0

    def _run(self) -> None:
        asked = 0
        while True:
            at = time.monotonic()
            answer = self._ask("srvr")
            received, zxid = _RECEIVED.search(answer), _ZXID.search(answer)
            with self._changed:
                if received and zxid:
                    asked += 1  # the server counts this request, too
                    self._samples.append(Sample(at, int(received[1]) - asked, int(zxid[1], 16)))
                    self._changed.notify_all()
                if self._changed.wait_for(lambda: self._ending, _EVERY_S):
                    return
