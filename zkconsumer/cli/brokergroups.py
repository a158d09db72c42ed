"""``groups describe`` of groups that brokers coordinate, without a ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from zkconsumer.cli.groupoptions import echo_lines, warn
from zkconsumer.cli.main import EXIT_PROBLEM
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable

if TYPE_CHECKING:
    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.operate.groups.brokergroups import BrokerGroup, BrokerGroupDescription, BrokerGroups
    from zkconsumer.operate.groups.groupdescription import PartitionDescription
    from zkconsumer.wire.rules.describedgroup import DescribedMember

_MISSING: Final = "-"
_NARROWEST: Final = 15
_WITHOUT_MEMBERS: Final = "Empty"


class Shown(NamedTuple):
    """What ``groups describe`` shows of groups of brokers: members, or the state, in place of partitions."""

    of_members: bool
    of_state: bool
    unhealthy: bool
    as_json: bool


def describe_broker_groups_command(config: ConsumerConfig, names: Sequence[str], shown: Shown) -> None:
    """Print groups as kafka-consumer-groups of Kafka 4 does.

    Args:
        config: how brokers are reached.
        names: of groups; empty for all.
        shown: which of the tables.

    Raises:
        ZkConsumerError: a named group does not exist, or cannot be read.
    """
    from zkconsumer.operate.groups.brokergroups import describe_broker_groups

    unlisted: list[str] = []

    def choose(brokers: BrokerGroups) -> Sequence[str]:
        if names:
            return names
        listed = brokers.names()
        unlisted.extend(brokers.unlisted)
        return listed

    with progress("reading"):
        described, failures = describe_broker_groups(config, choose, with_log_starts=shown.unhealthy)
    if names and failures:
        raise next(iter(failures.values()))
    if shown.unhealthy:
        described = [
            group._replace(partitions=tuple(row for row in group.partitions if row.is_unhealthy))
            for group in described
            if any(row.is_unhealthy for row in group.partitions)
        ]
    if shown.as_json:
        documents = [description_document(group) for group in described]
        click.echo(json.dumps(documents[0] if len(names) == 1 and len(documents) == 1 else documents))
    else:
        for group in described:
            _print(group, shown)
    unread = [f"group {name} cannot be read: {error}" for name, error in failures.items()]
    warn([*unlisted, *unread, *(problem for group in described for problem in group.problems)])
    if shown.unhealthy and described:
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _print(group: BrokerGroupDescription, shown: Shown) -> None:
    observed = group.observed
    if shown.of_state:
        echo_lines(state_table(observed))
        return
    if observed.described.state == _WITHOUT_MEMBERS:
        click.echo(f"\nConsumer group '{printable(observed.group)}' has no active members.", err=True)
    elif observed.described.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        click.echo(f"\nWarning: Consumer group '{printable(observed.group)}' is rebalancing.", err=True)
    echo_lines(member_table(observed) if shown.of_members else offset_table(group))


def offset_table(group: BrokerGroupDescription) -> Iterator[str]:
    """Lines of ``kafka-consumer-groups --describe --offsets``."""
    owners = {member.member_id: member for member in group.observed.described.members}
    rows = [_offset_cells(group.observed.group, row, owners.get(row.owner or "")) for row in _in_order(group)]
    if not rows:
        return
    heading = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST")
    group_width, topic_width, consumer_width, host_width = (_width(row[at] for row in rows) for at in (0, 1, 6, 7))
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
        *map(_cell, (row.partition, row.committed, row.log_end, row.lag)),
        *((_MISSING,) * 3 if owner is None else map(printable, (owner.member_id, owner.host, owner.client_id))),
    )


def member_table(group: BrokerGroup) -> Iterator[str]:
    """Lines of ``kafka-consumer-groups --describe --members``."""
    members = sorted(group.described.members, key=lambda member: -len(member.assigned))
    if not members:
        return
    with_instance = any(member.instance_id is not None for member in members)
    rows = [_member_cells(group.group, member, with_instance=with_instance) for member in members]
    heading = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if with_instance else []), "HOST", "CLIENT-ID"]
    widths = [_width([rows[0][0]]), *(_width(row[at] for row in rows) for at in range(1, len(heading)))]
    line = " ".join(f"{{:<{width}}}" for width in widths) + " {:<15} "
    yield ""
    yield line.format(*heading, "#PARTITIONS")
    yield from (line.format(*row) for row in rows)


def _member_cells(group: str, member: DescribedMember, *, with_instance: bool) -> tuple[str, ...]:
    instance = (printable(member.instance_id or ""),) if with_instance else ()
    shown = (printable(group), printable(member.member_id), *instance, printable(member.host))
    return (*shown, printable(member.client_id), str(len(member.assigned)))


def state_table(group: BrokerGroup) -> Iterator[str]:
    """Lines of ``kafka-consumer-groups --describe --state``."""
    broker = group.coordinator
    coordinator = _MISSING if broker is None else f"{broker.host}:{broker.port}  ({broker.id})"
    group_width, coordinator_width = _width([printable(group.group)]), max(25, len(coordinator))
    line = f"{{:<{group_width}}} {{:<{coordinator_width}}} {{:<20}} {{:<20}} {{}}"
    described = group.described
    yield ""
    yield line.format("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    cells = (printable(group.group), coordinator, printable(described.strategy), described.state)
    yield line.format(*cells, len(described.members))


def description_document(group: BrokerGroupDescription) -> dict[str, Any]:
    """The document of ``groups describe`` for a group of brokers: the names of other groups, and more of them."""
    from zkconsumer.operate.groups.groupdocuments import member_documents

    observed, described = group.observed, group.observed.described
    names = ("topic", "partition", "owner", "owner_live", "committed", "log_end", "lag")
    return {
        "group": observed.group,
        "protocol": described.kind,
        "state": described.state,
        "strategy": described.strategy or None,
        "coordinated_by": None if observed.coordinator is None else observed.coordinator._asdict(),
        "members": member_documents(observed.describe_members(), ((row.owner, row.lag) for row in group.partitions)),
        "partitions": [{name: getattr(row, name) for name in names} for row in group.partitions],
    }


def _width(cells: Iterable[str]) -> int:
    return max(_NARROWEST, max(map(len, cells), default=0))


def _cell(value: int | None) -> str:
    return _MISSING if value is None else str(value)
