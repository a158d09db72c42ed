"""ConsumerGroupDescribe messages (KIP-848), encoded by hand: the message library does not have them.

Layouts are those of Kafka's ``ConsumerGroupDescribeRequest`` and ``ConsumerGroupDescribeResponse`` message definitions.
The coordinator answers it for groups of ``group.protocol=consumer`` only.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Final

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fields import Fields, encode_compact_array, encode_compact_string, reporting_malformed
from zkconsumer.wire.rules.describedgroup import DescribedGroup, DescribedMember

CONSUMER_GROUP_DESCRIBE: Final = 69
_VERSIONS: Final = (0, 1)  # version 1 adds the type of each member
_WITHOUT_OPERATIONS: Final = b"\0"
_NO_TAGS: Final = b"\0"
_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_EPOCHS: Final = struct.Struct(">ii")
_UUID: Final = struct.Struct(">16s")


def describe_consumers(connection: BrokerConnection, group: str) -> tuple[int, DescribedGroup]:
    """Send a ConsumerGroupDescribe request to the coordinator; the error code of the answer, and the group.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: no common version, or the answer is malformed.
    """
    version = connection.version(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", *_VERSIONS)
    body = encode_compact_array([encode_compact_string(group)]) + _WITHOUT_OPERATIONS + _NO_TAGS
    groups = connection.exchange(
        CONSUMER_GROUP_DESCRIBE, version, body, partial(decode_consumers, version), flexible=True
    )
    if group not in groups:
        raise ProtocolError(f"{connection} sent a ConsumerGroupDescribe response without group {group}")
    return groups[group]


def decode_consumers(version: int, body: memoryview) -> dict[str, tuple[int, DescribedGroup]]:
    """Parse a response: error code and description of each group.

    Raises:
        ProtocolError: the response is malformed.
    """
    groups = {}
    with reporting_malformed("ConsumerGroupDescribe", version):
        fields = Fields(body, flexible=True)
        fields.take(_INT32)  # throttle time
        for _ in range(fields.count()):
            (code,) = fields.take(_INT16)
            fields.text()  # error message
            group = fields.text()
            state = fields.text()
            fields.take(_EPOCHS)  # of the group, and of its assignment
            assignor = fields.text()
            members = tuple(_member(version, fields) for _ in range(fields.count()))
            fields.take(_INT32)  # authorized operations
            fields.tags()
            groups[group] = code, DescribedGroup("consumer", state, assignor, members)
        fields.tags()
        fields.end()
    return groups


def _member(version: int, fields: Fields) -> DescribedMember:
    member_id, instance_id = fields.text(), fields.text()
    fields.text()  # rack
    fields.take(_INT32)  # member epoch
    client_id = fields.text()
    host = fields.text()
    topics = tuple(fields.text() for _ in range(fields.count()))
    fields.text()  # subscribed regex
    assigned = _assignment(fields)
    _assignment(fields)  # the target
    if version >= 1:
        fields.take(_INT8)  # type of the member
    fields.tags()
    return DescribedMember(member_id, client_id, instance_id or None, assigned, host, topics)


def _assignment(fields: Fields) -> frozenset[TopicPartition]:
    assigned: set[TopicPartition] = set()
    for _ in range(fields.count()):
        fields.take(_UUID)
        topic = fields.text()
        assigned.update(TopicPartition(topic, number) for (number,) in fields.rows(_INT32))
        fields.tags()
    fields.tags()
    return frozenset(assigned)
