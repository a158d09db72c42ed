"""The bytes of the znodes of ``group.protocol=coordinator`` (adr/0017).

Their paths are in ``zookeeper/rules/coordinatorpaths.py``: they are below ``/consumers/G/zkconsumer/coordinator``. Only
members with this protocol know them; ``ids``, ``owners`` and ``offsets`` are those of ``zookeeper/rules/znodes.py``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from zkconsumer.errors import MalformedZnode
from zkconsumer.group.rules.assignors import ASSIGNORS
from zkconsumer.group.rules.groupview import number_ranges
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name
from zkconsumer.zookeeper.rules.znodes import parse_json

CANDIDATES: Final = 3
"""Most members that watch the leader at the same time."""

STICKY: Final = "sticky"
"""Name of the assignor of groups in which all members obey commands, if no policy names another one."""

MOST_BYTES: Final = 0xF0000
"""Most bytes of a node that is written: servers close the connection without an answer to a request of more than
1 MiB (jute.maxbuffer, unless it is lowered)."""

_PLAIN_BYTES: Final = 0x80000
"""From this length on a document is compressed. A command of 19,000 topics has 1 MiB, compressed a tenth of that."""

_MOST_UNPACKED: Final = 0x10000000

_MOST_PARTITIONS: Final = 1_000_000
"""Most partitions of one command; more is a range that no leader wrote, and would not fit into memory."""


@dataclass(frozen=True, slots=True)
class Command:
    """What one member has to own.

    Attributes:
        share: its complete share, so that a command that was never read does not matter.
        epoch: epoch of the leader that wrote it.
        generation: number of the leader's plan; increases in one epoch.
        refused: why this member must not own anything; "" if it may.
        evicted_ms: session timeout of a member whose session node the leader has deleted, in ms; 0 for others.
        brokers: some of the brokers that lived when it was written, for the first request for metadata. A command is
            not written again when they change, so two that differ in these only are equal.
        security_protocol: that their endpoints are of.
    """

    share: Share
    epoch: int
    generation: int
    refused: str = ""
    evicted_ms: int = 0
    brokers: tuple[Broker, ...] = field(default=(), compare=False)
    security_protocol: str = field(default="", compare=False)


class CommandNode:
    """``commands/C@SESSION.N``: empty until the leader has written a command; then JSON."""

    @staticmethod
    def encode(command: Command) -> bytes:
        """Per topic a list with the partitions of each consumer thread: ``{"clicks":["0-3,7","4-6"]}``."""
        share: dict[str, dict[int, list[int]]] = {}
        for partition, thread in sorted(command.share.items()):
            share.setdefault(partition.topic, {}).setdefault(thread.number, []).append(partition.partition)
        document: dict[str, object] = {
            "version": 1,
            "epoch": command.epoch,
            "generation": command.generation,
            "share": {
                topic: [number_ranges(threads.get(number, ())) for number in range(max(threads) + 1)]
                for topic, threads in share.items()
            },
        }
        if command.refused:
            document["refused"] = command.refused
        if command.evicted_ms:
            document["evicted_ms"] = command.evicted_ms
        if command.brokers:
            document["brokers"] = {command.security_protocol: [list(broker) for broker in command.brokers]}
        return _packed(document)

    @staticmethod
    def decode(path: str, data: bytes | None) -> Command | None:
        """The command; None if none has been written.

        Raises:
            MalformedZnode: no leader wrote it.
        """
        if not data:
            return None
        consumer_id = consumer_id_of(path)
        try:
            document: Any = parse_json(_unpacked(data))
            share = dict(_read_share(consumer_id, document["share"]))
            refused = str(document.get("refused", ""))
            evicted_ms = int(document.get("evicted_ms", 0))
            epoch, generation = int(document["epoch"]), int(document["generation"])
            protocol, brokers = _read_brokers(document.get("brokers", {}))
            return Command(share, epoch, generation, refused, evicted_ms, brokers, protocol)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedZnode(
                path, f"not a command ({error}); the member registers again, with another node"
            ) from None


def _read_brokers(named: Mapping[str, Any]) -> tuple[str, tuple[Broker, ...]]:
    for protocol, brokers in named.items():
        return protocol, tuple(Broker(int(number), str(host), int(port)) for number, host, port in brokers)
    return "", ()


def session_node_of(group: str, path: str) -> str:
    """Path of the session node of the member to whom a command belongs.

    >>> session_node_of("g", "/a/g_host-1@00000000000000ff.0")
    '/consumers/g/zkconsumer/members/g_host-1@00000000000000ff'
    """
    return f"{GroupPaths(group).members}/{path.rpartition('/')[2].rpartition('.')[0]}"


def consumer_id_of(path: str) -> str:
    """The consumer id in the path or the name of a command.

    >>> consumer_id_of("/a/g_host-1@00000000000000ff.0")
    'g_host-1'
    """
    return path.rpartition("/")[2].rpartition("@")[0]


def newest_commands(created: Mapping[str, int]) -> dict[str, str]:
    """By consumer id, the path or the name of the command that counts: of the newest registration.

    A session that registered twice may have two. ``created`` has the czxid of each node.

    >>> newest_commands({"g_a@00000000000000ff.10": 7, "g_a@00000000000000ff.9": 5})
    {'g_a': 'g_a@00000000000000ff.10'}
    """
    return {consumer_id_of(path): path for path in sorted(created, key=created.__getitem__)}


class LeaderNode:
    """``leader``: who leads, and in which epoch."""

    @staticmethod
    def encode(consumer_id: str, epoch: int) -> bytes:
        """JSON."""
        return json.dumps({"version": 1, "consumer": consumer_id, "epoch": epoch}, separators=(",", ":")).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> tuple[str, int]:
        """Consumer id and epoch of the leader.

        Raises:
            MalformedZnode: no member wrote it.
        """
        try:
            document: Any = parse_json(data or b"")
            return str(document["consumer"]), int(document["epoch"])
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedZnode(path, f"not a coordinator ({error}); the members elect another") from None


class PolicyNode:
    """``policy``: JSON with the name of the assignor, ``{"assignor":"roundrobin"}``."""

    @staticmethod
    def decode(path: str, data: bytes | None) -> str:
        """The name of the assignor.

        Raises:
            MalformedZnode: there is no such assignor, or it is no policy.
        """
        known = (STICKY, *sorted(ASSIGNORS))
        try:
            document: Any = parse_json(data or b"")
            assignor = document["assignor"]
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedZnode(path, f'not a policy ({error!r}); write for example {{"assignor":"sticky"}}') from None
        if assignor not in known:
            raise MalformedZnode(path, f"unknown assignor {assignor!r}; known are {', '.join(known)}")
        return str(assignor)


@dataclass(frozen=True, slots=True)
class Status:
    """How far the leader is.

    Attributes:
        epoch: that it leads in.
        generation: of its last commands.
        members_version: ``cversion`` of ``ids`` when it last read the members; candidates compare it.
        awaited: partitions that a member should own and does not: they are not free yet, or it has not claimed them.
        refused: why it commands no member; "" if it does.
        waits_for: consumer id of each member that has to release or claim awaited partitions, and when it will be
            evicted if it does not, in ms since the epoch; None for never.
    """

    epoch: int
    generation: int
    members_version: int
    awaited: frozenset[TopicPartition] = frozenset()
    refused: str = ""
    waits_for: Mapping[str, int | None] = field(default_factory=dict)


class StatusNode:
    """``status``: JSON."""

    @staticmethod
    def encode(status: Status) -> bytes:
        """Awaited partitions as ranges by topic."""
        topics: dict[str, list[int]] = {}
        for partition in sorted(status.awaited):
            topics.setdefault(partition.topic, []).append(partition.partition)
        document: dict[str, object] = {
            "version": 1,
            "epoch": status.epoch,
            "generation": status.generation,
            "members_version": status.members_version,
            "awaited": {topic: number_ranges(numbers) for topic, numbers in topics.items()},
            "refused": status.refused,
        }
        if status.waits_for:
            document["waits_for"] = dict(sorted(status.waits_for.items()))
        return _packed(document)

    @staticmethod
    def decode(path: str, data: bytes | None) -> Status:
        """The status.

        Raises:
            MalformedZnode: no leader wrote it.
        """
        try:
            document: Any = parse_json(_unpacked(data or b""))
            awaited = {
                TopicPartition(str(topic), number)
                for topic, text in document["awaited"].items()
                for number in islice(_read_ranges(text), _MOST_PARTITIONS)
            }
            waits_for = document.get("waits_for", {}).items()
            return Status(
                int(document["epoch"]),
                int(document["generation"]),
                int(document["members_version"]),
                frozenset(awaited),
                str(document["refused"]),
                {str(member): None if until is None else int(until) for member, until in waits_for},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedZnode(
                path, f"not a coordinator's status ({error}); the next leader writes it again"
            ) from None


def _packed(document: Mapping[str, object]) -> bytes:
    """JSON, compressed if it is long."""
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return data if len(data) <= _PLAIN_BYTES else zlib.compress(data)


def _unpacked(data: bytes) -> bytes:
    """The JSON of a node.

    Raises:
        ValueError: it is neither JSON nor compressed JSON.
    """
    if not data or data.lstrip().startswith(b"{"):
        return data
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(data, _MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not stream.eof:
        raise ValueError("it is cut off, or too long")
    return text


def _read_share(consumer_id: str, topics: Mapping[str, list[str]]) -> Iterable[tuple[TopicPartition, ConsumerThreadId]]:
    taken: set[TopicPartition] = set()
    for topic, threads in topics.items():
        if not is_node_name(topic):
            raise ValueError(f"topic {topic!r}")
        for number, text in enumerate(threads):
            for partition in _read_ranges(text):
                granted = TopicPartition(topic, partition)
                if granted in taken or len(taken) == _MOST_PARTITIONS:
                    raise ValueError(f"{granted} twice, or too many partitions")
                taken.add(granted)
                yield granted, ConsumerThreadId(consumer_id, number)


def _read_ranges(text: str) -> Iterable[int]:
    for part in text.split(",") if text else ():
        first, hyphen, last = part.partition("-")
        start, end = int(first), int(last if hyphen else first)
        if not 0 <= end - start < _MOST_PARTITIONS:
            raise ValueError(f"partitions {part}")
        yield from range(start, end + 1)
