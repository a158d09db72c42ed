"""OffsetCoordinator: commits, fetches and deletes a group's offsets through the group's coordinator.

See jvm-consumer.md#offsets-in-kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

from zkconsumer.errors import MembershipLost, ProtocolError, RebalanceAwaited, TopicUnreadable
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.offsets.offsetmessages import (
    BROKER_RETENTION,
    CommitOutcome,
    StoredOffsets,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
)
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.wire.attempts import Attempts
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import describe_group
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import CoordinatorClient, CoordinatorLocation, expect_coordinator
from zkconsumer.wire.permissions import may_commit
from zkconsumer.wire.refusals import DELETE, DESCRIBE, READ, expect_permission, instance_in_use, topic_refused
from zkconsumer.wire.rules.describedgroup import KafkaGroup

_COMMIT_VERSIONS: Final = (1, 7)  # version 0 is for offsets in ZooKeeper
_RETENTION_VERSIONS: Final = (2, 4)  # others have no retention
_FETCH_VERSIONS: Final = (1, 5)  # as above
_FETCH_ALL_VERSIONS: Final = (2, 5)  # older ones need the names of all partitions
_EPOCH_VERSIONS: Final = (9, 9)  # the first ones with member epochs
_TOPIC_ID_VERSIONS: Final = (9, 10)  # version 10 has topic ids in place of names
_OFFSET_FETCH: Final = 9
_OFFSET_DELETE: Final = 47
_DELETE_VERSIONS: Final = (0, 0)


T = TypeVar("T")


class CommitMembership(NamedTuple):
    """The membership of the consumer that commits.

    Attributes:
        await_renewed: waits until commits name another identity than this one, at most so many seconds; returns False
            if the member is not in the group any more.
        topic_ids: returns the ids of topics by name; those of held partitions are the ids of their assignment. None in
            a group without member epochs.
        location: where the coordinator is, shared with the member's other clients; None where it is not shared.
        refused: is told that a request was refused which named this member, with an error code by which the
            coordinator has removed it: a commit may learn that before a heartbeat does.
    """

    await_renewed: Callable[[CommitIdentity, float], bool]
    topic_ids: Callable[[], Mapping[str, str]] | None = None
    location: CoordinatorLocation | None = None
    refused: Callable[[CommitIdentity, int], None] = lambda _, __: None


class Committer(NamedTuple):
    """Who commits, or fetches.

    Attributes:
        identity: member and generation.
        topic_ids: see :class:`CommitMembership`; None in a group without member epochs.
        refused: the same, without the member.
    """

    identity: CommitIdentity
    topic_ids: Mapping[str, str] | None = None
    refused: Callable[[int], None] = lambda _: None

    @property
    def is_epoch_member(self) -> bool:
        """True if the coordinator compares the member epoch; then requests have other versions."""
        return self.topic_ids is not None and self.identity != NO_MEMBER


class OffsetCoordinator:
    """A client of a group's coordinator, which it finds again after a move. One thread uses it.

    Args:
        client: client of the cluster.
        group: consumer group.
        identity: returns whom commits name, called right before each is sent.
        membership: of a consumer whose commits name a generation; None for other clients.

    Attributes:
        coordinator: for other questions to the same broker.
    """

    def __init__(
        self,
        client: BrokerClient,
        group: str,
        identity: Callable[[], CommitIdentity] = lambda: NO_MEMBER,
        membership: CommitMembership | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self.coordinator = CoordinatorClient(client, group, membership.location if membership else None)
        self._identity = identity
        self._membership = membership

    def commit(
        self,
        offsets: Mapping[TopicPartition, StoredOffset],
        *,
        before_send: Callable[[], None] = lambda: None,
        retention_ms: int | None = None,
        attempts: Attempts | None = None,
    ) -> CommitOutcome:
        """Commit in one request; the marks become the metadata of the commits.

        Args:
            offsets: by partition.
            before_send: called right before the request is sent, and each time that it is sent again; its exception
                stops the commit.
            retention_ms: how long the coordinator keeps the offsets, in ms; None for the brokers' own setting.
            attempts: of the operation; None for one attempt without a deadline.

        Raises:
            CoordinatorMoved: the coordinator moved to another broker, or is moving; try again.
            BrokerUnavailable: no broker answers; try again.
            GroupAuthorizationFailed: the permission is missing; no offset is stored.
            ProtocolError: no common version.
            RebalanceAwaited: the group is between two generations; nothing is stored. Try again.
            MembershipLost: the group has removed this member; nothing is stored.
            InstanceIdInUse: another consumer has taken the ``group.instance.id``; nothing is stored.
        """
        outcome = self._as_member(
            lambda connection, member: _commit(connection, self._group, offsets, before_send, retention_ms, member),
            attempts,
        )
        expect_permission(outcome.refused.values(), self._group, READ, self._client.security)
        return outcome

    def fetch(self, partitions: Collection[TopicPartition], attempts: Attempts | None = None) -> StoredOffsets:
        """Committed offsets, marked with the metadata of their commits, and error codes of those that cannot be read.

        ``attempts`` as in :meth:`commit`.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            GroupAuthorizationFailed: the permission is missing.
            ProtocolError: the coordinator returned an error for the group; the message has it.
            RebalanceAwaited, MembershipLost: as :meth:`commit`, in a group with member epochs.
        """
        stored = self._as_member(
            lambda connection, member: _fetch(connection, self._group, partitions, member), attempts
        )
        expect_permission((stored.error,), self._group, DESCRIBE, self._client.security)
        return stored

    def _as_member(self, request: Callable[[BrokerConnection, Committer], T], attempts: Attempts | None) -> T:
        """Send a request that names the member, and again, for a while, where the group is between two generations.

        1. The coordinator answers JoinGroup, or a heartbeat, on the connection of another thread: the former generation
        is over, and a request that names it is refused; 2. the answer arrives, and a request that names the new
        generation is refused until the leader has assigned; 3. if the leader does not, the group rebalances again, and
        the request is accepted. Only the coordinator knows which step has been reached.
        """
        named = NO_MEMBER

        def ask(connection: BrokerConnection) -> T:
            nonlocal named
            named = self._identity()
            membership = self._membership
            if membership is None:
                return request(connection, Committer(named))
            topic_ids = membership.topic_ids() if membership.topic_ids else None
            return request(connection, Committer(named, topic_ids, partial(membership.refused, named)))

        def await_renewed(seconds: float) -> bool:
            return self._membership is not None and self._membership.await_renewed(named, seconds)

        return self.coordinator.ask_repeatedly(ask, attempts or Attempts(), await_renewed)

    def can_list(self) -> bool:
        """True if the coordinator can list a group's offsets, as brokers since 0.10.2 can; raises as :meth:`fetch`."""
        return self.coordinator.ask(lambda connection: connection.knows(_OFFSET_FETCH, _FETCH_ALL_VERSIONS[0]))

    def fetch_all(self) -> StoredOffsets:
        """As :meth:`fetch`, of every partition that the group has an offset of; needs brokers since 0.10.2."""
        stored = self.coordinator.ask(lambda connection: _fetch(connection, self._group, None))
        expect_permission((stored.error,), self._group, DESCRIBE, self._client.security)
        return stored

    def fetch_known(self, partitions: Collection[TopicPartition]) -> StoredOffsets:
        """As :meth:`fetch_all`; from brokers before 0.10.2 the offsets of ``partitions`` alone.

        A list is silent about topics that this client may not describe, so what is not in it is asked for by name.
        """
        listed = self.fetch_all() if self.can_list() else StoredOffsets({}, {}, 0)
        missing = [partition for partition in partitions if partition not in listed.found]
        named = self.fetch(missing) if missing else StoredOffsets({}, {}, 0)
        return StoredOffsets({**listed.found, **named.found}, {**listed.errors, **named.errors}, 0)

    def describe(self) -> KafkaGroup:
        """State and members of the group; raises as :meth:`fetch`, ProtocolError by a broker before 0.9."""

        def ask(connection: BrokerConnection) -> KafkaGroup:
            described, code = describe_group(connection, self._group)
            expect_coordinator(code, f"group {self._group} cannot be described")
            expect_permission((code,), self._group, DESCRIBE, self._client.security)
            if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                raise ProtocolError(f"group {self._group} cannot be described: {error_name(code)}")
            return described

        return self.coordinator.ask(ask)

    def may_commit(self) -> bool | None:
        """See :func:`~zkconsumer.wire.permissions.may_commit`; raises as :meth:`fetch`."""
        return self.coordinator.ask(lambda connection: may_commit(connection, self._group))

    def can_delete(self) -> bool:
        """True if the coordinator can delete offsets, as brokers since 2.4 can (KIP-496); raises as :meth:`fetch`."""
        return self.coordinator.ask(lambda connection: connection.knows(_OFFSET_DELETE))

    def delete(
        self, partitions: Collection[TopicPartition], *, before_send: Callable[[], None] = lambda: None
    ) -> dict[TopicPartition, int]:
        """Delete committed offsets; returns the error code of each partition that keeps its offset.

        Idempotent: a partition, or a group, without an offset is no error. ``before_send`` as in :meth:`commit`.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            GroupAuthorizationFailed: the permission is missing.
            ProtocolError: the coordinator is a broker before 2.4.
        """
        refused = self.coordinator.ask(lambda connection: _delete(connection, self._group, partitions, before_send))
        expect_permission(refused.values(), self._group, DELETE, self._client.security)
        return refused

    def refusal(self, topic: str, code: int) -> TopicUnreadable:
        """The exception for a topic whose offsets :meth:`fetch` could not read because of an error code."""
        return topic_refused(topic, code, DESCRIBE, f"the coordinator of group {self._group}", self._client.security)


def _commit(
    connection: BrokerConnection,
    group: str,
    offsets: Mapping[TopicPartition, StoredOffset],
    before_send: Callable[[], None],
    retention_ms: int | None,
    committer: Committer,
) -> CommitOutcome:
    member = committer.identity
    versions = _COMMIT_VERSIONS if retention_ms is None else _RETENTION_VERSIONS
    kept = BROKER_RETENTION if retention_ms is None else retention_ms
    # By id, where it is known and the broker knows it, too: a topic may have been created again with the same name.
    topics = {partition.topic for partition in offsets}
    ids = {topic: topic_id for topic, topic_id in (committer.topic_ids or {}).items() if topic in topics}
    if committer.is_epoch_member:
        versions = _TOPIC_ID_VERSIONS if ids.keys() == topics else _EPOCH_VERSIONS
    outcome = commit_offsets(
        connection, group, offsets, versions, before_send=before_send, retention_ms=kept, member=member, topic_ids=ids
    )
    for code in outcome.refused.values():
        # A coordinator whose followers are slow to store a commit answers with the latter; the commit may be stored.
        expect_coordinator(code, f"commit of group {group}", ErrorCode.REQUEST_TIMED_OUT)
        if member != NO_MEMBER:
            _require_membership(group, code, "committed", committer)
    return outcome


def _require_membership(group: str, code: int, done: str, committer: Committer) -> None:
    answer = membership_answer(code)
    if answer.awaits:
        raise RebalanceAwaited(f"group {group} is rebalancing, so nothing is {done}: {error_name(code)}")
    if answer.ends:
        committer.refused(code)
    if answer is MembershipAnswer.REPLACED:
        raise instance_in_use(f"group {group}: nothing is {done}: {error_name(code)}")
    if answer.ends:
        raise MembershipLost(f"group {group} has removed this member, so nothing is {done}: {error_name(code)}")


_NOBODY: Final = Committer(NO_MEMBER)


def _fetch(
    connection: BrokerConnection,
    group: str,
    wanted: Collection[TopicPartition] | None,
    committer: Committer = _NOBODY,
) -> StoredOffsets:
    versions = _FETCH_ALL_VERSIONS if wanted is None else _FETCH_VERSIONS
    if committer.is_epoch_member:
        stored = fetch_offsets(connection, group, wanted, _EPOCH_VERSIONS, committer.identity)
        _require_membership(group, stored.error, "fetched", committer)
    else:
        stored = fetch_offsets(connection, group, wanted, versions)
    for code in filter(None, (*stored.errors.values(), stored.error)):
        failure = f"offsets of group {group} cannot be read from Kafka"
        expect_coordinator(code, failure)
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return StoredOffsets({}, {}, code)
        # Old versions of the response have no field for an error of the whole request: each partition has it.
        if code in (ErrorCode.INVALID_GROUP_ID, stored.error):
            raise ProtocolError(f"{failure}: {error_name(code)}")
    # The JVM treats other errors as "no offset" and then resets the position (jvm-consumer.md#offsets-in-kafka):
    # records would be skipped. Such an error concerns one partition, such as one of a topic without DESCRIBE
    # permission, and only that one is not read.
    offsets = {p: stored.found[p] for p in (stored.found if wanted is None else wanted) if p not in stored.errors}
    return StoredOffsets(offsets, stored.errors, 0)


def _delete(
    connection: BrokerConnection,
    group: str,
    partitions: Collection[TopicPartition],
    before_send: Callable[[], None],
) -> dict[TopicPartition, int]:
    outcome, error = delete_offsets(connection, group, partitions, _DELETE_VERSIONS, before_send=before_send)
    expect_coordinator(error, f"offsets of group {group} cannot be deleted")
    if error == ErrorCode.GROUP_ID_NOT_FOUND:  # the coordinator forgets a group with its last offset
        return {}
    return dict.fromkeys(partitions, error) if error else outcome.refused
