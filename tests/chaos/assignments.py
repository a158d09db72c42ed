"""Who owned what in a group that brokers coordinate, as the log of ``__consumer_offsets`` has it, and as they answer.

The coordinator appends each generation of a group, with the assignment of every member, before any member gets it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from zkconsumer.errors import RetriableError
from zkconsumer.group.consumer.heartbeatmessages import HeartbeatSettings, consumer_heartbeat, leave_beat
from zkconsumer.group.kafka.describedmembers import group_members
from zkconsumer.group.kafka.groupmessages import leave_group
from zkconsumer.group.kafka.subscriptionbytes import decode_assignment
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.testing.ledger import Claimed, Record, Registered, Released, SessionEnded
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.fields import Fields
from zkconsumer.wire.findcoordinator import CoordinatorClient

_KEY_VERSION: Final = 2
_LAST_VERSION: Final = 3
_WITH_REBALANCE_TIMEOUT: Final = 1
_WITH_TIMESTAMP: Final = 2
_WITH_INSTANCE_ID: Final = 3
_ANSWER_MS: Final = 10_000
_LEAVES: Final = -1
"""In place of the epoch of a member that leaves (KIP-848)."""
_CONSUMER_MEMBER: Final = 5
_CONSUMER_ASSIGNMENT: Final = 8
"""Versions of keys: a member of a group in which the broker assigns, and what it owns."""
_EPOCHS_AND_STATE: Final = struct.Struct(">iib")
_UUID: Final = struct.Struct(">16s")
_INT32: Final = struct.Struct(">i")


class Generation(NamedTuple):
    """One generation: member id to the client id and the partitions of each member."""

    number: int
    members: Mapping[str, tuple[str, frozenset[TopicPartition]]]


class _Fields:
    """Reads the fields of a record, which follow each other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._content, self._at)
        self._at += struct.calcsize(f">{kind}")
        return int(value)

    def text(self) -> str:
        return self._next(self.number("h")).decode()

    def content(self) -> bytes:
        return self._next(self.number("i"))

    def _next(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + max(0, length)  # -1 stands for null
        return self._content[begin : self._at]


def generation_of(key: bytes, value: bytes | None) -> tuple[str, Generation] | None:
    """Group and generation of a record, without members if the group was deleted; None for other records."""
    fields = _Fields(key)
    if fields.number("h") != _KEY_VERSION:
        return None
    group = fields.text()
    if value is None:
        return group, Generation(0, {})
    fields = _Fields(value)
    version = fields.number("h")
    assert version <= _LAST_VERSION, f"the metadata of group {group} has version {version}"
    fields.text()  # type of the protocol
    number = fields.number("i")
    fields.text()  # strategy
    fields.text()  # leader
    if version >= _WITH_TIMESTAMP:
        fields.number("q")
    return group, Generation(number, dict(_member(fields, version) for _ in range(fields.number("i"))))


def _member(fields: _Fields, version: int) -> tuple[str, tuple[str, frozenset[TopicPartition]]]:
    member_id = fields.text()
    if version >= _WITH_INSTANCE_ID:
        fields.text()
    client_id = fields.text()
    fields.text()  # host
    if version >= _WITH_REBALANCE_TIMEOUT:
        fields.number("i")
    fields.number("i")  # session timeout
    fields.content()  # subscription
    return member_id, (client_id, decode_assignment(fields.content()))


class ReconciledGroup:
    """A group in which the broker assigns (KIP-848): each record of the log has one member, or what one member owns.

    Args:
        group: its name, which is that of its only topic, too.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._clients: dict[str, str] = {}
        self._owned: dict[str, frozenset[TopicPartition]] = {}

    def after(self, key: bytes, value: bytes | None) -> Generation | None:
        """All members and what they own after a record; None after a record of another kind or group."""
        fields = _Fields(key)
        kind = fields.number("h")
        if kind not in (_CONSUMER_MEMBER, _CONSUMER_ASSIGNMENT) or fields.text() != self._group:
            return None
        member_id = fields.text()
        if kind == _CONSUMER_MEMBER:
            if value is None:
                self._clients.pop(member_id, None)
                self._owned.pop(member_id, None)
            else:
                self._clients[member_id] = _client_id(value)
        elif value is None:
            self._owned.pop(member_id, None)
        else:
            self._owned[member_id] = self._owned_in(value)
        return Generation(
            0, {one: (client, self._owned.get(one, frozenset())) for one, client in self._clients.items()}
        )

    def _owned_in(self, value: bytes) -> frozenset[TopicPartition]:
        """What the member may use, and what it has to release and has not reported as released."""
        fields = Fields(memoryview(value)[2:], flexible=True)
        fields.take(_EPOCHS_AND_STATE)
        numbers = [number for _ in range(2) for number in _partitions(fields)]
        return frozenset(TopicPartition(self._group, number) for number in numbers)


def _partitions(fields: Fields) -> Iterator[int]:
    for _ in range(fields.count()):
        fields.take(_UUID)
        yield from [number for (number,) in fields.rows(_INT32)]
        fields.tags()


def _client_id(value: bytes) -> str:
    fields = Fields(memoryview(value)[2:], flexible=True)
    fields.text()  # group.instance.id
    fields.text()  # rack
    return fields.text()


class AssignmentHistory:
    """Makes records of a ledger from the generations of one group. A membership counts as a session.

    Args:
        group: its name; the consumer id of a member is this and its client id.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._numbers = count(1)
        self._sessions: dict[str, tuple[str, int]] = {}
        self._owners: dict[TopicPartition, str] = {}

    def records(self, generation: Generation, position: int, at: float) -> Iterator[Record]:
        """What has changed.

        Args:
            generation: the next one.
            position: of its record in the log.
            at: time of its record.
        """
        for member_id, (client_id, _) in generation.members.items():
            if member_id not in self._sessions:
                owner, session = f"{self._group}_{client_id}", next(self._numbers)
                self._sessions[member_id] = owner, session
                yield Registered(owner, session, at)
        owners = {p: member_id for member_id, (_, theirs) in generation.members.items() for p in theirs}
        for p, member_id in self._owners.items():
            if owners.get(p) != member_id:
                expired = member_id not in generation.members
                yield Released(*p, *self._sessions[member_id], position, at, expired=expired)
        for p, member_id in owners.items():
            if self._owners.get(p) != member_id:
                yield Claimed(*p, *self._sessions[member_id], position, at)
        self._owners = owners
        for member_id in self._sessions.keys() - generation.members.keys():
            yield SessionEnded(*self._sessions.pop(member_id), at)


class OwnersAtCoordinator:
    """What the coordinator of one group answers.

    Args:
        brokers: of the cluster; each may be restarted.
        group: name of the group.
    """

    def __init__(self, brokers: Sequence[Broker], group: str) -> None:
        client = BrokerClient(lambda: brokers, client_id="chaos", timeout_ms=_ANSWER_MS)
        self._coordinator, self._group = CoordinatorClient(client, group), group

    def read(self) -> dict[str, set[int]]:
        """Client id to the partition numbers of each member, none while the group rebalances.

        Nothing if the broker does not answer.
        """
        try:
            members = group_members(self._coordinator, self._group)
        except RetriableError:
            return {}
        return {member.client_id: {p.partition for p in member.assigned} for member in members}

    def remove(self, client_id: str, *, assigned_by_brokers: bool) -> None:
        """Remove a member from the group, as an operator may, without its knowing; nothing if it is not there.

        Args:
            client_id: of the member.
            assigned_by_brokers: True for ``group.protocol=consumer``.
        """
        for member in group_members(self._coordinator, self._group):
            if member.client_id == client_id:
                leaving = CommitIdentity(member.member_id, _LEAVES)
                if assigned_by_brokers:
                    settings = HeartbeatSettings(self._group, _ANSWER_MS, None)
                    self._coordinator.ask(partial(consumer_heartbeat, settings=settings, beat=leave_beat(leaving)))
                else:
                    self._coordinator.ask(partial(leave_group, group=self._group, member=leaving))

    def close(self) -> None:
        """Close the connections."""
        self._coordinator.close()
