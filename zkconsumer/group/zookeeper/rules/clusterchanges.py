"""ClusterChanges: whether a member may be the only one of its group that knows of a change of topics or partitions.

With ZooKeeper every member gets a watch event for such a change. Where brokers are asked at an interval
(``cluster/polledcluster.py``), the member that notices a change first has to announce it to the others.
"""

from __future__ import annotations

from zkconsumer.group.rules.groupview import GroupView


class ClusterChanges:
    """Compares each reading of the group with the one before; used by one thread.

    A change is announced by an event of the group between the two readings: a member joined, left, or nudged the group.
    All members get that event, read the group because of it, and then know the cluster as it is now.

    Args:
        inherits: the first reading counts as a change, too: a former leader may have noticed one, and ended before it
            announced it.
    """

    def __init__(self, *, inherits: bool = False) -> None:
        self._inherits = inherits
        self._before: GroupView | None = None
        self._events = 0
        self._unannounced = False

    @property
    def unannounced(self) -> bool:
        """True from a reading with a change that no event announced, until :meth:`announced` or an event."""
        return self._unannounced

    def read(self, view: GroupView, events: int) -> None:
        """The group was read.

        Args:
            view: what was read.
            events: number of events of the group so far, counted before the reading.
        """
        if events != self._events:
            self._unannounced = False
        elif view.brokers and self._has_changed(view):
            self._unannounced = True
        if view.brokers:  # otherwise nothing is known of the cluster yet
            self._before = view
        self._events = events

    def _has_changed(self, view: GroupView) -> bool:
        return self._inherits if self._before is None else _topics_differ(self._before, view)

    def announced(self) -> None:
        """This member has announced the change."""
        self._unannounced = False


def _topics_differ(before: GroupView, after: GroupView) -> bool:
    """True if a subscribed topic was created, deleted, created again, or has more partitions."""
    return before.partitions != after.partitions or bool(after.recreated_since(before, before.partitions))
