"""The documents of Burrow's HTTP API, version 3, for what reads them (telegraf's plugin, dashboards, checks).

The evaluation is ours (:mod:`zkconsumer.operate.groups.rules.lagstatus`), since Burrow's rules do not fit groups that
do not write an unchanged offset again. Burrow has no status RANGE, which becomes ERR. It has no unknown lag, either:
partitions whose lag is unknown are absent, and lower ``complete``. A group that cannot be judged since a part of its
lag cannot be read keeps its status. Burrow judges commits alone: what has none, and a topic that does not exist, make
no group worse. Timestamps are those of samples, in ms.
"""

from __future__ import annotations

from typing import Any, Final

from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus, worst
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.operate.serve.groupsnapshots import GroupSnapshot, GroupsSnapshot

_STATUS: Final = {
    LagStatus.OK: "OK",
    LagStatus.UNKNOWN: "OK",
    LagStatus.MIGRATED: "OK",
    LagStatus.WARN: "WARN",
    LagStatus.STALL: "STALL",
    LagStatus.STOP: "STOP",
    LagStatus.REWIND: "REWIND",
    LagStatus.RANGE: "ERR",
}


def clusters_document(cluster: str) -> dict[str, Any]:
    """``/v3/kafka``."""
    return {"error": False, "message": "cluster list returned", "clusters": [cluster]}


def consumers_document(snapshot: GroupsSnapshot) -> dict[str, Any]:
    """``/v3/kafka/<cluster>/consumer``."""
    return {"error": False, "message": "consumer list returned", "consumers": list(snapshot.groups)}


def status_document(
    snapshot: GroupsSnapshot, cluster: str, group: GroupSnapshot, *, every_partition: bool
) -> dict[str, Any]:
    """``/v3/kafka/<cluster>/consumer/<group>/status``, or with ``every_partition`` ``.../lag``.

    Args:
        snapshot: which has the group.
        cluster: name of the cluster in the path.
        group: its newest sample, and the window of samples before.
        every_partition: also those that are OK.
    """
    client_ids = {member.id: member.client_id or "" for member in group.members}
    partitions = [
        _partition(snapshot, group, partition, client_ids.get(lag.newest.owner or "", ""))
        for partition, lag in group.lag.partitions.items()
        if lag.lag is not None
    ]
    status = {
        "cluster": cluster,
        "group": group.observed.group,
        "status": _group_status(group.lag),
        "complete": group.lag.complete,
        "partitions": [partition for partition in partitions if every_partition or partition["status"] != "OK"],
        "partition_count": len(partitions),
        "maxlag": max(partitions, key=lambda partition: partition["current_lag"], default=None),
        "totallag": group.lag.lag or 0,
    }
    return {"error": False, "message": "consumer status returned", "status": status}


def not_found_document(cluster: str, group: str) -> dict[str, Any]:
    """The same for a group, or a cluster, that is not there; its HTTP status is 404."""
    status = {
        "cluster": cluster,
        "group": group,
        "status": "NOTFOUND",
        "complete": 1.0,
        "partitions": [],
        "partition_count": 0,
        "maxlag": None,
        "totallag": 0,
    }
    return {"error": False, "message": "consumer status returned", "status": status}


def error_document(message: str) -> dict[str, Any]:
    """Any other request that fails."""
    return {"error": True, "message": message}


def _group_status(lag: GroupLag) -> str:
    status = lag.was or lag.status
    if lag.is_uncommitted:
        status = worst(partition.status for partition in lag.partitions.values() if partition.lag is not None)
    is_warned = status is LagStatus.WARN or (status is LagStatus.NO_MEMBERS and lag.lag)
    return "ERR" if status.is_error else "WARN" if is_warned else "OK"


def _partition(
    snapshot: GroupsSnapshot, group: GroupSnapshot, partition: TopicPartition, client_id: str
) -> dict[str, Any]:
    lag = group.lag.partitions[partition]
    known = [sample for sample in group.samples[partition][-group.window :] if sample.lag is not None]
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "owner": lag.newest.owner or "",
        "client_id": client_id,
        "status": _STATUS[lag.status],
        "start": _offset(snapshot, known[0]),
        "end": _offset(snapshot, known[-1]),
        "current_lag": lag.lag,
        "complete": min(1.0, len(known) / group.window),
    }


def _offset(snapshot: GroupsSnapshot, sample: LagSample) -> dict[str, Any]:
    at_ms = snapshot.at_ms - round((snapshot.at - sample.at) * 1000)
    return {"offset": sample.committed, "timestamp": at_ms, "observedAt": at_ms, "lag": sample.lag}
