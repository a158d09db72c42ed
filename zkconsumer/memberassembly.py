"""Assembles a group member from its parts.

The connector and the Spark driver differ in what fetches; where the offsets are kept depends on the properties alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchControl
from zkconsumer.group.grouprefusals import OnRefusal
from zkconsumer.group.member import GroupMember
from zkconsumer.offsets.store import OffsetStore
from zkconsumer.offsets.storechoice import open_store


class MemberCallbacks(TypedDict, total=False):
    """What :class:`~zkconsumer.group.member.GroupMember` calls, and may be left to its defaults."""

    on_failure: Callable[[BaseException], None]
    before_commit: Callable[[], None] | None
    on_refusal: OnRefusal
    without_last_commit: str


def assemble_member(
    config: ConsumerConfig, consumer_id: str, fetch: FetchControl, **callbacks: Unpack[MemberCallbacks]
) -> GroupMember:
    """A member whose offsets are stored where ``offsets.storage`` and ``dual.commit.enabled`` specify.

    Args and errors are those of :class:`~zkconsumer.group.member.GroupMember`.
    """
    return GroupMember(config, consumer_id, fetch, make_store=_open_store, **callbacks)


def _open_store(config: ConsumerConfig, member: GroupMember, zookeeper: OffsetStore) -> OffsetStore:
    return open_store(config, zookeeper, live_brokers=member.live_brokers, wait_before_retry=member.wait_before_retry)
