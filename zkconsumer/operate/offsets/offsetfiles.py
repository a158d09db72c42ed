"""Files of offsets: the lines of ExportZkOffsets, the CSV of ``--reset-offsets --export``, and JSON lines of our own.

A file is read as a whole or not at all: every fault is reported with the number of its line.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name, offset_partition, partition_named

FileFormat = Literal["zk", "csv", "json"]

_NUMBER: Final = re.compile(r"\d+", re.ASCII)
_OLD_PARTITION: Final = re.compile(r"\d+-\d+", re.ASCII)
_MOST: Final = 2**63 - 1
_ZK_FORM: Final = "/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"
_FIELDS: Final = {"group", "topic", "partition", "offset"}


class GroupOffset(NamedTuple):
    """The offset of one partition of one group."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class FileFault:
    """What is wrong with one line, counted from 1."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class FileRefused(ZkConsumerError):
    """A file of offsets cannot be used; ``faults`` and ``reasons`` are in the order of lines."""

    def __init__(self, name: str, faults: Iterable[FileFault]) -> None:
        self.name = name
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        self.reasons = tuple(f"{name}, {fault}" for fault in self.faults)
        super().__init__(f"{name} is refused, and nothing was written: {name_some(self.faults)}")


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """What a file holds, and in which line each entry is."""

    name: str
    offsets: tuple[GroupOffset, ...]
    lines: Mapping[tuple[str, TopicPartition], int]


# -- writing ----------------------------------------------------------------------------------------------------------


def format_offsets(
    rows: Iterable[GroupOffset], kind: FileFormat, *, with_group: bool, skipped: list[str] | None = None
) -> str:
    """The text of a file.

    Args:
        rows: in the order in which they are written.
        kind: ``zk``: lines of ExportZkOffsets; ``csv``: rows of ``--reset-offsets --export``; ``json``: an object for
            each line.
        with_group: of ``csv``: the group is the first column, as newer tools have it for several groups.
        skipped: takes the reason for each group and topic with a name that cannot be written in this format so that it
            is read again; None makes that an error.

    Raises:
        ZkConsumerError: a name cannot be written in this format.
    """
    rows = list(rows)
    refused: dict[tuple[str, str], str] = {}
    for group, topic in dict.fromkeys((row.group, row.partition.topic) for row in rows):
        if why := name_fault(group, "group", kind) or name_fault(topic, "topic", kind):
            refused[group, topic] = f"group {group!r}, topic {topic!r} cannot be written in format {kind}: {why}"
    if skipped is None:
        for reason in refused.values():
            raise ZkConsumerError(reason)
    else:
        skipped += refused.values()
    rows = [row for row in rows if (row.group, row.partition.topic) not in refused]
    if kind == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(
            ((row.group,) if with_group else ()) + (row.partition.topic, row.partition.partition, row.offset)
            for row in rows
        )
        return text.getvalue()
    return "".join(map(_zk_line if kind == "zk" else _json_line, rows))


def name_fault(name: str, what: Literal["group", "topic"], kind: FileFormat) -> str | None:
    """Why a name cannot be in a file of a format; None if it can be written, and read again.

    A group of brokers may have a name that no znode can have, such as one with a slash.
    """
    if not name or not (is_node_name(name) or (what == "group" and kind != "zk")):
        other = "; use format json" if name and what == "group" else ""
        return f"{name!r} cannot be the name of a {what}{' in a path' if other else ''}{other}"
    if kind != "json" and any(character.isspace() or not character.isprintable() for character in name):
        return f"{name!r} needs escapes, which it does not have; use format json"
    if kind == "csv" and name[0] in _FIRST:
        return f"{name!r} begins as another format does; use format json"
    return f"{name!r} has a colon, which ends a path; use format json" if kind == "zk" and ":" in name else None


def _zk_line(row: GroupOffset) -> str:
    return f"{GroupPaths(row.group).offset(row.partition)}:{row.offset}\n"


def _json_line(row: GroupOffset) -> str:
    document = {"group": row.group, "topic": row.partition.topic, "partition": row.partition.partition}
    return json.dumps({**document, "offset": row.offset}) + "\n"


# -- reading ----------------------------------------------------------------------------------------------------------


def parse_offsets(name: str, content: bytes, *groups: str) -> OffsetFile:
    """Read a file of any of the formats, which its first character shows.

    Args:
        name: of the file, for messages.
        content: all bytes of the file.
        groups: for a CSV file of three columns, the group that it is for; of other files, only these groups' offsets
            are taken. None given: all.

    Raises:
        FileRefused: with every fault.
    """
    group = groups[0] if len(groups) == 1 else None
    lines, faults = _lines(content)
    parse = _parser(lines)
    offsets: list[GroupOffset] = []
    places: dict[tuple[str, TopicPartition], int] = {}
    for number, line in lines:
        try:
            row = parse(line, group)
            if row[:2] in places:
                raise ValueError(f"{_shown(row)} is also in line {places[row[:2]]}")
        except ValueError as error:
            faults.append(FileFault(number, str(error)))
            continue
        places[row[:2]] = number
        if not groups or row.group in groups:
            offsets.append(row)
    if not faults and not offsets:
        whose = f" of group {name_some(groups)}" if groups else ""
        faults.append(FileFault(len(lines) or 1, f"the file ends, and no offset{whose} is in it"))
    if faults:
        raise FileRefused(name, faults)
    return OffsetFile(name, tuple(offsets), places)


def _lines(content: bytes) -> tuple[list[tuple[int, str]], list[FileFault]]:
    """Lines that are not blank, with their numbers; blank lines at the end are accepted, others are not."""
    lines: list[tuple[int, str]] = []
    faults = []
    blank: int | None = None
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            faults.append(FileFault(number, f"not UTF-8: {error.reason} at byte {error.start}"))
            continue
        if not line.strip():
            blank = blank or number
            continue
        if blank is not None:
            faults.append(FileFault(blank, "blank, and more lines follow, which the JVM's import would ignore"))
            blank = None
        lines.append((number, line))
    return lines, faults


def _parser(lines: list[tuple[int, str]]) -> Callable[[str, str | None], GroupOffset]:
    first = lines[0][1].lstrip() if lines else ""
    if (parse := _FIRST.get(first[:1])) is not None:
        return parse
    columns = len(_columns_of_first(first))
    return lambda line, group: _parse_csv(line, group, 4 if columns == 4 else 3)


def _parse_zk(line: str, _group: str | None) -> GroupOffset:
    _refuse_spaces(line)
    path, colon, offset = line.partition(":")
    parts = offset_partition(path)
    if parts is None:
        raise ValueError(f"the path is outside /consumers/*/offsets/*/*; the form is {_ZK_FORM}")
    if not colon or ":" in offset:
        raise ValueError(f"the line does not have one colon; the form is {_ZK_FORM}")
    group, topic, partition = parts
    return GroupOffset(_name(group, "group", "zk"), TopicPartition(topic, _partition(partition)), _offset(offset))


def _columns_of_first(line: str) -> list[str]:
    try:
        return _columns(line)
    except ValueError:
        return []


def _columns(line: str) -> list[str]:
    try:
        (columns,) = csv.reader([line], strict=True)
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None
    return columns


def _parse_csv(line: str, group: str | None, expected: int) -> GroupOffset:
    columns = _columns(line)
    if len(columns) != expected:
        form = "group,topic,partition,offset" if expected == 4 else "topic,partition,offset"
        raise ValueError(f"{len(columns)} columns; the form of this file is {form}")
    for column in columns:
        _refuse_spaces(column)
    *named, topic, partition, offset = columns
    if not named and group is None:
        raise ValueError("three columns name no group; specify the group")
    owner = named[0] if named else str(group)
    return GroupOffset(
        _name(owner, "group", "csv"),
        TopicPartition(_name(topic, "topic", "csv"), _partition(partition)),
        _offset(offset),
    )


def _parse_json(line: str, _group: str | None) -> GroupOffset:
    try:
        document = json.loads(line, object_pairs_hook=_without_duplicates)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict) or set(document) != _FIELDS:
        raise ValueError("not an object with exactly group, topic, partition and offset")
    group, topic, partition, offset = (document[name] for name in ("group", "topic", "partition", "offset"))
    for name, value in (("group", group), ("topic", topic)):
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a text")
    for name, value in (("partition", partition), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} is not an integer")
    whole = TopicPartition(_name(topic, "topic", "json"), _partition(str(partition)))
    return GroupOffset(_name(group, "group", "json"), whole, _offset(str(offset)))


_FIRST: Final = {"/": _parse_zk, "{": _parse_json}
"""The first character of a file shows its format; other files are CSV."""


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _name(text: str, what: Literal["group", "topic"], kind: FileFormat) -> str:
    if fault := name_fault(text, what, kind):
        raise ValueError(fault)
    return text


def _refuse_spaces(text: str) -> None:
    if "".join(text.split()) != text:
        raise ValueError(f"{text!r} contains white space, which members cannot read in an offset")


def _partition(text: str) -> int:
    if _OLD_PARTITION.fullmatch(text):
        raise ValueError(f"partition {text!r} is a broker and a partition of Kafka 0.7; later releases have numbers")
    if (number := partition_named(text)) is None:
        raise ValueError(f"partition {text!r} is not a number of a partition")
    return number


def _offset(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _MOST:
        raise ValueError(f"offset {text!r} is not an integer from 0 to {_MOST}")
    return int(text)


def _shown(row: GroupOffset) -> str:
    return f"partition {row.partition} of group {row.group}"
