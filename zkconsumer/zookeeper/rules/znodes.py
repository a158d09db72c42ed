"""The bytes of the znodes of groups, and the bytes and paths of those of brokers.

The bytes are those of the JVM consumer (jvm-consumer.md#zookeeper-layout): other members, tools and monitors read them.
The paths of a group's znodes are in ``zookeeper/rules/grouppaths.py``, the bytes of what a coordinator
of ours writes in ``group/coordinator/rules/coordinatorznodes.py``. No other file has these paths and bytes.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, get_args

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import Broker, ConsumerThreadId, Stamp

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"

STATIC = "static"
WHITE_LIST = "white_list"
BLACK_LIST = "black_list"

MarkState = Literal["migrating", "migrated", "undoing"]
"""See :class:`MigrationMark`."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a member writes about itself into its ``ids`` znode.

    Attributes:
        subscription: topic, or for a filter the one normalised regex, to its number of streams.
        pattern: ``static``, ``white_list`` or ``black_list``.
        timestamp: text of the registration time in ms since the epoch, None if the writer omitted it.
    """

    subscription: dict[str, int]
    pattern: str = STATIC
    timestamp: str | None = None


def _text(path: str, data: bytes | None) -> str:
    try:
        return (data or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedZnode(path, f"not UTF-8: {error}") from None


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


_JSON: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text that any client may have written; its numbers are finite, so each fits an ``int``.

    Raises:
        ValueError: it is no JSON, or is nested so deeply that only garbage is.
    """
    try:
        return _JSON.decode(data if isinstance(data, str) else data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error}") from None  # the repr of the other one has all of the data
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _json_object(path: str, text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise MalformedZnode(path, f"not JSON: {text[:80]!r} ({error})") from None
    if not isinstance(value, dict):
        raise MalformedZnode(path, f"not a JSON object: {text[:80]!r}")
    return value


class ConsumerIdNode:
    """``/consumers/G/ids/C``: ephemeral, JSON (jvm-consumer.md#registration)."""

    @staticmethod
    def encode(registration: Registration) -> bytes:
        """Bytes in the JVM's key order, the regex escaped once; jvm-consumer.md#registration explains why not twice."""
        document = {
            "version": 1,
            "subscription": registration.subscription,
            "pattern": registration.pattern,
            "timestamp": registration.timestamp or "0",
        }
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> Registration:
        """Read any member's registration as leniently as the JVM does.

        Raises:
            MalformedZnode: not JSON even with every backslash doubled, or without a usable subscription.
        """
        text = _text(path, data)
        try:
            document = _json_object(path, text)
        except MalformedZnode:
            # unescaped regex of old members (jvm-consumer.md#registration)
            document = _json_object(path, text.replace("\\", "\\\\"))
        subscription = document.get("subscription")
        if not isinstance(subscription, dict) or not isinstance(document.get("pattern"), str):
            raise MalformedZnode(path, "subscription or pattern is missing; check which client registered it")
        for name, streams in subscription.items():
            if isinstance(streams, bool) or not isinstance(streams, int):
                raise MalformedZnode(path, f"stream count of {name!r} is {streams!r}, not an integer")
        pattern = document["pattern"]
        if not subscription or pattern not in (WHITE_LIST, BLACK_LIST):
            pattern = STATIC
        timestamp = document.get("timestamp")
        return Registration(subscription, pattern, None if timestamp is None else str(timestamp))


class PartitionOwnerNode:
    """``/consumers/G/owners/T/P``: ephemeral, the consumer thread id as plain text."""

    @staticmethod
    def encode(thread: ConsumerThreadId) -> bytes:
        """The text of the thread id."""
        return str(thread).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> str:
        """The thread id's text; not parsed, since a foreign owner only has to be compared and shown."""
        return _text(path, data)

    @staticmethod
    @lru_cache(maxsize=4096)
    def consumer_of(owner: str | None) -> str | None:
        """The consumer id in the text of an owner znode; None if there is none.

        >>> [PartitionOwnerNode.consumer_of(owner) for owner in ("g_host-1-0", "?", None)]
        ['g_host-1', None, None]
        """
        try:
            return None if owner is None else ConsumerThreadId.parse(owner).consumer_id
        except ValueError:
            return None


class OffsetNode:
    """``/consumers/G/offsets/T/P``: persistent, decimal ASCII of the next offset to consume."""

    @staticmethod
    def encode(offset: int) -> bytes:
        """Decimal digits, no newline."""
        return b"%d" % offset

    @staticmethod
    def decode(path: str, data: bytes | None) -> int:
        """The next offset to consume.

        Raises:
            MalformedZnode: not a 64-bit integer.
        """
        text = _text(path, data)
        try:
            offset = int(text)
        except ValueError:
            raise MalformedZnode(path, f"not an offset: {text[:80]!r}; set it to a decimal number") from None
        if not -(2**63) <= offset < 2**63:
            raise MalformedZnode(path, f"offset {offset} does not fit 64 bits")
        return offset


class MigrationMark(NamedTuple):
    """That a group was migrated, or is being.

    Attributes:
        state: ``migrating`` from before the first offset is written, ``migrated`` after the last one, ``undoing`` while
            offsets are written back.
        target: where its consumers continue, such as ``kafka:g``; empty if the mark cannot be read.
        at_ms: when the mark was written, in ms since the epoch.
        plan: SHA-256 of the plan whose run or rollback wrote it; empty in a mark of an earlier release.
    """

    state: MarkState
    target: str
    at_ms: int
    plan: str = ""

    @property
    def where(self) -> str:
        """The target as text; a mark that cannot be read has none."""
        return self.target or "another store"

    @property
    def meaning(self) -> str:
        """What it means for the group, which is the subject of this text, and what to do."""
        match self.state:
            case "migrated":
                return f"was migrated to {self.where}, where its consumers continue: start members there"
            case "migrating":
                way_out = "complete it with `zkconsumer migrate run`, or the rollback of its way back"
                return f"is being migrated to {self.where}: {way_out}"
        return f"has a migration to {self.where} that is being undone: complete the rollback or reverse"

    def may_be_of(self, target: str) -> bool:
        """True if it may be that of a migration to ``target``; one that cannot be read may be of any."""
        return self.target in ("", target)


HOLD_NODE: Final = b'{"version":1,"client":"zkconsumer"}'
"""``/consumers/G/zkconsumer/hold@SESSION``: ephemeral, ours; a tool writes offsets of the group."""


class MigratedNode:
    """``/consumers/G/zkconsumer/migrated``: persistent, ours (adr/0037)."""

    @staticmethod
    def encode(mark: MigrationMark) -> bytes:
        """JSON."""
        return json.dumps({"version": 1, **mark._asdict()}, separators=(",", ":")).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> MigrationMark:
        """The mark. One that cannot be read is one of a migrated group: members must not register by mistake."""
        try:
            document = _json_object(path, _text(path, data))
        except MalformedZnode:
            document = {}
        at_ms, target, plan = (document.get(name) for name in ("at_ms", "target", "plan"))
        state: MarkState = next((known for known in get_args(MarkState) if known == document.get("state")), "migrated")
        return MigrationMark(
            state,
            target if isinstance(target, str) else "",
            at_ms if isinstance(at_ms, int) else 0,
            plan if isinstance(plan, str) else "",
        )


MarkVerdict = Literal["done", "under way", "contradicted"]
"""What a mark and the members of its group show: the migration is done; a run or a way back has begun and not ended; or
members are registered although it is done."""


def mark_verdict(mark: MigrationMark, *, has_members: bool) -> MarkVerdict:
    """What a mark shows of a group that has members in ZooKeeper, or none."""
    if mark.state != "migrated":
        return "under way"
    return "contradicted" if has_members else "done"


def describe_mark(group: str, mark: MigrationMark) -> str:
    """What a mark means for a consumer of the group in ZooKeeper, and what to do, as text for an error or a finding."""
    back = "to come back, use `zkconsumer migrate rollback` or `reverse` (of a fleet: `migrate fleet`, with --group)"
    unmark = shlex.join(["zkconsumer", "migrate", "unmark", "--group", group])
    return f"group {group} {mark.meaning}; {back}; a mark that is wrong is removed with `{unmark}`"


class StampNode:
    """``/consumers/G/zkconsumer/commits/T/P``: persistent, ours; the Spark query and plan that committed the offset."""

    @staticmethod
    def encode(stamp: Stamp) -> bytes:
        """JSON."""
        return json.dumps({"version": 1, "query": stamp.query, "plan": stamp.plan}, separators=(",", ":")).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> Stamp:
        """The stamp.

        Raises:
            MalformedZnode: no query wrote it.
        """
        document = _json_object(path, _text(path, data))
        query, plan = document.get("query"), document.get("plan")
        if not isinstance(query, str) or type(plan) is not int:
            raise MalformedZnode(path, f"not the plan of a query: {document}; delete it")
        return Stamp(query, plan)


_FIRST_OF_0_10: Final = 3


class BrokerIdNode:
    """``/brokers/ids/N``: ephemeral, JSON of versions 1 to 5."""

    @staticmethod
    def path(broker_id: int | str) -> str:
        """Path of one broker's registration."""
        return f"{BROKER_IDS}/{broker_id}"

    @staticmethod
    def decode(path: str, data: bytes | None, protocol: str = "PLAINTEXT") -> Broker:
        """The broker with the first endpoint that speaks ``protocol``.

        Args:
            path: path of the znode; its last part is the broker id.
            data: data of the znode.
            protocol: ``security.protocol`` of this consumer.

        Raises:
            MalformedZnode: unreadable, or no endpoint of that security protocol.
        """
        document = _json_object(path, _text(path, data))
        try:
            broker_id = int(path.rpartition("/")[2])
            for host, port in _endpoints(document, protocol):
                return Broker(broker_id, host, port)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedZnode(path, f"unreadable broker registration ({error!r})") from None
        raise MalformedZnode(path, f"broker {broker_id} has no {protocol} listener; check its `listeners`")

    @staticmethod
    def seems_old(path: str, data: bytes | None) -> bool:
        """True for brokers before 0.10, and for later ones while ``inter.broker.protocol.version`` is that old.

        Raises:
            MalformedZnode: unreadable.
        """
        version = _json_object(path, _text(path, data)).get("version")
        return isinstance(version, int) and version < _FIRST_OF_0_10


def _endpoints(document: dict[str, Any], protocol: str) -> Iterable[tuple[str, int]]:
    if "endpoints" not in document:  # version 1
        if protocol == "PLAINTEXT":
            yield str(document["host"]), int(document["port"])
        return
    protocols = document.get("listener_security_protocol_map", {})
    for endpoint in document["endpoints"]:
        # Not urlsplit: listener names may hold an underscore, which it does not take for a scheme.
        name, _, address = endpoint.partition("://")
        host, _, port = address.rpartition(":")
        if protocols.get(name, name) == protocol:
            yield host.removeprefix("[").removesuffix("]"), int(port)


class TopicNode:
    """``/brokers/topics/T``: persistent, JSON whose ``partitions`` maps numbers (as text) to replicas."""

    @staticmethod
    def path(topic: str) -> str:
        """Path of one topic."""
        return f"{BROKER_TOPICS}/{topic}"

    @staticmethod
    def decode(path: str, data: bytes | None) -> tuple[int, ...]:
        """Partition numbers in numerical order (KAFKA-1062: not as text).

        Raises:
            MalformedZnode: unreadable.
        """
        partitions = _json_object(path, _text(path, data)).get("partitions")
        try:
            return tuple(sorted(int(number) for number in partitions or ()))
        except (TypeError, ValueError) as error:
            raise MalformedZnode(path, f"unreadable partitions ({error})") from None

    @staticmethod
    def replicas(path: str, data: bytes | None) -> dict[int, tuple[int, ...]]:
        """The replicas of each partition.

        Raises:
            MalformedZnode: unreadable.
        """
        partitions = _json_object(path, _text(path, data)).get("partitions") or {}
        try:
            return {int(number): tuple(int(broker) for broker in brokers) for number, brokers in partitions.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedZnode(path, f"unreadable partitions ({error!r})") from None

    @staticmethod
    def topic_id(path: str, data: bytes | None) -> str | None:
        """The id that the controller gave the topic; None before Kafka 2.8.

        Raises:
            MalformedZnode: unreadable.
        """
        topic_id = _json_object(path, _text(path, data)).get("topic_id")
        return topic_id if isinstance(topic_id, str) and topic_id else None


class SessionNode:
    """``/consumers/G/zkconsumer/members/C@SESSION``: ephemeral, ours; fences transactions and marks our members."""

    @staticmethod
    def encode(
        assignor: str,
        protocol: str | None = None,
        session_ms: int | None = None,
        *,
        shares: bool = True,
        user_data: bytes = b"",
    ) -> bytes:
        """JSON that names the client and the assignor, on which all members must agree.

        Args:
            assignor: its name.
            protocol: ``group.protocol`` where it is not ``zookeeper``; members that do not know it ignore it.
            session_ms: the timeout of its session in ms, if it is known.
            shares: ``group.share``, written if it is false.
            user_data: what an assignor of the application wrote, as base64; nothing if it is empty.
        """
        document: dict[str, object] = {"version": 1, "client": "zkconsumer", "assignor": assignor}
        if protocol is not None:
            document["protocol"] = protocol
        if session_ms is not None:
            document["session_ms"] = session_ms
        if not shares:
            document["share"] = False
        if user_data:
            document["user_data"] = base64.b64encode(user_data).decode("ascii")
        return json.dumps(document, separators=(",", ":")).encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> str:
        """The assignor's name.

        Raises:
            MalformedZnode: unreadable, or there is none.
        """
        assignor = _json_object(path, _text(path, data)).get("assignor")
        if not isinstance(assignor, str):
            raise MalformedZnode(path, "assignor is missing")
        return assignor

    @staticmethod
    def protocol(path: str, data: bytes | None) -> str:
        """``group.protocol`` of the member.

        Raises:
            MalformedZnode: unreadable.
        """
        return str(_json_object(path, _text(path, data)).get("protocol", "zookeeper"))

    @staticmethod
    def shares(path: str, data: bytes | None) -> bool:
        """``group.share`` of the member.

        Raises:
            MalformedZnode: unreadable.
        """
        return _json_object(path, _text(path, data)).get("share") is not False

    @staticmethod
    def user_data(path: str, data: bytes | None) -> bytes:
        """What an assignor of the application wrote for the member; empty if nothing, or if it cannot be read.

        Raises:
            MalformedZnode: unreadable.
        """
        text = _json_object(path, _text(path, data)).get("user_data")
        try:
            return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        except ValueError:
            return b""

    @staticmethod
    def session_ms(path: str, data: bytes | None) -> int | None:
        """The timeout of the member's session in ms; None if it did not write it.

        Raises:
            MalformedZnode: unreadable.
        """
        timeout = _json_object(path, _text(path, data)).get("session_ms")
        return timeout if isinstance(timeout, int) else None

    @staticmethod
    def consumer_id(name: str) -> str:
        """The consumer id in a session node's name."""
        return name.rpartition("@")[0]
