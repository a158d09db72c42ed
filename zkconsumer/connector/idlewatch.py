"""IdleWatch: a member whose stream is not read any more leaves its group (``max.stream.idle.ms``), or warns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from zkconsumer.errors import StreamIdle, name_some
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.rules.idlestreams import Seen, is_idle, judge

_log = logging.getLogger(__name__)


class IdleWatch:
    """Checks the queues of one connector. Used by the rebalance thread only.

    Args:
        group: consumer group.
        consumer_id: id of the member.
        limit_ms: how long a stream may be idle, in ms.
        queues: queues by the name of their stream.
        give_up: called once, when a stream is idle, with the error to raise from the streams; None only logs the
            stream, and again each time the idle time has doubled.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        group: str,
        consumer_id: str,
        limit_ms: int,
        queues: Mapping[str, ChunkQueue],
        give_up: Callable[[StreamIdle], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._consumer_id = consumer_id
        self._limit_ms = limit_ms
        self._queues = queues
        self._give_up = give_up
        self._clock = clock
        self._seen: dict[str, Seen] = {}
        self._warn_after_ms: dict[str, float] = {}

    def look(self) -> None:
        """Check every stream once; the first idle one makes the member leave."""
        now = self._clock()
        for name, queue in self._queues.items():
            seen = self._seen[name] = judge(self._seen.get(name), queue.reading(), now)
            if seen.idle_since is None or not is_idle(seen, now, self._limit_ms):
                self._warn_after_ms.pop(name, None)
                continue
            idle_s = now - seen.idle_since
            if self._give_up is None:
                self._warn(name, seen, idle_s)
                continue
            error = StreamIdle(
                f"{self._describe(name, seen, idle_s)}; max.stream.idle.ms is {self._limit_ms}, so the consumer leaves "
                "the group. Check what blocks the thread that reads this stream, or raise max.stream.idle.ms; then "
                "create a new connector"
            )
            _log.warning("%s", error)
            self._give_up(error)
            return

    def _warn(self, name: str, seen: Seen, idle_s: float) -> None:
        if idle_s * 1000 < self._warn_after_ms.get(name, self._limit_ms):
            return
        self._warn_after_ms[name] = 2000 * idle_s
        _log.warning(
            "%s; the consumer keeps its partitions. Check what blocks the thread that reads this stream; with "
            "max.stream.idle.ms the consumer leaves its group after such a time",
            self._describe(name, seen, idle_s),
        )

    def _describe(self, name: str, seen: Seen, idle_s: float) -> str:
        return (
            f"group {self._group} consumer {self._consumer_id}: stream {name} has not been read for {idle_s:.1f} s "
            f"although data of {name_some(list(map(str, sorted(seen.reading.unread))))} is available"
        )
