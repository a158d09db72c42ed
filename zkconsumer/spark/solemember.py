"""SoleMember: the rule of ``group.share=false``, by which a query is the only member of its group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import UsageError

_log = logging.getLogger(__name__)

_PATIENCE = 1.5
"""How many session timeouts a query waits for members that were killed; servers count a session in ticks."""

_POLL_S = 0.5


class SoleMember:
    """Refuses a group with other members, at the start of a query and later.

    Used by Spark's thread.

    Args:
        config: the consumer's properties.
        read_members: reads the ids of the group's live members.
    """

    def __init__(self, config: ConsumerConfig, read_members: Callable[[], Collection[str]]) -> None:
        self._group = config.group_id
        session_ms = config.session_timeout_ms if config.brokers_coordinate else config.zookeeper_session_timeout_ms
        self._patience_s = _PATIENCE * session_ms / 1000
        self._read_members = read_members
        self._checked: int | None = None

    def await_empty_group(self) -> None:
        """Return when the group has no member; a member that was killed stays in it for its session timeout.

        Raises:
            UsageError: the group has a live member.
            ZkConsumerError: the group cannot be read.
        """
        deadline = time.monotonic() + self._patience_s
        waited_for: Collection[str] = ()
        while members := self._read_members():
            if time.monotonic() > deadline:
                raise UsageError(
                    f"group {self._group} has live members: {', '.join(sorted(members))}; with group.share=false a "
                    "query does not join them. Stop them, set another group.id, or omit group.share"
                )
            if members != waited_for:
                waited_for = members
                _log.info("group %s: waiting for the end of its members: %s", self._group, ", ".join(sorted(members)))
            time.sleep(_POLL_S)

    def require_everything(self, assignment: FetchAssignment, consumer_id: str) -> None:
        """Check that no other member owns a part of what the query subscribes to.

        Args:
            assignment: what the query owns.
            consumer_id: id of its own member.

        Raises:
            UsageError: another member has joined the group, and was given partitions.
            ZkConsumerError: the group cannot be read.
        """
        if assignment.generation == self._checked:
            return
        if len(assignment.threads) < sum(len(topic.partitions) for topic in assignment.topics.values()):
            members = self._read_members()
            if len(members) > 1:  # otherwise partitions are missing for another reason
                # Coordinators of brokers choose the ids.
                among = "" if consumer_id in members else " (this query is one of these)"
                raise UsageError(
                    f"group {self._group} has other members now, which own a part of its partitions: "
                    f"{', '.join(sorted(set(members) - {consumer_id}))}{among}; with group.share=false this query "
                    "ends. Stop them and start it again, set another group.id, or omit group.share"
                )
        self._checked = assignment.generation
