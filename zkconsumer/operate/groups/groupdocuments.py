"""Groups as JSON documents: the same for ``--json`` of the commands and for the API of ``serve``.

Names are part of the interface: other programs read them. Null means unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from zkconsumer.offsets.rules.lag import in_sums, sum_known
from zkconsumer.operate.groups.groupcoordinators import GroupCoordinator
from zkconsumer.operate.groups.groupdescription import GroupDescription, PartitionDescription
from zkconsumer.operate.groups.observedgroup import DescribedGroupMember
from zkconsumer.operate.groups.rules.lagstatus import GroupLag
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode

if TYPE_CHECKING:
    from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription
    from zkconsumer.operate.groups.everydescription import EveryDescription

_MEMBER: Final = (
    *("id", "client", "threads", "pattern", "registered_ms", "host", "client_id", "instance_id", "topics"),
    *("partitions", "protocol"),
)
_PARTITION: Final = ("topic", "partition", "owner", "owner_live", "committed", "log_end", "lag")
_STORES: Final = ("in_zookeeper", "in_kafka")


def description_document(description: GroupDescription, *, both_stores: bool = False) -> dict[str, Any]:
    """The document of ``groups describe``; with ``both_stores`` each partition also has the offset of each store.

    Groups that have members with ``group.protocol=coordinator`` also have ``coordinator``.
    """
    document: dict[str, Any] = {
        "group": description.group,
        "members": member_documents(description.members, ((row.owner, row.lag) for row in description.partitions)),
        "partitions": _partition_documents(description.partitions, both_stores=both_stores),
    }
    if description.coordinator is not None:
        document["coordinator"] = coordinator_document(description.coordinator)
    return document


def broker_description_document(description: BrokerGroupDescription) -> dict[str, Any]:
    """The same of a group that brokers coordinate, with what its coordinator reports."""
    observed, described = description.observed, description.observed.described
    return {
        "group": observed.group,
        "protocol": described.kind,
        "state": described.state,
        "strategy": described.strategy or None,
        "coordinated_by": None if observed.coordinator is None else observed.coordinator._asdict(),
        "members": member_documents(description.members, ((row.owner, row.lag) for row in description.partitions)),
        "partitions": _partition_documents(description.partitions),
    }


def _partition_documents(rows: Iterable[PartitionDescription], *, both_stores: bool = False) -> list[dict[str, Any]]:
    names = _PARTITION + _STORES if both_stores else _PARTITION
    return [{name: getattr(row, name) for name in names} for row in rows]


def every_document(description: EveryDescription, *, both_stores: bool = False) -> dict[str, Any]:
    """The document of a group, wherever it is.

    One that has members in both has the members of both, and the partitions that count, whose lag members have.
    """
    in_znodes, at_brokers = description.in_znodes, description.at_brokers
    if at_brokers is None:
        assert in_znodes is not None
        return description_document(in_znodes, both_stores=both_stores)
    if in_znodes is None:
        return broker_description_document(at_brokers)
    rows = description.partitions.values()
    return {
        **broker_description_document(at_brokers),
        **description_document(in_znodes),
        "members": member_documents((*in_znodes.members, *at_brokers.members), ((row.owner, row.lag) for row in rows)),
        "partitions": _partition_documents(rows, both_stores=both_stores),
    }


def coordinator_document(coordinator: GroupCoordinator) -> dict[str, Any]:
    """The coordinator of a group that has one: who leads, what it waits for, and what it commands."""
    status = coordinator.status
    return {
        "leader": coordinator.leader,
        "epoch": coordinator.epoch,
        "generation": None if status is None else status.generation,
        "awaited": None if status is None else [p._asdict() for p in sorted(status.awaited)],
        "waits_for": None if status is None else dict(status.waits_for),
        "refused": None if status is None else status.refused or None,
        "commanded": {
            name: None if command is None else len(command.share) for name, command in coordinator.commands.items()
        },
    }


def member_documents(
    members: Iterable[DescribedGroupMember], lags: Iterable[tuple[str | None, int | None]]
) -> list[dict[str, Any]]:
    """Members, in the order given, with the lag of what they own.

    Args:
        members: of one group.
        lags: the owner and the lag of each of the group's partitions, negative where the offset is after the log end.
    """
    by_member: dict[str | None, list[int | None]] = {}
    for owner, lag in lags:
        for member in {owner, PartitionOwnerNode.consumer_of(owner)}:  # an owner is a member, or a thread of one
            by_member.setdefault(member, []).append(in_sums(lag))
    return [
        {**{name: getattr(member, name) for name in _MEMBER}, "lag": sum_known(by_member.get(member.id, ()))}
        for member in members
    ]


def lag_document(group: str, lag: GroupLag) -> dict[str, Any]:
    """The document of ``groups status``."""
    return {
        "group": group,
        "status": lag.status.value,
        "was": None if lag.was is None else lag.was.value,
        "problem": lag.is_problem,
        "reason": lag.reason,
        "complete": lag.complete,
        "lag": lag.lag,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "status": evaluated.status.value,
                "reason": evaluated.reason,
                "lag": evaluated.lag,
                "lag_s": evaluated.lag_s,
                "consumed_per_s": evaluated.consumed_per_s,
                "produced_per_s": evaluated.produced_per_s,
                "complete": evaluated.complete,
                "ownerless_s": evaluated.ownerless_s,
                "unmoved_s": evaluated.unmoved_s,
                "committed": evaluated.newest.committed,
                "log_start": evaluated.newest.log_start,
                "log_end": evaluated.newest.log_end,
                "owner": evaluated.newest.owner,
                "owner_live": evaluated.newest.owner_live if evaluated.newest.owner is not None else None,
            }
            for partition, evaluated in lag.partitions.items()
        ],
    }
