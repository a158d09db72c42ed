"""FleetFile: which groups of a cluster are to leave ZooKeeper, when and where to; a TOML file that people edit."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import quote

from zkconsumer.errors import UsageError, name_some
from zkconsumer.operate.migrate.rules.migrationend import End, parse_end
from zkconsumer.operate.migrate.rules.migrationplan import Missing

_CLUSTER_KEYS: Final = frozenset({"zookeeper", "bootstrap_servers", "config"})
_GROUP_KEYS: Final = frozenset({"wave", "owner", "target", "protocol", "window", "missing", "rewind"})
_PROTOCOLS: Final = ("kafka", "consumer")
_CONSUMER_SINCE: Final = (4,)
_HEAD: Final = """\
# The groups of one cluster that leave ZooKeeper, for `zkconsumer migrate fleet`; edit it, and keep it in git.
#
# wave       groups of one wave are planned, run and verified by one command; those of wave 0 only with --group
# owner      whom to ask; shown by `fleet status`
# target     kafka:NAME, where the offsets are written
# protocol   group.protocol of the new consumers: kafka or consumer (brokers since 4.0); `fleet config` prints it
# window     when `fleet run` may write: 2026-12-01T22:00Z/2026-12-02T04:00Z; empty for any time
# missing    fail, earliest or latest: where partitions begin in Kafka that have no offset; fail if it is omitted
# rewind     true accepts that offsets in Kafka move back; neither is for the way back
"""


class Window(NamedTuple):
    """When the offsets of a group may be written: from, until."""

    begin: datetime
    end: datetime

    def has(self, now: datetime) -> bool:
        """True if a time with a zone lies inside."""
        return self.begin <= now < self.end


@dataclass(frozen=True, slots=True)
class FleetGroup:
    """What is wanted of one group.

    Attributes:
        group: its name in ZooKeeper.
        wave: groups of one wave are migrated together; those of wave 0 are in none.
        owner: whom to ask.
        target: where the offsets are written.
        protocol: ``group.protocol`` of the new consumers.
        window: when they may be written; None for any time.
        missing: see :data:`~zkconsumer.operate.migrate.rules.migrationplan.Missing`.
        rewind: offsets of the target may move back.
    """

    group: str
    wave: int
    owner: str
    target: End
    protocol: str = "kafka"
    window: Window | None = None
    missing: Missing = "fail"
    rewind: bool = False

    @property
    def directory(self) -> str:
        """Name of the directory of its plans: that of the group, percent-encoded where a file system needs it."""
        name = quote(self.group, safe="")
        return f"%2E{name[1:]}" if name.startswith(".") else name


@dataclass(frozen=True, slots=True)
class FleetFile:
    """The groups of one cluster.

    Attributes:
        name: of the cluster: that of the file, without its ending.
        zookeeper: servers and chroot; empty for those of the command.
        bootstrap_servers: brokers; empty for those that are registered in ZooKeeper.
        config: properties file, from the directory of the fleet; empty for none.
        groups: in the order of the file.
    """

    name: str
    zookeeper: str
    bootstrap_servers: str
    config: str
    groups: tuple[FleetGroup, ...]


class FoundGroup(NamedTuple):
    """A group that a new file gets.

    Attributes:
        group: its name.
        note: what was found of it, in a line.
        is_ready: False if the survey has a blocker; then it gets wave 0.
    """

    group: str
    note: str
    is_ready: bool


def format_fleet(cluster: Mapping[str, str], found: Sequence[FoundGroup], wave: int) -> str:
    """The text of a new file.

    Args:
        cluster: ``zookeeper``, ``bootstrap_servers`` and ``config``, see :class:`FleetFile`.
        found: the groups.
        wave: number of groups in a wave; 0 for one wave of all.
    """
    lines = [_HEAD, "[cluster]", *(f"{key} = {_string(value)}" for key, value in cluster.items() if value)]
    return "\n".join(lines) + "\n" + format_groups(found, wave)


def format_groups(found: Sequence[FoundGroup], wave: int, present: Iterable[FleetGroup] = ()) -> str:
    """The text of groups that a file gets, the ready ones in waves; other arguments: :func:`format_fleet`.

    Their waves come after those of the groups that the file has: a command that is repeated for a wave, which was
    agreed on and may have been run, does not begin with new ones.
    """
    last = max((group.wave for group in present), default=0)
    lines, ready = [], 0
    for group in found:
        number = 0
        if group.is_ready:
            number = last + 1 + (ready // wave if wave else 0)
            ready += 1
        target = _string(str(End("kafka", group.group)))
        lines += [
            "",
            f"[groups.{_string(group.group)}]  # {_one_line(group.note)}",
            f"wave = {number}",
            'owner = ""',
            f"target = {target}",
            'protocol = "kafka"',
            'window = ""',
        ]
    return "\n".join(lines) + "\n" if lines else ""


def new_properties(group: FleetGroup, bootstrap_servers: str, client: Literal["zkconsumer", "java"]) -> dict[str, str]:
    """The properties by which new consumers join their group, whatever others they have.

    Args:
        group: of a fleet.
        bootstrap_servers: brokers; empty if they are unknown.
        client: that the properties are for: ``java`` for KafkaConsumer and confluent-kafka, whose name for the protocol
            ``kafka`` is ``classic``.
    """
    protocol = "classic" if client == "java" and group.protocol == "kafka" else group.protocol
    servers = {"bootstrap.servers": bootstrap_servers} if bootstrap_servers else {}
    return {"group.id": group.target.group, "group.protocol": protocol, **servers}


def why_not_protocol(protocol: str, releases: Mapping[int, tuple[int, ...]]) -> str | None:
    """Why brokers of these releases, by broker id, cannot have groups with a ``group.protocol``; None if they can."""
    old = sorted(number for number, release in releases.items() if release < _CONSUMER_SINCE)
    if protocol != "consumer" or not old:
        return None
    return (
        f"its new consumers have protocol consumer in the file of the fleet, which brokers have since 4.0, and brokers "
        f"{name_some(old)} are older: set protocol to kafka there"
    )


def _string(value: str) -> str:
    """A TOML string: that of JSON, whose escapes TOML has, too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def parse_fleet(name: str, content: bytes) -> FleetFile:
    """Read a file.

    Args:
        name: of the file, without its ending.
        content: of the file.

    Raises:
        UsageError: with every fault of it.
    """
    try:
        document = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # of the encoding, or TOML
        raise UsageError(f"{name}.toml: {error}") from None
    faults: list[str] = []
    cluster = document.pop("cluster", {})
    groups = document.pop("groups", {})
    if not (isinstance(cluster, dict) and isinstance(groups, dict)):
        raise UsageError(f"{name}.toml: [cluster] and [groups.NAME] are tables")
    faults += (f"{key} is not known" for key in document)
    faults += (f"cluster.{key} is not known" for key in cluster.keys() - _CLUSTER_KEYS)
    faults += (f"cluster.{key} is a string" for key, value in cluster.items() if not isinstance(value, str))
    parsed = [_group(group, entry, faults) for group, entry in groups.items()]
    targets: dict[End, str] = {}
    for one in parsed:
        if one is not None and (other := targets.setdefault(one.target, one.group)) != one.group:
            faults.append(f"groups {other} and {one.group} have one target, {one.target}")
    if faults:
        raise UsageError(f"{name}.toml: " + "; ".join(faults))
    texts = {key: str(cluster.get(key, "")) for key in _CLUSTER_KEYS}
    return FleetFile(name, **texts, groups=tuple(one for one in parsed if one is not None))


def _group(group: str, entry: Any, faults: list[str]) -> FleetGroup | None:
    if not isinstance(entry, dict):
        faults.append(f"groups.{group} is a table")
        return None
    before = len(faults)
    faults += (f"groups.{group}.{key} is not known" for key in entry.keys() - _GROUP_KEYS)
    wave, protocol = entry.get("wave", 0), entry.get("protocol", "kafka")
    missing: Missing | None = next((m for m in get_args(Missing) if m == entry.get("missing", "fail")), None)
    if not isinstance(wave, int) or isinstance(wave, bool) or wave < 0:
        faults.append(f"groups.{group}.wave is a number from 0 on")
    if protocol not in _PROTOCOLS:
        faults.append(f"groups.{group}.protocol is one of {', '.join(_PROTOCOLS)}")
    faults += (
        f"groups.{group}.{key} is {what}"
        for key, kind, what in (("owner", str, "a string"), ("rewind", bool, "true or false"))
        if not isinstance(entry.get(key, kind()), kind)
    )
    if missing is None:
        faults.append(f"groups.{group}.missing is one of {', '.join(get_args(Missing))}")
    target, window = _target(group, entry, faults), _window(group, entry.get("window", ""), faults)
    if len(faults) > before or target is None or missing is None:
        return None
    return FleetGroup(
        group, wave, str(entry.get("owner", "")), target, protocol, window, missing, entry.get("rewind") is True
    )


def _target(group: str, entry: Mapping[str, Any], faults: list[str]) -> End | None:
    try:
        target = parse_end(str(entry.get("target", f"kafka:{group}")))
    except ValueError as error:
        faults.append(f"groups.{group}.target: {error}")
        return None
    if target.kind != "kafka":
        faults.append(f"groups.{group}.target is kafka:NAME")
        return None
    return target


def _window(group: str, text: Any, faults: list[str]) -> Window | None:
    if text == "":
        return None
    try:
        window = Window(*(datetime.fromisoformat(part) for part in str(text).split("/")))
        if None not in (window.begin.tzinfo, window.end.tzinfo):
            if window.begin < window.end:
                return window
            faults.append(f"groups.{group}.window ends before it begins")
            return None
    except (ValueError, TypeError):
        pass
    faults.append(f"groups.{group}.window: write it as 2026-12-01T22:00Z/2026-12-02T04:00Z, with a zone")
    return None


def is_same_zookeeper(one: str, other: str) -> bool:
    """True if two texts of servers and chroot have a server in common, and one chroot.

    >>> is_same_zookeeper("h1:2181,h2:2181/kafka", "h2:2181/kafka/")
    True
    """
    (servers, _, chroot), (others, _, other_chroot) = (text.partition("/") for text in (one, other))
    in_common = {*servers.split(",")} & {*others.split(",")} - {""}
    return bool(in_common) and chroot.strip("/") == other_chroot.strip("/")


def groups_twice(fleets: Sequence[FleetFile]) -> list[str]:
    """Groups that two files have of one ZooKeeper, a phrase each: commands would do everything twice."""
    return [
        f"{name_some(twice)} in {one.name}.toml and {other.name}.toml"
        for one, other in itertools.combinations(fleets, 2)
        if is_same_zookeeper(one.zookeeper, other.zookeeper)
        and (twice := sorted({group.group for group in one.groups} & {group.group for group in other.groups}))
    ]


def groups_of(
    fleets: Iterable[FleetFile], wave: int | None, names: Iterable[str]
) -> list[tuple[FleetFile, FleetGroup]]:
    """The groups that a command is about: those of a wave, or those that are named.

    Args:
        fleets: of all clusters.
        wave: its number; None for the groups that are named.
        names: of groups.

    Raises:
        UsageError: there is no such group.
    """
    wanted = set(names)
    every = [(fleet, group) for fleet in fleets for group in fleet.groups]
    chosen = [
        (fleet, group)
        for fleet, group in every
        if (group.group in wanted if wave is None else group.wave == wave and (not wanted or group.group in wanted))
    ]
    if absent := sorted(wanted - {group.group for _, group in chosen}):
        raise UsageError(f"the fleet has no group {', '.join(absent)}{'' if wave is None else f' in wave {wave}'}")
    if not chosen:
        waves = ", ".join(map(str, sorted({group.wave for _, group in every} - {0}))) or "none"
        raise UsageError(f"no group is meant; the waves are {waves}")
    return chosen
