"""The JSON documents of the API, from a snapshot. Names are those of ``--json`` of the group commands."""

from __future__ import annotations

import dataclasses
from typing import Any

from zkconsumer.core.lagstatus import GroupLag
from zkconsumer.tools.groupdocuments import lag_document, member_documents
from zkconsumer.tools.grouplist import group_listing
from zkconsumer.web.snapshot import GroupSnapshot, Snapshot


def groups_document(snapshot: Snapshot, now: float) -> dict[str, Any]:
    """``/api/groups``: a line for each group, as ``groups list --long`` has it, and the group's rates.

    Args:
        snapshot: the newest.
        now: see :meth:`Snapshot.is_stale`.
    """
    return {
        **_sampled(snapshot, now),
        "problems": list(snapshot.problems),
        "groups": [_line(one) for one in snapshot.groups.values()],
    }


def group_document(snapshot: Snapshot, group: GroupSnapshot, now: float) -> dict[str, Any]:
    """``/api/groups/<group>``: what ``groups status`` and the members of ``groups describe`` have."""
    return {
        **_sampled(snapshot, now),
        **lag_document(group.znodes.group, group.lag),
        "members": member_documents(group.members),
        "problems": list(group.znodes.problems),
    }


def history_document(snapshot: Snapshot, group: GroupSnapshot, now: float) -> dict[str, Any]:
    """``/api/groups/<group>/history``: the lag of each of today's partitions at each sample, and rebalances."""
    partitions = group.history[-1].partitions
    columns: dict[Any, list[int | None]] = {one: [] for one in partitions}
    for row in group.history:
        if row.partitions == partitions:
            indices = dict(zip(partitions, range(len(partitions)), strict=True))
        else:
            indices = {one: index for index, one in enumerate(row.partitions)}
        for partition, column in columns.items():
            index = indices.get(partition)
            column.append(None if index is None else row.lag(index))
    return {
        **_sampled(snapshot, now),
        "group": group.znodes.group,
        "at_ms": [row.at_ms for row in group.history],
        "partitions": [{"topic": p.topic, "partition": p.partition, "lag": lags} for p, lags in columns.items()],
        "rebalances": [one._asdict() for one in group.rebalances],
    }


def _sampled(snapshot: Snapshot, now: float) -> dict[str, Any]:
    return {"sampled_ms": snapshot.at_ms, "interval_s": snapshot.interval, "stale": snapshot.is_stale(now)}


def _line(group: GroupSnapshot) -> dict[str, Any]:
    listing = group_listing(group.znodes, group.lag)
    return {
        **dataclasses.asdict(listing),
        "status": listing.status.value,
        "complete": group.lag.complete,
        "partitions": len(group.znodes.partitions),
        "owned": sum(map(group.znodes.is_live, group.znodes.partitions)),
        "consumed_per_s": _sum(group.lag, "consumed_per_s"),
        "produced_per_s": _sum(group.lag, "produced_per_s"),
        "rebalances": len(group.rebalances),
    }


def _sum(lag: GroupLag, rate: str) -> float | None:
    """The sum of a rate of the partitions where it is known; None if it is unknown for all."""
    known = [value for one in lag.partitions.values() if (value := getattr(one, rate)) is not None]
    return sum(known) if known else None
