"""IdleWatch: a member whose stream is not read any more leaves its group (``max.stream.idle.ms``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from zkconsumer.core.idlestreams import Seen, is_idle, judge
from zkconsumer.errors import StreamIdle
from zkconsumer.fetch.queues import ChunkQueue

_log = logging.getLogger(__name__)


class IdleWatch:
    """Looks at the queues of one connector. Used by the rebalance thread only.

    Args:
        group: consumer group.
        consumer_id: of the member.
        limit_ms: ``max.stream.idle.ms``.
        queues: by the name of the stream that each belongs to.
        give_up: called once with what to raise from the streams, when one of them is idle.
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
        """Look at every stream once; the first that is idle makes the member leave."""
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
            f"group {self._group} consumer {self._consumer_id}: stream {name} left data of "
            f"{', '.join(map(str, sorted(seen.reading.unread)))} unread for {now - seen.idle_since:.1f} s, "
            f"max.stream.idle.ms is {self._limit_ms}: the consumer leaves the group, so that others read on. Look for "
            "what keeps the thread of this stream, or raise max.stream.idle.ms; then make a new connector"
        )
