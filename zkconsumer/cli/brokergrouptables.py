"""Tables of groups that brokers coordinate, as those of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from zkconsumer.cli.grouptables import MISSING, column_width, number_cell
from zkconsumer.cli.terminaltext import printable
from zkconsumer.errors import name_some

if TYPE_CHECKING:
    from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription, ObservedBrokerGroup
    from zkconsumer.operate.groups.groupdescription import PartitionDescription
    from zkconsumer.wire.rules.describedgroup import DescribedMember


def notice(group: ObservedBrokerGroup) -> str | None:
    """What kafka-consumer-groups says of a group ahead of its table; None if nothing."""
    if group.phase == "empty":
        return f"Consumer group '{printable(group.group)}' has no active members."
    if group.phase == "rebalancing":
        return f"Warning: Consumer group '{printable(group.group)}' is rebalancing."
    return None


def offset_table(group: BrokerGroupDescription) -> Iterator[str]:
    """Lines of ``kafka-consumer-groups --describe --offsets``."""
    owners = {member.member_id: member for member in group.observed.described.members}
    rows = [_offset_cells(group.observed.group, row, owners.get(row.owner or "")) for row in _in_order(group)]
    if not rows:
        return
    heading = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST")
    group_width, topic_width, consumer_width, host_width = (
        column_width(row[at] for row in rows) for at in (0, 1, 6, 7)
    )
    line = f"{{:<{group_width}}} {{:<{topic_width}}} {{:<10}} {{:<15}} {{:<15}} {{:<15}} "
    line += f"{{:<{consumer_width}}} {{:<{host_width}}} {{}}"
    yield ""
    yield line.format(*heading, "CLIENT-ID")
    yield from (line.format(*row) for row in rows)


def _in_order(group: BrokerGroupDescription) -> list[PartitionDescription]:
    """As Kafka's tool: by member, those with most partitions first; then the partitions that no member has."""
    count = {member.member_id: len(member.assigned) for member in group.observed.described.members}
    order = {owner: at for at, owner in enumerate(sorted(count, key=lambda owner: -count[owner]))}
    return sorted(group.partitions, key=lambda row: (order.get(row.owner or "", len(order)), row.partition, row.topic))


def _offset_cells(group: str, row: PartitionDescription, owner: DescribedMember | None) -> tuple[str, ...]:
    return (
        printable(group),
        printable(row.topic),
        *map(number_cell, (row.partition, row.committed, row.log_end, row.lag)),
        *((MISSING,) * 3 if owner is None else map(printable, (owner.member_id, owner.host, owner.client_id))),
    )


def idle_member_lines(groups: Iterable[BrokerGroupDescription]) -> Iterator[str]:
    """A line for each group with members that own nothing."""
    for group in groups:
        idle = [member.id for member in group.members if not member.partitions]
        if idle:
            owns = f"{len(idle)} members own" if len(idle) > 1 else "1 member owns"
            name = printable(group.observed.group)
            yield f"{name}: {owns} nothing: {printable(name_some(idle))}; --members shows them"


def member_table(group: BrokerGroupDescription) -> Iterator[str]:
    """Lines of ``kafka-consumer-groups --describe --members``."""
    shown = {member.id for member in group.members}
    described = [member for member in group.observed.described.members if member.member_id in shown]
    members = sorted(described, key=lambda member: -len(member.assigned))
    if not members:
        return
    with_instance = any(member.instance_id is not None for member in members)
    rows = [_member_cells(group.observed.group, member, with_instance=with_instance) for member in members]
    heading = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if with_instance else []), "HOST", "CLIENT-ID"]
    # A column is 15 wide at least, that of GROUP-INSTANCE-ID as its heading.
    widths = [max(column_width(row[at] for row in rows), len(name)) for at, name in enumerate(heading)]
    line = " ".join(f"{{:<{width}}}" for width in widths) + " {:<15} "
    yield ""
    yield line.format(*heading, "#PARTITIONS")
    yield from (line.format(*row) for row in rows)


def _member_cells(group: str, member: DescribedMember, *, with_instance: bool) -> tuple[str, ...]:
    instance = (printable(member.instance_id or ""),) if with_instance else ()
    shown = (printable(group), printable(member.member_id), *instance, printable(member.host))
    return (*shown, printable(member.client_id), str(len(member.assigned)))


def state_table(group: ObservedBrokerGroup) -> Iterator[str]:
    """Lines of ``kafka-consumer-groups --describe --state``."""
    broker = group.coordinator
    coordinator = MISSING if broker is None else f"{broker.host}:{broker.port}  ({broker.id})"
    group_width, coordinator_width = column_width([printable(group.group)]), max(25, len(coordinator))
    line = f"{{:<{group_width}}} {{:<{coordinator_width}}} {{:<20}} {{:<20}} {{}}"
    described = group.described
    yield ""
    yield line.format("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    cells = (printable(group.group), coordinator, printable(described.strategy), described.state)
    yield line.format(*cells, len(described.members))
