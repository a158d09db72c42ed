"""Creation of a member's ephemeral znodes, all or none, in few requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zkconsumer.zookeeper.fencedtransaction import Conflict, Operation, Outcome, send
from zkconsumer.zookeeper.zookeepersecurity import open_acl


class Created(NamedTuple):
    """Ephemeral nodes that were created.

    Attributes:
        children: number of children of the node that was to be counted, right after that; None if unknown.
    """

    children: int | None = None


class Ephemerals:
    """Creates nodes that live as long as a session, with the open ACL.

    Args:
        client: kazoo's client.
        timeout: how long to wait for each answer, in seconds.
        ensure_path: creates a persistent node that is open to all, unless it exists.
    """

    def __init__(self, client: Any, timeout: float, ensure_path: Callable[[str], None]) -> None:
        self._client = client
        self._timeout = timeout
        self._ensure_path = ensure_path

    def create(
        self, nodes: Sequence[tuple[str, bytes]], parents: Sequence[str] = (), counted: str = "", absent: str = ""
    ) -> Created | None:
        """Create nodes, all or none; None if one of them exists, or the one that must not.

        Args:
            nodes: path and data of each.
            parents: persistent nodes that are created if one of them is missing, each after its own parent.
            counted: a node, one of the parents, whose children are to be counted. Its data, which is empty, is written
                for that: the answer to a write has the number, so it costs no request.
            absent: a node with which nothing is created. ZooKeeper has no check for that, so the transaction creates
                and deletes it.
        """
        operations = [Operation("create", absent), Operation("delete", absent)] if absent else []
        operations += [Operation("create-ephemeral", path, data) for path, data in nodes]
        if counted:
            operations.append(Operation("set", counted))
        outcome, results = self._try(operations)
        if outcome == "refused" and counted:  # an operator may allow members less than to write the parent
            outcome, results = self._try(operations[:-1])
        if outcome == "missing" and parents:
            # At once and without a look: members that join a new group together all find its nodes missing, and all
            # but one find that another one has created them.
            outcome, results = self._try([*(Operation("create", path) for path in parents), *operations])
            if outcome == "exists":
                outcome, results = self._try(operations)
        if outcome == "missing" and parents:
            for path in parents:
                self._ensure_path(path)
            outcome, results = self._try(operations)
        if outcome == "refused":
            raise results[0]
        if outcome != "done":
            return None
        return Created(getattr(results[-1], "numChildren", None))

    def _try(self, operations: Sequence[Operation]) -> tuple[Outcome, Sequence[Any]]:
        """Do all of the operations or none; the outcome of the first that cannot be done, and the results or reason."""
        answer = send(self._client, operations, open_acl())(self._timeout)
        return (answer.outcome, [answer.refusal]) if isinstance(answer, Conflict) else ("done", answer)
