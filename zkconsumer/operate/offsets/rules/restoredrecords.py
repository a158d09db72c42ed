"""Records of topics that are restored with their parent: each names the transaction that created it (adr/0025).

A record that names another one is of another ensemble, and proves nothing. 1. A group is deleted, and restored byte for
byte; 2. a topic is deleted and created again; 3. members start, and use the offsets of the earlier topic.
"""

from __future__ import annotations

from typing import Final

from zkconsumer.errors import MalformedZnode
from zkconsumer.offsets.rules.topicorigins import TopicRecord

TO_BE_CREATED: Final = 0
"""Stands for the transaction of a parent that does not exist yet; no transaction of ZooKeeper has this number."""


def below_parent(path: str, data: bytes | None, former: int, parent: int) -> bytes | None:
    """The data of a record below another parent; that of a record which was not of its former parent stays.

    Args:
        path: of the record.
        data: as it was below the former parent.
        former: czxid of the former parent.
        parent: czxid of the present one, or :data:`TO_BE_CREATED`.
    """
    if former == parent:
        return data
    try:
        record = TopicRecord.decode(path, data)
    except MalformedZnode:
        return data
    return record._replace(ensemble=parent).encode() if record.ensemble == former else data
