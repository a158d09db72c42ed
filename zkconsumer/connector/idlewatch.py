"""IdleWatch: a member whose stream is not read any more leaves its group (``max.stream.idle.ms``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from zkconsumer.core.idlestreams import Seen, is_idle, judge
from zkconsumer.errors import StreamIdle
from zkconsumer.fetch.chunkqueue import ChunkQueue

_log = logging.getLogger(__name__)


class IdleWatch:
    """Checks the queues of one connector. Used by the rebalance thread only.

    Args:
        group: consumer group.
        consumer_id: id of the member.
        limit_ms: ``max.stream.idle.ms``.
        queues: queues by the name of their stream.
        give_up: called once, when a stream is idle, with the error to raise from the streams.
    """

    def __init__(
        self,
        group: str,
        consumer_id: str,
        limit_ms: int,
        queues: Mapping[str, ChunkQueue],
        give_up: Callable[[StreamIdle], None],
    ) -> None:
        self._group = group
        self._consumer_id = consumer_id
        self._limit_ms = limit_ms
        self._queues = queues
        self._give_up = give_up
        self._seen: dict[str, Seen] = {}

    def look(self) -> None:
        """Check every stream once; the first idle one makes the member leave."""
        now = time.monotonic()
        for name, queue in self._queues.items():
            seen = self._seen[name] = judge(self._seen.get(name), queue.reading(), now)
            if is_idle(seen, now, self._limit_ms):
                error = self._error(name, seen, now)
                _log.warning("%s", error)
                self._give_up(error)
                return

    def _error(self, name: str, seen: Seen, now: float) -> StreamIdle:
        assert seen.idle_since is not None
        return StreamIdle(
            f"group {self._group} consumer {self._consumer_id}: stream {name} has not been read for "
            f"{now - seen.idle_since:.1f} s although data of {', '.join(map(str, sorted(seen.reading.unread)))} is "
            f"available; max.stream.idle.ms is {self._limit_ms}, so the consumer leaves the group. Check what blocks "
            "the thread that reads this stream, or raise max.stream.idle.ms; then create a new connector"
        )
