"""The JSON documents of the API, from a snapshot. Names are those of ``--json`` of the group commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.groupdocuments import lag_document, member_documents
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.operate.serve.groupsnapshots import GroupSnapshot, GroupsSnapshot
from zkconsumer.operate.serve.grouptable import GroupQuery, choose_part

_PIECE: Final = 50
"""Partitions in a piece of a history."""

_ALL: Final = GroupQuery()

OLD: Final = "the last sample ended more than three intervals ago"
_POINTS: Final = 60
"""Points of a sparkline, which is about 100 pixels wide."""


def groups_document(
    snapshot: GroupsSnapshot,
    now: float,
    query: GroupQuery = _ALL,
    failure: str | None = None,
    servers: Sequence[ServerAnswer] = (),
) -> dict[str, Any]:
    """``/api/groups``: a line for each group, as ``groups list --long`` has it, its rates and its lag over time.

    Args:
        snapshot: the newest snapshot.
        now: see :meth:`GroupsSnapshot.is_stale`.
        query: which groups, in which order.
        failure: why there is no newer snapshot; None if the last sample has succeeded.
        servers: which servers the last sample has asked, also one that failed, and which answer.
    """
    lines = [group.line for group in snapshot.groups.values()]
    if snapshot.is_stale(now):
        lines = [_outdated(line, failure or OLD) for line in lines]
    part = choose_part(lines, query)
    return {
        **_sampled(snapshot, now, failure),
        "servers": server_documents(servers),
        "problems": list(snapshot.problems),
        "total": part.total,
        "counts": part.counts,
        "groups": [_with_times(line, snapshot.groups[line["group"]], snapshot, now) for line in part.lines],
    }


def _outdated(line: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
    """The line of a group in a snapshot that is stale, as :meth:`~.GroupLag.outdated` has it."""
    status, unknown = line["status"], LagStatus.UNKNOWN.value
    if status == unknown:
        return line
    return {**line, "status": unknown, "was": status, "reason": f"{reason}; it was {status}: {line['reason']}"}


def server_documents(servers: Sequence[ServerAnswer]) -> list[dict[str, Any]]:
    """A document for each server, with the fields of :class:`ServerAnswer`."""
    return [server._asdict() for server in servers]


def _with_times(line: Mapping[str, Any], group: GroupSnapshot, snapshot: GroupsSnapshot, now: float) -> dict[str, Any]:
    is_stale = line["stale"] or snapshot.is_stale(now)
    return {**line, "stale": is_stale, "sampled_ms": _sampled_ms(group, snapshot), "trend": lag_trend(group)}


def _sampled_ms(group: GroupSnapshot, snapshot: GroupsSnapshot) -> int:
    """When the sample began that has read the group, in ms since the epoch."""
    return snapshot.at_ms if group.values_ms is None else group.values_ms


def group_document(
    snapshot: GroupsSnapshot,
    group: GroupSnapshot,
    now: float,
    failure: str | None = None,
    servers: Sequence[ServerAnswer] = (),
) -> dict[str, Any]:
    """``/api/groups/<group>``: what ``groups status`` and the members of ``groups describe`` have."""
    sampled = _sampled(snapshot, now, failure or group.unread)
    lag = group.shown
    if group.values_ms is not None:
        sampled |= {"sampled_ms": group.values_ms, "stale": True}
    elif snapshot.is_stale(now):
        lag = lag.outdated_throughout(failure or OLD)
    return {
        **sampled,
        **lag_document(group.observed.group, lag),
        "members": member_documents(group.members, ((one.newest.owner, one.lag) for one in lag.partitions.values())),
        "servers": server_documents(servers),
        "problems": list(group.observed.problems),
    }


def history_pieces(
    snapshot: GroupsSnapshot, group: GroupSnapshot, now: float, most: int | None = None
) -> Iterator[str]:
    """``/api/groups/<group>/history``, as JSON: the lag of each of today's partitions at each sample, and rebalances.

    A piece takes some ms: thousands of partitions have millions of values, and the thread that makes them answers other
    requests in between.

    Args:
        snapshot: which has the group.
        group: its newest sample, and its history.
        now: see :meth:`GroupsSnapshot.is_stale`.
        most: only so many partitions, those with the largest lag now; None for all.
    """
    newest = group.history[-1]
    head = {
        **_sampled(snapshot, now),
        "group": group.observed.group,
        "at_ms": [row.at_ms for row in group.history],
        "rebalances": [rebalance._asdict() for rebalance in group.rebalances],
        "partition_count": len(newest.partitions),
    }
    yield _text(head)[:-1] + ',"partitions":['
    chosen: Sequence[int] = range(len(newest.partitions))
    if most is not None and most < len(chosen):
        chosen = sorted(sorted(chosen, key=lambda index: -newest.lags[index])[:most])
    former: dict[
        int, dict[TopicPartition, int]
    ] = {}  # where a partition was in rows with other partitions, by their id
    for row in group.history:
        if row.partitions is not newest.partitions and id(row.partitions) not in former:
            former[id(row.partitions)] = {partition: index for index, partition in enumerate(row.partitions)}
    for first in range(0, len(chosen), _PIECE):
        columns = []
        for index in chosen[first : first + _PIECE]:
            partition = newest.partitions[index]
            places = {key: indices.get(partition) for key, indices in former.items()}
            lags = [row.lag(places.get(id(row.partitions), index)) for row in group.history]
            columns.append(_text({"topic": partition.topic, "partition": partition.partition, "lag": lags}))
        yield ("," if first else "") + ",".join(columns)
    yield "]}"


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _sampled(snapshot: GroupsSnapshot, now: float, failure: str | None = None) -> dict[str, Any]:
    return {
        "sampled_ms": snapshot.at_ms,
        "interval_s": snapshot.interval,
        "took_s": snapshot.seconds,
        "stale": snapshot.is_stale(now),
        "failure": failure,
    }


def lag_trend(group: GroupSnapshot) -> list[int | None]:
    """The lag of a group over its history, in at most 60 points, oldest first; None where it was wholly unknown."""
    rows = group.history
    step = max(1, -(-len(rows) // _POINTS))
    return [row.sum() for row in rows[(len(rows) - 1) % step :: step]]
