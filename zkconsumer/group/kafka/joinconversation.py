"""JoinConversation: one member's JoinGroup and SyncGroup requests, and the assignment if the member leads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from zkconsumer.cluster.rules.clustercatalog import ClusterSource, read_known
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ProtocolError, ZkConsumerError
from zkconsumer.group.kafka.describedmembers import describe_classic
from zkconsumer.group.kafka.groupmessages import JoinAnswer, JoinSettings, join_group, sync_group
from zkconsumer.group.kafka.rules.generationmember import JoinIntent
from zkconsumer.group.kafka.rules.strategies import STRATEGIES, OwnStrategy, Strategy
from zkconsumer.group.kafka.subscriptionbytes import decode_subscription, encode_assignment, encode_subscription
from zkconsumer.group.rules.partitionassignor import user_data_of
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.describegroups import strategy_in_use
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import CoordinatorClient, CoordinatorLocation, expect_coordinator

LedTopics = Mapping[str, tuple[int, ...]]
"""Topic to its partition numbers, for every topic that a member of the group subscribes to."""


class Synchronised(NamedTuple):
    """The end of a rebalance: an error code, else this member's assignment as bytes."""

    code: int
    assignment: bytes = b""


class JoinConversation:
    """Joins and synchronises. One thread uses it; any other thread may call :meth:`interrupt` and :meth:`close`.

    Args:
        config: the consumer's properties.
        settings: see :class:`JoinSettings`.
        strategies: the member's strategies, preferred ones first.
        cluster: where the leader reads partitions from.
        location: where the coordinator is, shared with the member's other clients.
        pool: connections that these clients share.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        settings: JoinSettings,
        strategies: Sequence[Strategy],
        cluster: ClusterSource,
        location: CoordinatorLocation,
        pool: ConnectionPool | None = None,
    ) -> None:
        self._settings = settings
        self._strategies = strategies
        self._cluster = cluster
        self._connect: Final[Callable[[], CoordinatorClient]] = lambda: CoordinatorClient(
            BrokerClient.from_config(cluster.live_brokers, config, pool=pool, waits_long=True), settings.group, location
        )
        self._client = self._connect()
        self._interrupted: CoordinatorClient | None = None
        self._closed = False
        self._wanted: frozenset[str] = frozenset()
        self._led: LedTopics = {}

    def interrupt(self) -> None:
        """End a request in progress, whose coordinator may be gone; the next request makes another connection."""
        self._interrupted = client = self._client
        client.close()

    def close(self) -> None:
        """End a request in progress, and refuse later ones. Idempotent."""
        self._closed = True
        self._client.close()

    def join(
        self,
        intent: JoinIntent,
        weights: Mapping[str, int],
        reason: str,
        *,
        id_given: Callable[[str], None],
        before_send: Callable[[], None],
    ) -> JoinAnswer:
        """Join, and again with the member id that the coordinator gives; returns when all members have joined.

        Args:
            intent: what the member declares.
            weights: subscribed topic to the number of streams for which the member counts.
            reason: why the member joins, for the broker's log.
            id_given: called with the member id, before the second request.
            before_send: called when the coordinator is connected, right before each request.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
            ProtocolError: no common version, or an answer is malformed.
            AssignorFailed: the application's assignor cannot write its user data.
        """
        if self._interrupted is self._client:
            self._client = self._connect()
            if self._closed:  # checked after the client is in its place: either this line sees it, or close() did
                self._client.close()
        protocols = {strategy.name: _subscription(strategy, weights, intent) for strategy in self._strategies}

        def ask(member_id: str) -> JoinAnswer:
            def question(connection: BrokerConnection) -> JoinAnswer:
                before_send()
                answer = join_group(connection, self._settings, member_id, protocols, reason)
                expect_coordinator(answer.code, "JoinGroup")
                return answer

            return self._client.ask(question)

        answer = ask(intent.member_id)
        if answer.code == ErrorCode.MEMBER_ID_REQUIRED:
            id_given(answer.member_id)
            answer = ask(answer.member_id)  # once: a coordinator that asks for the id again is reported
        return answer

    def synchronise(self, answer: JoinAnswer) -> Synchronised:
        """Send the assignment, if this member leads, and wait for this member's part; raises as :meth:`join`.

        Raises:
            ZkConsumerError: no broker describes the topics.
            AssignorFailed: this member leads, and the application's assignor failed.
        """
        assignments = self._lead(answer)
        member = CommitIdentity(answer.member_id, answer.generation, self._settings.instance_id)

        def question(connection: BrokerConnection) -> Synchronised:
            code, assignment = sync_group(connection, self._settings, member, answer.strategy, assignments)
            expect_coordinator(code, "SyncGroup")
            return Synchronised(code, assignment)

        return self._client.ask(question)

    def _lead(self, answer: JoinAnswer) -> dict[str, bytes]:
        self._wanted, self._led = frozenset(), {}
        if not answer.leads:
            return {}
        strategy = {**STRATEGIES, **{own.name: own for own in self._strategies}}.get(answer.strategy)
        if strategy is None:
            raise ProtocolError(f"group {self._settings.group}: the coordinator chose strategy {answer.strategy!r}")
        is_own = isinstance(strategy, OwnStrategy)
        members = [decode_subscription(strategy.name, *joined, is_own=is_own) for joined in answer.members]
        self._wanted = frozenset().union(*(member.topics for member in members))
        self._led = self._describe(self._wanted)
        if answer.skips:
            return {}
        assigned = strategy.assign(members, self._led)
        return {member_id: encode_assignment(partitions) for member_id, partitions in assigned.items()}

    def strategy_in_use(self) -> str:
        """Name of the strategy that the other members use; empty if it cannot be found out."""
        try:
            return self._client.ask(lambda connection: strategy_in_use(connection, self._settings.group))
        except ZkConsumerError:
            return ""

    def unassigned(self, topics: Collection[str]) -> frozenset[TopicPartition]:
        """Partitions of these topics, and of those that this member leads, that no member of the group has.

        Raises:
            ZkConsumerError: the coordinator does not describe the group, or no broker the topics.
        """
        code, group = self._client.ask(lambda connection: describe_classic(connection, self._settings.group))
        if code:
            raise ProtocolError(f"group {self._settings.group} cannot be described: {error_name(code)}")
        described = self._describe(self._wanted.union(topics))
        everything = {TopicPartition(topic, number) for topic, numbers in described.items() for number in numbers}
        return frozenset(everything.difference(*(member.assigned for member in group.members)))

    def led_topics_differ(self) -> bool:
        """True if topics or partitions have changed that this member assigned as the leader of the last generation.

        Raises:
            ZkConsumerError: no broker describes the topics.
        """
        return bool(self._wanted) and self._describe(self._wanted) != self._led

    def _describe(self, topics: frozenset[str]) -> LedTopics:
        described = read_known(self._cluster, topics).describe_topics(topics)
        return {name: topic.partitions for name, topic in described.items()}

    @property
    def security(self) -> BrokerSecurity:
        """Settings of the connections, for messages."""
        return self._client.security


def _subscription(strategy: Strategy, weights: Mapping[str, int], intent: JoinIntent) -> bytes:
    own_data = user_data_of(strategy.assignor, weights) if isinstance(strategy, OwnStrategy) else None
    return encode_subscription(strategy.name, weights, intent, own_data)
