"""When to kill a consumer: in the middle of its work, so that records are in flight. No I/O here."""

from __future__ import annotations

from demo.timeline import Sample


class MidWork:
    """Decides, sample by sample, whether a member is in the middle of its work.

    It is if, since it claimed its current partitions, it has committed some records, if there are more to consume, and
    if it has written records after its last commit: the next owner will deliver these again.

    Args:
        consumer_id: id of the member.
        records: minimum number of records that it must have committed.
    """

    def __init__(self, consumer_id: str, records: int) -> None:
        self._consumer_id = consumer_id
        self._records = records
        self._owned: list[int] = []
        self._began_at = 0
        self._committed = 0
        self._written = 0

    def __call__(self, sample: Sample, written: int) -> bool:
        """Evaluate the newest sample; ``written`` is the size of the member's output in bytes."""
        owned = sample.owned_by(self._consumer_id)
        committed = sample.committed_of(owned)
        if owned != self._owned:
            self._owned, self._began_at, self._committed, self._written = owned, committed, committed, written
        if committed != self._committed:
            self._committed, self._written = committed, written
        has_more = sum(sample.ends[partition] for partition in owned) > committed
        return has_more and committed - self._began_at >= self._records and written > self._written
