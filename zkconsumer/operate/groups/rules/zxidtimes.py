"""When a change was made of which ZooKeeper keeps the transaction and not the time.

A znode has the time of the last write of its data. Of the last creation or deletion of a child it has the transaction
only (``pzxid``): that is all that remains of ephemeral nodes, such as registrations. Transactions of an ensemble are
numbered in the order of time, so writes with a known time date the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Moment(NamedTuple):
    """A moment in the order of transactions.

    Attributes:
        before: the last transaction that is known to have been made before it; None if none is.
        after: the first transaction that is known to have been made at that time or later; None if none is.
    """

    before: int | None
    after: int | None

    def is_after(self, zxid: int) -> bool | None:
        """Whether a transaction was made before the moment; None if that is unknown.

        >>> moment = moment_of(1500, [(10, 1000), (20, 2000)])
        >>> moment.is_after(10), moment.is_after(20), moment.is_after(15)
        (True, False, None)
        """
        if self.after is not None and zxid >= self.after:
            return False
        return True if self.before is not None and zxid <= self.before else None


def moment_of(at_ms: int, writes: Iterable[tuple[int, int]]) -> Moment:
    """Where a time, in ms since the epoch, is among transactions; ``writes`` are some of these and their times."""
    before = after = None
    for zxid, written_ms in writes:
        if written_ms < at_ms:
            before = zxid if before is None else max(before, zxid)
        else:
            after = zxid if after is None else min(after, zxid)
    return Moment(before, after)
