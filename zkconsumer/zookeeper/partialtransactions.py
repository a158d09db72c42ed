"""Fenced transactions of which what cannot be done is skipped, and the outcome of each operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from zkconsumer.errors import ShareChanged, ZooKeeperRefused
from zkconsumer.zookeeper.fencedtransaction import (
    Answer,
    Conflict,
    Operation,
    Outcome,
    in_transactions,
    send_fenced,
    sent_together,
)

_MOST_REFUSED: Final = 10
"""Most refused operations that are removed one by one, a round trip each; if there are more, probably all are."""

MISSED: Final[Mapping[str, Outcome]] = {
    "create-ephemeral": "exists",
    "create": "exists",
    "set": "missing",
    "delete": "missing",
}
"""Outcome of an operation whose node exists although it must not, or does not although it must."""


class Outcomes(dict[str, Outcome]):
    """Outcome by path.

    Attributes:
        versions: by path, the version that a node has after it was created or set.
        mzxids: by path, the ensemble's transaction that wrote a node which was set; the answer to a creation lacks it.
        refused: by path, why the servers do not allow an operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}
        self.mzxids: dict[str, int] = {}
        self.refused: dict[str, ZooKeeperRefused] = {}

    def note_done(self, operations: Sequence[Operation], results: Sequence[Any]) -> None:
        """Record that all operations were done; ``results`` are kazoo's, one for each."""
        for operation, result in zip(operations, results, strict=True):
            self[operation.path] = "done"
            if operation.kind == "set":
                self.versions[operation.path] = result.version
                self.mzxids[operation.path] = result.mzxid
            elif operation.kind != "delete":
                self.versions[operation.path] = 0

    def add(self, further: Outcomes) -> None:
        """Add the outcomes of further operations, or of a repetition of the same operations."""
        self.update(further)
        self.versions.update(further.versions)
        self.mzxids.update(further.mzxids)
        self.refused.update(further.refused)

    def note_refused(self, operation: Operation, reason: ZooKeeperRefused) -> None:
        """Record that the servers do not allow an operation."""
        self[operation.path] = "refused"
        self.refused[operation.path] = reason


@dataclass(frozen=True, slots=True)
class PartialTransactions:
    """Does operations in transactions that each check a fence first; operations that cannot be done are skipped.

    Args:
        client: kazoo's client.
        acl: ACL of created nodes.
        timeout: how long to wait for each answer, in seconds.
        read: returns nodes by path, None for each that does not exist.
        condition: a check of a node that each transaction makes as well; None for none.
    """

    client: Any
    acl: Sequence[Any]
    timeout: float
    read: Callable[[Iterable[str]], Mapping[str, object | None]]
    condition: Operation | None = None

    def run(self, fence: str, operations: Sequence[Operation], insist: bool, together: int = 1) -> Outcomes:
        """See :meth:`ZkSession.try_transact <zkconsumer.zookeeper.session.ZkSession.try_transact>`."""
        outcomes, parts, send = Outcomes(), in_transactions(operations, together), partial(self._send, fence)
        # The rest of one that cannot be done is sent behind the others, which need nothing of it.
        for part, answer in sent_together(send, parts) if insist else sent_together(send, parts, most=1):
            if not self._finish(fence, part, answer, outcomes, insist) and not insist:
                break
        return outcomes

    def _send(self, fence: str, operations: Sequence[Operation]) -> Answer:
        checks = [] if self.condition is None else [self.condition]
        return send_fenced(self.client, fence, [*checks, *operations], self.acl)

    def _finish(
        self,
        fence: str,
        group: Sequence[Operation],
        answer: Answer,
        outcomes: Outcomes,
        insist: bool,
    ) -> bool:
        """Wait for the answer, and send what is left to do; True if all operations of the group were done."""
        checks = 0 if self.condition is None else 1
        remaining = list(group)
        while isinstance(result := answer(self.timeout), Conflict):
            if result.index < checks:
                raise self._failed_check(result)
            self._take_out(remaining, result, outcomes, insist)
            remaining = [operation for operation in remaining if operation.path not in outcomes]
            if not (insist and remaining):
                return False
            answer = self._send(fence, remaining)
        outcomes.note_done(remaining, result[checks:])
        return len(remaining) == len(group)

    def _failed_check(self, conflict: Conflict) -> Exception:
        if conflict.refusal is not None:
            return conflict.refusal
        check = conflict.operation
        return ShareChanged(
            f"version {check.version} of {check.path} does not hold any more: the share to be claimed has changed"
        )

    def _take_out(self, operations: Sequence[Operation], conflict: Conflict, outcomes: Outcomes, insist: bool) -> None:
        """Record the operations that stopped a transaction: at least one of them cannot be done."""
        stopped, refusal = conflict.operation, conflict.refusal
        if conflict.outcome == "not empty":
            refusal = ZooKeeperRefused(f"ZooKeeper refused {stopped}: {conflict.reason}")
        if refusal is None:
            # The server reports only the first impossible operation: find all of them at once.
            impossible = self._impossible(operations) if insist else {}
            outcomes.update(impossible or {stopped.path: conflict.outcome})
        elif len(outcomes.refused) < _MOST_REFUSED:
            outcomes.note_refused(stopped, refusal)
        else:
            raise refusal

    def _impossible(self, operations: Sequence[Operation]) -> dict[str, Outcome]:
        creations = [operation for operation in operations if operation.kind.startswith("create")]
        parents = {operation.path: operation.path.rpartition("/")[0] or "/" for operation in creations}
        nodes = self.read([*(operation.path for operation in operations), *parents.values()])
        impossible = {
            operation.path: MISSED[operation.kind]
            for operation in operations
            if (nodes[operation.path] is not None) == operation.kind.startswith("create")
        }
        orphans: dict[str, Outcome] = {path: "missing" for path, parent in parents.items() if nodes[parent] is None}
        return impossible | orphans
