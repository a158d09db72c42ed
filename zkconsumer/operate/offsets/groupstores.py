"""What the stores hold of a group before a tool writes: offset znodes, offsets in Kafka, owners, log ranges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeVar

from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.config.serveraddresses import server_address
from zkconsumer.errors import (
    BrokerUnavailable,
    LeaderUnknown,
    ProtocolError,
    WriteRefused,
    ZkConsumerError,
    name_some,
)
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets, BrokersAnswer, ExistingTopics
from zkconsumer.operate.offsets.groupdeletion import delete_group
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.apiversions import LIST_OFFSETS
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient, fetch_metadata
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import broker_release, broker_settings
from zkconsumer.wire.errorcodes import error_name, is_refusal
from zkconsumer.wire.listoffsetsmessages import LIST_OFFSETS_VERSIONS
from zkconsumer.wire.permissions import unreadable_topics
from zkconsumer.wire.rules.describedgroup import DEAD, KafkaGroup
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, partition_named
from zkconsumer.zookeeper.session import ZkSession

Store = Literal["zookeeper", "kafka", "both"]

_NAMED: Final = 3
"""Brokers in a command."""
_COORDINATOR_ATTEMPTS: Final = 20

_MOST_IN_REQUEST: Final = 1000
"""Partitions in a request that writes; the coordinator appends it to its log as one batch, whose size is limited."""

T = TypeVar("T")


def in_requests(offsets: Sequence[T]) -> Iterator[Sequence[T]]:
    """The offsets to commit or to delete in parts that are small enough for one request each."""
    return (offsets[start : start + _MOST_IN_REQUEST] for start in range(0, len(offsets), _MOST_IN_REQUEST))


def partitions_to_hold(
    session: ZkSession, cluster: Cluster | None, group: str, extra: Iterable[TopicPartition] = ()
) -> set[TopicPartition]:
    """Every partition of the group's topics: those that exist, that it has an offset of, or that it ever owned.

    Args:
        session: an open session.
        cluster: where partitions are looked up that exist, if brokers answer; None for ZooKeeper.
        group: name of the group.
        extra: other partitions to hold.
    """
    partitions = set(extra)
    if session.is_absent:
        return partitions
    paths = GroupPaths(group)
    topics = {partition.topic for partition in partitions}
    topics |= set(session.children(paths.owners) or ()) | set(session.children(paths.offsets) or ())
    group_reader = GroupReader(session) if cluster is None else cluster.open_reader(session, without_brokers=True)
    for topic, numbers in group_reader.partitions(sorted(topics)).items():
        partitions |= {TopicPartition(topic, number) for number in numbers}
    parents = {
        path: topic for topic in sorted(topics) for path in (paths.owner_topic(topic), paths.offset_topic(topic))
    }
    for path, names in session.children_of(parents).existing().items():
        partitions |= {TopicPartition(parents[path], n) for name in names if (n := partition_named(name)) is not None}
    return partitions


def broker_list(brokers: Sequence[Broker]) -> str:
    """Some of these brokers as ``--bootstrap-server`` takes them.

    >>> broker_list([Broker(0, "b0", 9092), Broker(1, "::1", 9092)])
    'b0:9092,[::1]:9092'
    """
    return ",".join(server_address(broker.host, broker.port) for broker in brokers[:_NAMED])


class Cluster:
    """Questions of one command to the brokers, which fail if not all is answered; and what it writes to Kafka.

    Each question asks brokers again that did not answer the one before. One thread uses it.

    Args:
        config: how brokers are reached.
        brokers: to begin with.
        session: where the topic of offsets is looked for, so that asking for a coordinator does not create it; None
            where the brokers do not belong to this ZooKeeper.

    Attributes:
        offsets: the same brokers, for callers that take what is known.
        servers: some of the brokers, as ``--bootstrap-server`` takes them.
    """

    def __init__(self, config: ConsumerConfig, brokers: Sequence[Broker], session: ZkSession | None) -> None:
        self.config = config
        self.servers = broker_list(brokers)
        self.offsets = BrokerOffsets(config, lambda: brokers, coordinator_attempts=_COORDINATOR_ATTEMPTS)
        self._session = session

    @classmethod
    def of(cls, session: ZkSession, config: ConsumerConfig) -> Cluster:
        """The brokers of ``bootstrap.servers`` where it is set, else those that are registered in ZooKeeper."""
        if config.bootstrap_servers is not None:
            return cls(config, bootstrap_brokers(config.bootstrap_servers), None)
        return cls(config, GroupReader(session, config.security_protocol).live_brokers(), session)

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        self.offsets.close()

    def open_reader(self, session: ZkSession, *, without_brokers: bool = False) -> GroupReader:
        """What describes topics, asking the same brokers; see :func:`open_group_reader`."""
        catalog = self._asked().catalog
        return open_group_reader(session, self.config, without_brokers=without_brokers, catalog=catalog)

    def log_ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Log start and end of each partition.

        Raises:
            ZkConsumerError: no broker answers, or not for all partitions.
        """
        return self._asked().logs(partitions).required().ranges()

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int, *, approximate: bool
    ) -> dict[TopicPartition, int | None]:
        """The first offset whose record has that timestamp or a later one; None if no record has.

        Brokers before 0.10.1 know the time of whole segments only: with ``approximate`` theirs is the beginning of the
        last segment that was last written before, which may be many records early.

        Raises:
            WriteRefused: a broker is so old, and ``approximate`` is off.
            ZkConsumerError: as for :meth:`log_ranges`.
        """
        old = self._by_segment()
        if old and not approximate:
            raise WriteRefused(
                f"{name_some(sorted(old))} answers by log segment, as brokers before 0.10.1 do, so offsets by time may "
                "be many records early; give --approximate to accept that"
            )
        offsets = self._asked().offsets_at(partitions, timestamp_ms).required()
        early = [partition for partition, offset in offsets.items() if offset is None]
        if not old or not early:
            return offsets
        # Of such a broker, none means that all segments are later: the time is before the log start.
        leaders = self._ask(lambda client: client.metadata({partition.topic for partition in early})).leaders
        before = [partition for partition in early if leaders.get(partition) in old]
        return offsets | self._asked().logs(before).required().starts

    def _by_segment(self) -> set[Broker]:
        def version(connection: BrokerConnection) -> int:
            return connection.version(LIST_OFFSETS, "ListOffsets", *LIST_OFFSETS_VERSIONS)

        def ask(client: BrokerClient) -> set[Broker]:
            brokers = client.metadata(()).brokers.values()
            return {broker for broker in brokers if client.ask(broker, version) == 0}

        return self._ask(ask)

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """Offsets of the group that Kafka stores.

        Raises:
            ZkConsumerError: they cannot be read.
        """
        return self._committed(group, partitions) if partitions else {}

    def committed_all(self, group: str, named: Collection[TopicPartition] = ()) -> dict[TopicPartition, StoredOffset]:
        """Every offset of the group that Kafka stores; raises as :meth:`committed`, also by brokers before 0.10.2.

        Brokers do not list topics that this client may not describe. So partitions that may have an offset are to be
        ``named``: one that is not listed is asked for, and one that may not be read is an error.
        """
        listed = self._committed(group, None)
        return {**listed, **self.committed(group, [p for p in named if p not in listed])}

    def committed_known(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """As :meth:`committed_all`; from brokers before 0.10.2 the offsets of ``partitions`` alone."""
        return self._committed(group, partitions, with_others=True)

    def committed_by_groups(
        self, groups: Mapping[str, Collection[TopicPartition]]
    ) -> dict[str, BrokersAnswer[dict[TopicPartition, StoredOffset]]]:
        """As :meth:`committed_known` of many groups, with what is unknown of each; empty if Kafka stores no offsets.

        Raises:
            ZkConsumerError: it is unknown whether Kafka stores offsets.
        """
        return self._asked().committed(groups, with_others=True) if self._has_offsets_topic() else {}

    def _committed(
        self, group: str, partitions: Collection[TopicPartition] | None, *, with_others: bool = False
    ) -> dict[TopicPartition, StoredOffset]:
        if not self._has_offsets_topic():
            return {}
        return self._asked().committed({group: partitions}, with_others=with_others)[group].required()

    def describe(self, group: str) -> KafkaGroup:
        """State and members of the group in Kafka; dead where Kafka has none.

        Raises:
            ZkConsumerError: no coordinator answers.
        """
        (described,) = self.describe_all([group]).values()
        if isinstance(described, ZkConsumerError):
            raise described
        return described

    def describe_all(self, groups: Collection[str]) -> dict[str, KafkaGroup | ZkConsumerError]:
        """As :meth:`describe` of many groups, by name; in place of a group the error of its coordinator.

        Raises:
            ZkConsumerError: it is unknown whether Kafka stores offsets.
        """
        if not self._has_offsets_topic():
            return dict.fromkeys(groups, KafkaGroup(DEAD))

        described, unknown = self._asked().ask_coordinators(groups, lambda _, coordinator: coordinator.describe())
        return {**described, **unknown}

    def unwritable(self, group: str, topics: Collection[str]) -> list[str] | None:
        """What is not permitted of a commit, one phrase each; None if the brokers do not report permissions.

        Raises:
            ZkConsumerError: no broker or no coordinator answers.
        """
        denied = self._ask(lambda client: client.ask_any(lambda connection: unreadable_topics(connection, topics)))
        if denied is None or not self._has_offsets_topic():
            return None if denied is None else [f"topic {topic}" for topic in sorted(denied)]
        allowed = self._coordinated(group, lambda coordinator: coordinator.may_commit())
        return [f"topic {topic}" for topic in sorted(denied)] + ([f"group {group}"] if allowed is False else [])

    def cluster_id(self) -> str | None:
        """The id of the cluster; None before 0.10.1.

        Raises:
            ZkConsumerError: no broker answers.
        """
        return self._ask(lambda client: client.ask_any(lambda connection: fetch_metadata(connection, ()).cluster_id))

    def existing(self, topics: Collection[str]) -> BrokersAnswer[ExistingTopics]:
        """Which of these topics exist; those that brokers do not describe are a problem of the answer.

        A topic that brokers deny counts as deleted as :class:`~zkconsumer.cluster.brokercatalog.PatientCatalog` has it;
        one that ZooKeeper does not have either does so at once.
        """
        session = self._session
        return self._asked().existing(topics, None if session is None else GroupReader(session).partitions)

    def partitions(self, topics: Collection[str]) -> set[TopicPartition]:
        """Every partition of the topics; those of a topic that does not exist are absent.

        Raises:
            ZkConsumerError: no broker answers, or the brokers do not describe a topic that may exist.
        """
        return self.existing(topics).required().partitions

    def releases(self) -> dict[int, tuple[int, ...]]:
        """The release of each live broker, by its id; one that does not answer is absent.

        Raises:
            ZkConsumerError: no broker answers.
        """
        return self._of_each_broker(lambda client, broker: client.ask(broker, broker_release))

    def settings(self, names: Collection[str]) -> dict[int, dict[str, str | None]]:
        """Settings of each live broker, by its id; one that does not report them is absent.

        Raises:
            ZkConsumerError: no broker answers.
        """
        return self._of_each_broker(
            lambda client, broker: client.ask(broker, lambda connection: broker_settings(connection, broker.id, names))
        )

    def _of_each_broker(self, question: Callable[[BrokerClient, Broker], T]) -> dict[int, T]:
        def ask(client: BrokerClient) -> dict[int, T]:
            answers: dict[int, T] = {}
            for number, broker in sorted(client.metadata(()).brokers.items()):
                with suppress(BrokerUnavailable, ProtocolError):
                    answers[number] = question(client, broker)
            return answers

        return self._ask(ask)

    def offsets_topic_leaders(self) -> dict[TopicPartition, Broker | None]:
        """The leader of each partition of the topic of offsets, None where there is none; empty without the topic.

        Raises:
            LeaderUnknown: brokers have no metadata of the topic yet, for example because a commit has just created it.
            ZkConsumerError: no broker answers, or the topic may not be described.
        """
        if not self._has_offsets_topic():
            return {}
        metadata = self._ask(lambda client: client.metadata([OFFSETS_TOPIC]))
        for topic, code in metadata.failed_topics.items():
            if is_refusal(code):
                raise ZkConsumerError(f"topic {topic} cannot be described: {error_name(code)}; see its ACLs")
            raise LeaderUnknown(f"topic {topic} has no leader yet: {error_name(code)}; check its brokers")
        return {**dict.fromkeys(metadata.leaderless), **metadata.leaders}

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, StoredOffset],
        *,
        retention_ms: int | None = None,
        before_send: Callable[[], None] = lambda: None,
    ) -> dict[TopicPartition, str]:
        """Commit offsets to Kafka; returns why some were refused.

        Args:
            group: consumer group.
            offsets: by partition.
            retention_ms: how long they are kept, in ms; None for the brokers' setting.
            before_send: called right before each attempt to send them; its exception is passed on.

        Raises:
            ZkConsumerError: no coordinator answers; whether they are stored is unknown.
        """
        outcome = self._coordinated(
            group, lambda coordinator: coordinator.commit(offsets, retention_ms=retention_ms, before_send=before_send)
        )
        return {partition: error_name(code) for partition, code in outcome.refused.items()}

    def can_delete(self, group: str) -> bool:
        """True if the group's coordinator can delete offsets; raises as :meth:`committed`."""
        return self._coordinated(group, lambda coordinator: coordinator.can_delete())

    def delete(
        self, group: str, partitions: Collection[TopicPartition], *, before_send: Callable[[], None] = lambda: None
    ) -> dict[TopicPartition, str]:
        """Delete offsets from Kafka; returns why some were refused. Idempotent; ``before_send`` as in :meth:`commit`.

        Raises:
            ZkConsumerError: no coordinator answers, so it is unknown what is deleted; or it is a broker before 2.4.
        """
        refused = self._coordinated(group, lambda coordinator: coordinator.delete(partitions, before_send=before_send))
        return {partition: error_name(code) for partition, code in refused.items()}

    def delete_group(self, group: str) -> None:
        """Delete a group without members from the brokers. Idempotent.

        Raises:
            ZkConsumerError: it has members, no coordinator answers, or it is a broker before 1.1.
        """
        self._coordinated(group, lambda coordinator: delete_group(coordinator.coordinator, group))

    def _has_offsets_topic(self) -> bool:
        return self._asked().has_offsets_topic(None if self._session is None else GroupReader(self._session))

    def _coordinated(self, group: str, question: Callable[[OffsetCoordinator], T]) -> T:
        answers, unknown = self._asked().ask_coordinators([group], lambda _, coordinator: question(coordinator))
        for error in unknown.values():
            raise error
        return answers[group]

    def _ask(self, question: Callable[[BrokerClient], T]) -> T:
        return question(self._asked().client)

    def _asked(self) -> BrokerOffsets:
        """The brokers, for another question."""
        self.offsets.begin_round()
        return self.offsets
