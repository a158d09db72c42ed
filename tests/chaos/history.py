"""GroupHistory: makes records of a ledger from what ZooKeeper's transaction log has about one group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.chaos.txnlog import Change, Transaction, parse
from zkconsumer.model import ConsumerThreadId
from zkconsumer.testing.ledger import Claimed, Committed, Record, Registered, Released, SessionEnded
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths


def read_transactions(data: Sequence[Path], after: int = 0) -> list[Transaction]:
    """The transactions after a zxid in the data directories of ZooKeeper's servers, which may be running.

    Those that most of the servers have: a leader that is killed may have logged one that no other server has got.
    """
    logs = [log for directory in data for log in directory.glob("version-2/log.*")]
    found = [transaction for log in logs for transaction in parse(log.read_bytes(), after)]
    servers = Counter(transaction.zxid for transaction in found)
    transactions = {one.zxid: one for one in found if servers[one.zxid] > len(data) // 2}
    return [transactions[zxid] for zxid in sorted(transactions)]


class GroupHistory:
    """Follows the znodes of one group through the transactions.

    Args:
        group: name of the group, below no chroot.
        clock_difference: monotonic time minus the server's time in seconds since the epoch.
    """

    def __init__(self, group: str, clock_difference: float) -> None:
        self._paths = GroupPaths(group)
        self._clock_difference = clock_difference
        self._ephemerals: defaultdict[int, set[str]] = defaultdict(set)
        self._claims: dict[str, Claimed] = {}
        self._member: dict[int, str] = {}
        self._czxids: dict[str, int] = {}

    def records(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """The records of the group, as they followed each other.

        A session is a member's also before it has registered in it: what it wrote then it wrote too early.
        """
        transactions = list(transactions)
        for transaction in transactions:
            for change in transaction.changes:
                if (name := self._registered(change)) is not None:
                    self._member[transaction.session] = name
        for transaction in transactions:
            at = transaction.time_ms / 1000 + self._clock_difference
            for change in transaction.changes:
                yield from self._record(transaction, change, at)

    def _record(self, transaction: Transaction, change: Change, at: float) -> Iterator[Record]:
        if change.kind == "close":
            yield from self._session_closed(transaction, at)
        elif not change.path.startswith(f"{self._paths.root}/"):
            return
        elif change.kind == "delete":
            yield from self._deleted(transaction, change.path, at, expired=False)
        elif change.path.startswith(f"{self._paths.offsets}/"):
            yield from self._offset(transaction, change, at)
        elif change.kind == "create":
            yield from self._created(transaction, change, at)

    def _session_closed(self, transaction: Transaction, at: float) -> Iterator[Record]:
        for path in sorted(self._ephemerals.pop(transaction.session, ())):
            yield from self._deleted(transaction, path, at, expired=True)
        member = self._member.get(transaction.session)
        if member is not None:
            yield SessionEnded(member, transaction.session, at)

    def _deleted(self, transaction: Transaction, path: str, at: float, *, expired: bool) -> Iterator[Record]:
        claim = self._claims.pop(path, None)
        if claim is not None:
            self._ephemerals[claim.session].discard(path)
            yield Released(
                claim.topic, claim.partition, claim.owner, claim.session, transaction.zxid, at, expired=expired
            )

    def _created(self, transaction: Transaction, change: Change, at: float) -> Iterator[Record]:
        if change.ephemeral:
            self._ephemerals[transaction.session].add(change.path)
        parent, _, name = change.path.rpartition("/")
        if self._registered(change) is not None:
            yield Registered(name, transaction.session, at)
        elif change.ephemeral and parent.startswith(f"{self._paths.owners}/"):
            owner = ConsumerThreadId.parse(change.data.decode()).consumer_id
            topic = parent.rpartition("/")[2]
            claim = Claimed(topic, int(name), owner, transaction.session, transaction.zxid, at)
            self._claims[change.path] = claim
            yield claim

    def _registered(self, change: Change) -> str | None:
        """The member that a change registers, if it does; nudges come and go in one transaction."""
        parent, _, name = change.path.rpartition("/")
        is_registration = change.kind == "create" and parent == self._paths.ids and not name.endswith("-nudge")
        return name if is_registration else None

    def _offset(self, transaction: Transaction, change: Change, at: float) -> Iterator[Record]:
        below = change.path.removeprefix(f"{self._paths.offsets}/").split("/")
        if len(below) != 2:  # the topic's node
            return
        if change.kind == "create":
            self._czxids[change.path] = transaction.zxid
        yield Committed(
            topic=below[0],
            partition=int(below[1]),
            offset=int(change.data),
            store="zookeeper",
            writer=self._member.get(transaction.session, ""),
            session=transaction.session,
            version=change.version,
            mzxid=transaction.zxid,
            czxid=self._czxids.get(change.path, 0),
            at=at,
        )
