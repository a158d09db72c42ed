"""GroupSharing: the rule of ``group.share=false``, by which a query is the only member of its group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import CoordinatorMoved, UsageError
from zkconsumer.group.rules.rebalancetimes import killed_member_seconds
from zkconsumer.spark.clusterview import ClusterView
from zkconsumer.spark.rules.querystate import QueryState

_log = logging.getLogger(__name__)

_POLL_S = 0.5


class GroupSharing:
    """Refuses a group that a query must not share, at its start and later. Used by Spark's thread."""

    def __init__(self, config: ConsumerConfig, read_cluster: Callable[[], ClusterView]) -> None:
        self._group, self._shares = config.group_id, config.group_share
        self._session_ms = config.membership_timeout_ms
        self._read_cluster = read_cluster
        self._checked: int | None = None

    def await_admission(self) -> ClusterView:
        """The state of the group, as soon as the query may join it.

        A member that was killed stays in the group for its session timeout, so it is waited for: for the longest of
        this query's, what the servers grant now, and what the member has written. Brokers report none of the last two,
        except what they grant, for ``group.protocol=consumer``.

        Raises:
            UsageError: the query does not share the group, but the group has live members; or one of the live members
                does not share it.
            ZkConsumerError: the group cannot be read.
        """
        began = time.monotonic()
        waited_for: frozenset[str] = frozenset()
        while True:
            view = self._read_cluster()
            barring = view.unshared if self._shares else view.others
            if not barring:
                return view
            named = ", ".join(sorted(barring))
            session_ms = (self._session_ms, *(view.session_ms.get(member, 0) for member in barring))
            if time.monotonic() > began + killed_member_seconds(session_ms):
                whose = "do not share it" if self._shares else "are live, and this query does not share it"
                raise UsageError(
                    f"group {self._group} cannot be joined: its members {named} {whose} (group.share=false). Stop "
                    "them, or set another group.id"
                )
            if barring != waited_for:
                waited_for = barring
                _log.info("group %s: waiting for the end of %s, because of group.share=false", self._group, named)
            time.sleep(_POLL_S)

    def require_everything(self, query: QueryState, consumer_id: str) -> None:
        """With ``group.share=false``, check that no other member owns a part of what the query subscribes to.

        Raises:
            UsageError: another member has joined the group, and was given partitions.
            RetriableError: the group's coordinator does not answer.
            ZkConsumerError: the group cannot be read.
        """
        if self._shares or query.generation == self._checked:
            return
        if len(query.owned) < len(query.subscribed):
            view = self._read_cluster()
            if not view.members:
                raise CoordinatorMoved(
                    f"the members of group {self._group} are unknown, though this query is one: its coordinator does "
                    "not answer, or has removed the query"
                )
            if len(view.members) > 1:  # otherwise partitions are missing for another reason
                others = view.others - {consumer_id}
                # Coordinators of brokers choose the ids.
                among = "" if others != view.members else " (this query is one of these)"
                raise UsageError(
                    f"group {self._group} has other members now, which own a part of its partitions: "
                    f"{', '.join(sorted(others))}{among}; with group.share=false this query ends. "
                    "Stop them and start it again, set another group.id, or omit group.share"
                )
        self._checked = query.generation
