"""Groups as text: the tables of the JVM's tools, byte for byte, and those that only we have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from zkconsumer.cli.terminaltext import printable
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.operate.groups.finding import utc_time

if TYPE_CHECKING:
    from rich.table import Table

    from zkconsumer.operate.groups.groupchanges import GroupMoment
    from zkconsumer.operate.groups.groupdescription import GroupDescription, PartitionDescription
    from zkconsumer.operate.groups.grouplist import GroupListing
    from zkconsumer.operate.groups.observedgroup import DescribedGroupMember
    from zkconsumer.operate.groups.rules.lagstatus import GroupLag, PartitionLag

_NARROWEST: Final = 15
"""Of a column with names in ConsumerGroupCommand."""

_CHECKER: Final = "{:<15} {:<30} {:<3} {:<15} {:<15} {:<15} {}"

MISSING: Final = "-"


def offset_table(descriptions: Sequence[GroupDescription], *, both_stores: bool = False) -> Iterator[str]:
    """Lines of ``ConsumerGroupCommand --describe`` 1.1.1.

    Partitions and members that the JVM's tool does not show are shown, too: those of topics that the group never owned,
    and members whose filter matches nothing.

    Args:
        descriptions: of one group, or of several; then the first column is the group's name, as in later releases.
        both_stores: two more columns with the offsets in ZooKeeper and in Kafka.
    """
    for description in descriptions:
        rows = [*_partition_rows(description), *_idle_rows(description)]
        topic_width = column_width(row[0] for row in rows)
        consumer_width = column_width(row[5] for row in rows)
        group_width = column_width([printable(description.group)])
        line = f"{{:<{topic_width}}} {{:<10}} {{:<15}} {{:<15}} {{:<15}} {{:<{consumer_width}}} "
        heading: tuple[str, ...] = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
        if both_stores:
            line += "{:<16} {:<15} "
            heading += ("ZOOKEEPER-OFFSET", "KAFKA-OFFSET")
        with_group = len(descriptions) > 1
        yield ""
        for number, row in enumerate([heading, *rows]):
            group = printable(description.group) if number else "GROUP"
            yield (f"{group:<{group_width}} " if with_group else "") + line.format(*row)


def _partition_rows(description: GroupDescription) -> list[tuple[str, ...]]:
    return [
        (
            printable(row.topic),
            *map(number_cell, (row.partition, row.committed, row.log_end, row.lag)),
            _consumer(row.owner),
            *map(number_cell, (row.in_zookeeper, row.in_kafka)),
        )
        for row in description.partitions
    ]


def _idle_rows(description: GroupDescription) -> list[tuple[str, ...]]:
    """Members that own nothing: as the JVM has it, a row without a topic for each topic that they subscribe to."""
    return [
        (*[MISSING] * 5, printable(member.id), *[MISSING] * 2)
        for member in description.members
        if not member.partitions
        for _ in member.threads or ("",)
    ]


def _consumer(owner: str | None) -> str:
    """The consumer id in the text of an owner znode, cut at the last hyphen without a look at what follows."""
    if owner is None:
        return MISSING
    consumer_id, hyphen, _ = owner.rpartition("-")
    return printable(consumer_id if hyphen else owner)


def checker_table(descriptions: Iterable[GroupDescription]) -> Iterator[str]:
    """Lines of ConsumerOffsetChecker 0.10.2.2; a missing offset is -1, as there, and its lag unknown."""
    yield _CHECKER.format("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner")
    for description in descriptions:
        for row in description.partitions:
            yield _CHECKER.format(
                printable(description.group),
                printable(row.topic),
                row.partition,
                _checked_offset(row),
                "unknown" if row.log_end is None else row.log_end,
                "unknown" if row.lag is None else row.lag,
                "none" if row.owner is None else printable(row.owner),
            )


def _checked_offset(row: PartitionDescription) -> str:
    if row.committed is None:
        return "-1" if row.is_readable else "unknown"
    return str(row.committed)


def member_table(descriptions: Sequence[GroupDescription]) -> Iterator[str]:
    """A line for each member."""
    heading = ("GROUP", "CONSUMER-ID", "CLIENT", "PATTERN", "#PARTITIONS", "REGISTERED", "THREADS")
    yield from columns(
        heading,
        [
            (
                printable(description.group),
                printable(member.id),
                member.client or MISSING,
                member.pattern or MISSING,
                str(member.partitions),
                MISSING if member.registered_ms is None else utc_time(member.registered_ms),
                printable(",".join(f"{topic}:{n}" for topic, n in sorted((member.threads or {}).items()))) or MISSING,
            )
            for description in descriptions
            for member in description.members
        ],
    )


def coordinator_lines(descriptions: Iterable[GroupDescription]) -> Iterator[str]:
    """A line for each group that has members with ``group.protocol=coordinator``."""
    for description in descriptions:
        coordinator = description.coordinator
        if coordinator is None:
            continue
        group = printable(description.group)
        if coordinator.leader is None:
            yield f"{group}: no member is the coordinator"
            continue
        status = coordinator.status
        line = f"{group}: coordinator {printable(coordinator.leader)}, epoch {coordinator.epoch}"
        if status is not None and status.epoch == coordinator.epoch:
            line += f", generation {status.generation}"
            line += f", awaits {format_partitions(status.awaited)}" if status.awaited else ""
            line += f", commands no member: {printable(status.refused)}" if status.refused else ""
        yield line


def listing_table(listings: Sequence[tuple[str, GroupListing]], now_ms: float, *, with_chroot: bool) -> Iterator[str]:
    """A line for each group, after the chroot where there may be several; with what brokers report of their groups."""
    heading: tuple[str, ...] = ("GROUP", "LAYOUT", "#MEMBERS", "#TOPICS", "LAG", "#UNKNOWN", "NEWEST-COMMIT")
    of_brokers = any(listing.protocol is not None for _, listing in listings)
    heading += ("PROTOCOL", "STATE", "STRATEGY", "STATUS", "REASON") if of_brokers else ("STATUS", "REASON")
    rows: list[tuple[str, ...]] = [
        (
            printable(listing.group),
            listing.layout,
            str(listing.members),
            str(listing.topics),
            number_cell(listing.lag),
            str(listing.unknown),
            MISSING
            if listing.newest_commit_ms is None
            else f"{duration((now_ms - listing.newest_commit_ms) / 1000)} ago",
            *(_broker_cells(listing) if of_brokers else ()),
            listing.status.value,
            printable(listing.reason),
        )
        for _, listing in listings
    ]
    if with_chroot:
        heading = ("CHROOT", *heading)
        rows = [(printable(chroot or "/"), *row) for (chroot, _), row in zip(listings, rows, strict=True)]
    yield from columns(heading, rows)


def _broker_cells(listing: GroupListing) -> tuple[str, str, str]:
    return listing.protocol or MISSING, listing.state or MISSING, printable(listing.strategy or MISSING)


def client_names(members: Iterable[DescribedGroupMember]) -> dict[str, str]:
    """Client id and host of the members whose id does not contain them, as it does not with KIP-848, by member id."""
    return {
        member.id: " ".join(filter(None, (member.client_id, member.host)))
        for member in members
        if member.client_id and not member.id.startswith(member.client_id)
    }


_NO_CLIENTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})


def status_table(
    groups: Mapping[str, GroupLag],
    clients: Mapping[str, Mapping[str, str]] = _NO_CLIENTS,
    *,
    clock_ms: float,
    only_problems: bool = False,
) -> Iterator[str]:
    """A line for each group, then one for each of its partitions.

    Args:
        groups: by name.
        clients: :func:`client_names` by group.
        clock_ms: the time 0 of the clock of the samples, in ms since the epoch.
        only_problems: without lines of partitions that are OK.
    """
    heading = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "STATUS",
        "LAG",
        "LAG-TIME",
        "CONSUMED/S",
        "PRODUCED/S",
        "OWNER",
        "REASON",
    )
    rows: list[tuple[str, ...]] = []
    for group, lag in groups.items():
        seen = "" if lag.complete == 1 else f"; {lag.complete:.0%} of its partitions have a full window of samples"
        reason = printable(f"{lag.reason}{seen}")
        rows.append((printable(group), *[MISSING] * 2, lag.status.value, number_cell(lag.lag), *[MISSING] * 4, reason))
        rows += [
            (
                printable(group),
                printable(partition.topic),
                str(partition.partition),
                *_lag_cells(partition_lag, clients.get(group, {})),
                f"{partition_lag.reason}{_first_seen(partition_lag, clock_ms)}",
            )
            for partition, partition_lag in lag.partitions.items()
            if not only_problems or partition_lag.status.severity > 0
        ]
    yield from columns(heading, rows)


def _first_seen(partition_lag: PartitionLag, clock_ms: float) -> str:
    """When a partition was first seen without an owner, or without progress, in words; empty of others."""
    lasted = {"STOP": partition_lag.ownerless_s, "STALL": partition_lag.unmoved_s}.get(partition_lag.status.value)
    if lasted is None:
        return ""
    return f"; first seen so at {utc_time(round(clock_ms + 1000 * (partition_lag.newest.at - lasted)))}"


def _lag_cells(partition_lag: PartitionLag, clients: Mapping[str, str]) -> tuple[str, ...]:
    owner = printable(partition_lag.newest.owner or MISSING)
    if client := clients.get(partition_lag.newest.owner or ""):
        owner = f"{printable(client)} ({owner})"
    return (
        partition_lag.status.value,
        number_cell(partition_lag.lag),
        MISSING if partition_lag.lag_s is None else duration(partition_lag.lag_s),
        _rate(partition_lag.consumed_per_s),
        _rate(partition_lag.produced_per_s),
        owner if partition_lag.newest.owner_live or partition_lag.newest.owner is None else f"{owner} (dead)",
    )


def _rate(per_second: float | None) -> str:
    return MISSING if per_second is None else f"{per_second:.1f}"


def live_table(
    moments: Mapping[str, GroupMoment],
    rebalances: Mapping[str, int],
    *,
    one_group: bool,
    clients: Mapping[str, Mapping[str, str]] = _NO_CLIENTS,
) -> Table:
    """What ``groups watch`` shows: a row for each group, or for each partition of the only one.

    ``clients`` as for :func:`status_table`.
    """
    from rich.table import Table
    from rich.text import Text

    headings: tuple[str, ...] = ("GROUP", "STATUS", "LAG", "CONSUMED/S", "PRODUCED/S", "MEMBERS", "OWNED", "REBALANCES")
    if one_group:
        headings = ("TOPIC", "PARTITION", "STATUS", "LAG", "LAG-TIME", "CONSUMED/S", "PRODUCED/S", "OWNER")
    table = Table(*headings, box=None, pad_edge=False)
    rows: list[tuple[str, ...]] = []
    for group, moment in moments.items():
        partitions = moment.lag.partitions
        if one_group:
            table.title = (
                f"{printable(group)}: {len(moment.members)} members, {rebalances.get(group, 0)} rebalances seen; "
                f"{moment.lag.status.value}: {printable(moment.lag.reason)}"
            )
            rows += [
                (printable(p.topic), str(p.partition), *_lag_cells(partition_lag, clients.get(group, {})))
                for p, partition_lag in partitions.items()
            ]
        else:
            rows.append(
                (
                    printable(group),
                    moment.lag.status.value,
                    number_cell(moment.lag.lag),
                    _rate(moment.lag.consumed_per_s),
                    _rate(moment.lag.produced_per_s),
                    str(len(moment.members)),
                    f"{moment.lag.owned}/{len(partitions)}",
                    str(rebalances.get(group, 0)),
                )
            )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def duration(seconds: float) -> str:
    """A duration in its two greatest units.

    >>> duration(5), duration(3725), duration(200_000)
    ('5s', '1h2m', '2d7h')
    """
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def columns(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines whose columns are as wide as their widest cell, the last one apart."""
    table = [heading, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heading) - 1)]
    for row in table:
        yield " ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1]])


def column_width(cells: Iterable[str]) -> int:
    """Of a column with names, in the tables of Kafka's tools."""
    return max(_NARROWEST, max(map(len, cells), default=0))


def number_cell(value: int | None) -> str:
    """A number, as Kafka's tools show it."""
    return MISSING if value is None else str(value)
