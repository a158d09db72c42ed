"""BrokerOffsets: what brokers know of offsets: ranges of logs, partitions that exist, offsets that groups committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from zkconsumer.cluster.brokercatalog import UNLISTED, CatalogAnswer, PatientCatalog, ask_for_catalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, NoCommonVersion, ZkConsumerError, name_some
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.offsets.askedbrokers import AskedBrokers
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.brokerclient import EARLIEST, LATEST, metadata_version
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import list_groups
from zkconsumer.wire.errorcodes import NO_SUCH_TOPIC, error_name
from zkconsumer.wire.fields import is_encodable
from zkconsumer.wire.isolation import READ_UNCOMMITTED
from zkconsumer.wire.listoffsetsmessages import Offsets
from zkconsumer.wire.metadatamessages import TOPIC_ID_VERSIONS
from zkconsumer.wire.rules.retrypolicy import is_answer

if TYPE_CHECKING:
    from zkconsumer.group.zookeeper.groupreader import GroupReader
    from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
    from zkconsumer.offsets.offsetmessages import StoredOffsets

TIMEOUT_MS: Final = 6000
"""How long a broker may be silent."""
_COORDINATOR_ATTEMPTS: Final = 5
# ConsumerGroupCommand's (jvm-consumer.md#tools); the first question may create the offsets topic
_COORDINATOR_PAUSE_S: Final = 0.3  # it loads, or is being elected: brokers announce neither
_PROBLEMS_IN_ERROR: Final = 5

F = TypeVar("F")


class BrokersAnswer(NamedTuple, Generic[F]):
    """What brokers answered.

    Attributes:
        found: what is known.
        problems: why the rest is unknown, one sentence for each reason.
        error: why nothing is known; None if a broker answered.
        unknown: partitions whose offset exists, or may exist, and is not known.
    """

    found: F
    problems: tuple[str, ...] = ()
    error: ZkConsumerError | None = None
    unknown: frozenset[TopicPartition] = frozenset()

    def required(self) -> F:
        """What was found, for callers that need all of it.

        Raises:
            ZkConsumerError: there are problems; the error of the broker if none answered.
        """
        if self.error is not None:
            raise self.error
        if self.problems:
            raise ZkConsumerError("; ".join(self.problems[:_PROBLEMS_IN_ERROR]))
        return self.found


class ExistingTopics(NamedTuple):
    """Which of some topics exist.

    Attributes:
        partitions: of those that brokers describe.
        undescribed: those that may exist all the same, with the name of the error; all if no broker answers.
    """

    partitions: set[TopicPartition]
    undescribed: Mapping[str, str]

    def may_exist(self, partition: TopicPartition) -> bool:
        """True unless brokers know that the partition does not exist."""
        return partition in self.partitions or partition.topic in self.undescribed


def why_undescribed(topics: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence about :attr:`ExistingTopics.undescribed`, if there are such topics."""
    reasons = ", ".join(f"{topic} {error}" for topic, error in sorted(topics.items()))
    return (f"brokers do not describe topics: {reasons}; check their ACLs",) if reasons else ()


def unread_commits(
    failures: Mapping[str, ZkConsumerError],
) -> dict[str, BrokersAnswer[dict[TopicPartition, StoredOffset]]]:
    """What is known of the offsets in Kafka of groups whose coordinators cannot be asked, for the reason of each."""
    answers: dict[str, BrokersAnswer[dict[TopicPartition, StoredOffset]]] = {}
    for reason, names in _by_reason(failures).items():
        why = f"offsets in Kafka are unknown, those shown of {name_some(names)} are ZooKeeper's: {reason}"
        answers |= {name: BrokersAnswer({}, (why,), failures[name]) for name in names}
    return answers


class Logs(NamedTuple):
    """Logs of partitions.

    Attributes:
        starts: first offsets, as far as they are known.
        ends: offsets after the last records, likewise.
        unread: partitions that may exist, and whose end is not known: their leaders do not answer, or refuse.
    """

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    unread: frozenset[TopicPartition] = frozenset()

    def ranges(self) -> dict[TopicPartition, LogRange]:
        """The logs of which both are known."""
        return {p: LogRange(self.starts[p], end) for p, end in self.ends.items() if p in self.starts}


class BrokerOffsets:
    """Asks a cluster for offsets; silence of the brokers is reported, and raises nothing.

    A broker that does not answer is asked once in a round, so it costs one timeout and not one for each group or
    question. There is one connection to each broker, kept until :meth:`close`. One thread uses it.

    Args:
        config: how brokers are reached; logs end at their ends, whatever its ``isolation.level`` is.
        brokers: those to begin with, asked for at each question.
        timeout_ms: how long a broker may be silent, in ms.
        coordinator_attempts: how often a coordinator is asked that loads, or is being elected.
        displays: see :class:`~zkconsumer.cluster.brokercatalog.PatientCatalog`.

    Attributes:
        client: for other questions to the same brokers.
        catalog: describes topics, on the same connections.
        is_elsewhere: the brokers are named, and may have topics that are not in a ZooKeeper that is named, too.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Callable[[], Sequence[Broker]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        coordinator_attempts: int = _COORDINATOR_ATTEMPTS,
        displays: bool = False,
    ) -> None:
        self._coordinator_attempts = coordinator_attempts
        self._coordinators: dict[str, OffsetCoordinator] = {}
        self._knows_offsets_topic = False
        self.client = AskedBrokers.from_config(brokers, config, timeout_ms=timeout_ms)
        self.catalog = PatientCatalog(self.client, displays=displays)
        self.is_elsewhere: Final = config.bootstrap_servers is not None
        self.begin_round()

    def begin_round(self) -> None:
        """Ask brokers again that did not answer."""
        self.client.begin_round()

    def logs(self, partitions: Collection[TopicPartition], *, with_starts: bool = True) -> BrokersAnswer[Logs]:
        """Where logs start and end. The starts are read first: a log that is truncated meanwhile is still a range.

        A request names a partition once (Kafka refuses others as INVALID_REQUEST), so a leader gets two.
        """
        starts = self._offsets(partitions, EARLIEST, "log starts") if with_starts else BrokersAnswer({})
        ends = self._offsets(partitions, LATEST, "log ends")
        logs = Logs(_without_none(starts.found), _without_none(ends.found), ends.unknown)
        return BrokersAnswer(logs, (*ends.problems, *starts.problems), ends.error or starts.error)

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> BrokersAnswer[dict[TopicPartition, int | None]]:
        """The first offset whose record has that timestamp or a later one; None if no record has."""
        return self._offsets(partitions, timestamp_ms, "offsets of a time")

    def _offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, what: str
    ) -> BrokersAnswer[dict[TopicPartition, int | None]]:
        possible = [partition for partition in partitions if is_encodable(partition.topic)]
        impossible = [partition for partition in partitions if not is_encodable(partition.topic)]
        answer: BrokersAnswer[dict[TopicPartition, int | None]] = BrokersAnswer({})
        if possible:
            try:
                # A member of the JVM reads open transactions, so its offset may lie after the last stable one.
                offsets = self.client.list_offsets(dict.fromkeys(possible, timestamp), READ_UNCOMMITTED)
                answer = offsets_answer(offsets, what)
            except ZkConsumerError as error:
                answer = BrokersAnswer({}, (f"{what} are unknown: {error}",), error, frozenset(possible))
        if impossible:
            reason = f"{what} of {name_some(impossible)} are unknown: Kafka has no topics with such names"
            return answer._replace(problems=(*answer.problems, reason))
        return answer

    def existing(
        self, topics: Collection[str], others: Callable[[Collection[str]], Collection[str]] | None = None
    ) -> BrokersAnswer[ExistingTopics]:
        """Which of the topics exist.

        The question creates no topic (:func:`~zkconsumer.cluster.brokercatalog.ask_for_catalog`).

        Args:
            topics: names.
            others: returns those of some topics that ZooKeeper describes, which has those of these brokers: the others
                do not exist if one broker denies them. None if there is no such ZooKeeper.
        """
        if not topics:
            return BrokersAnswer(ExistingTopics(set(), {}))

        def denied(answer: CatalogAnswer) -> Collection[str]:
            names = answer.denied(topics)
            return others(names) if names and others is not None else names

        try:
            answer = self.catalog.ask(topics, denied)
        except ZkConsumerError as error:
            return BrokersAnswer(ExistingTopics(set(), dict.fromkeys(topics, str(error))), (str(error),), error)
        refused = answer.snapshot.undescribed & set(topics)
        unlisted = answer.unlisted(topics)
        undescribed = {topic: error_name(answer.failed[topic]) for topic in refused}
        undescribed |= dict.fromkeys(others(unlisted) if unlisted and others is not None else unlisted, UNLISTED)
        described = answer.snapshot.describe_topics(topics)
        partitions = {TopicPartition(t, n) for t, topic in described.items() for n in topic.partitions}
        return BrokersAnswer(ExistingTopics(partitions, undescribed), why_undescribed(undescribed))

    def has_offsets_topic(self, group_reader: GroupReader | None = None) -> bool:
        """True if there is a topic of offsets, or may be. The question creates none.

        Args:
            group_reader: of the ZooKeeper that is asked, unless brokers are named; None for the brokers.

        Raises:
            ZkConsumerError: no broker, or ZooKeeper, answers.
        """
        if group_reader is not None and not self.is_elsewhere:
            names = [OFFSETS_TOPIC]
            return bool(group_reader.describe_topics(names) or group_reader.undescribed(names))
        if not self._knows_offsets_topic:
            answer = self.catalog.ask([OFFSETS_TOPIC], _denied_offsets_topic, _ask_for_offsets_topic)
            # Who may not describe the topic may still ask the coordinator, which checks the permissions on the group.
            is_named = OFFSETS_TOPIC in (answer.snapshot.described.keys() | answer.snapshot.undescribed)
            self._knows_offsets_topic = is_named or (
                answer.snapshot.asked_for is None and self._coordinate(answer.snapshot.brokers)
            )
        return self._knows_offsets_topic

    def _coordinate(self, brokers: Iterable[Broker]) -> bool:
        """True if a broker has groups, or does not say so because of a missing permission.

        Raises:
            BrokerUnavailable: those that answer have none, and another one does not answer.
        """
        silent: BrokerUnavailable | None = None
        for broker in brokers:
            try:
                if self.client.ask(broker, list_groups):
                    return True
            except BrokerUnavailable as error:
                silent = error
            except NoCommonVersion:
                continue
            except ZkConsumerError:
                return True
        if silent is not None:
            raise silent
        return False

    def committed(
        self, groups: Mapping[str, Collection[TopicPartition] | None], *, with_others: bool = False
    ) -> dict[str, BrokersAnswer[dict[TopicPartition, StoredOffset]]]:
        """What groups have committed to Kafka, as their coordinators report it, by group.

        A broker that is asked for a coordinator creates the topic of offsets. A group with an impossible name has none.

        Args:
            groups: partitions to ask for, by name of the group; None for all, which brokers before 0.10.2 refuse.
            with_others: also of all other partitions, if the brokers can list them.
        """
        committed: dict[str, BrokersAnswer[dict[TopicPartition, StoredOffset]]] = dict.fromkeys(
            groups, BrokersAnswer({})
        )
        wanted: dict[str, list[TopicPartition] | None] = {}
        for group, partitions in groups.items():
            possible = [partition for partition in partitions or () if is_encodable(partition.topic)]
            if (possible or with_others or partitions is None) and is_encodable(group):
                wanted[group] = None if partitions is None else possible

        def ask(group: str, coordinator: OffsetCoordinator) -> StoredOffsets:
            partitions = wanted[group]
            if partitions is None:
                return coordinator.fetch_all()
            return (coordinator.fetch_known if with_others else coordinator.fetch)(partitions)

        stored, unknown = self.ask_coordinators(wanted, ask)
        committed |= {group: committed_answer(offsets) for group, offsets in stored.items()}
        return committed | unread_commits(unknown)

    def ask_coordinators(
        self, groups: Collection[str], question: Callable[[str, OffsetCoordinator], F]
    ) -> tuple[dict[str, F], dict[str, ZkConsumerError]]:
        """Ask the coordinator of each group: the answers, and the errors of the others, by group.

        While a coordinator is being found or loads, or its host refuses connections, its group is asked for again with
        all others of that kind.
        """
        from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator

        answers: dict[str, F] = {}
        unknown: dict[str, ZkConsumerError] = {}
        left = list(groups)
        for attempt in range(self._coordinator_attempts):
            if attempt and left:
                time.sleep(_COORDINATOR_PAUSE_S)
            for group in left:
                unknown.pop(group, None)
                coordinator = self._coordinators.setdefault(group, OffsetCoordinator(self.client, group))
                try:
                    answers[group] = question(group, coordinator)
                except ZkConsumerError as error:
                    unknown[group] = error
            left = [group for group in left if is_answer(unknown.get(group))]
        return answers, unknown

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self.client.close()


def _ask_for_offsets_topic(connection: BrokerConnection, topics: Collection[str] | None) -> CatalogAnswer:
    """Ask about the topic of offsets; brokers before 2.8, which create it when it is named, about all topics.

    These leave out a topic that may not be described.
    """
    creates_none = metadata_version(connection) >= TOPIC_ID_VERSIONS[0]
    return ask_for_catalog(connection, topics if creates_none else None)


def _denied_offsets_topic(answer: CatalogAnswer) -> Collection[str]:
    return answer.denied(None if answer.snapshot.asked_for is None else [OFFSETS_TOPIC])


def offsets_answer(answer: Offsets, what: str) -> BrokersAnswer[dict[TopicPartition, int | None]]:
    """The brokers' answer; each reason for a missing offset is given once.

    Args:
        answer: the offsets that leaders reported, and the errors of the other partitions.
        what: they were asked for, in the plural.
    """
    reasons = answer.reasons().items()
    return BrokersAnswer(
        answer.found,
        tuple(f"{what} of {name_some(partitions)} are unknown: {why}" for why, partitions in reasons),
        unknown=frozenset(partition for partition, code in answer.errors.items() if code not in NO_SUCH_TOPIC),
    )


def committed_answer(stored: StoredOffsets) -> BrokersAnswer[dict[TopicPartition, StoredOffset]]:
    """The offsets that a coordinator reported, and why others are missing."""
    return BrokersAnswer(
        {partition: offset for partition, offset in stored.found.items() if offset.offset is not None},
        tuple(f"the offset of {p} in Kafka cannot be read: {error_name(code)}" for p, code in stored.errors.items()),
        unknown=frozenset(stored.errors),
    )


def _without_none(offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


def _by_reason(errors: Mapping[str, ZkConsumerError]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for group, error in errors.items():
        reasons.setdefault(str(error).replace(f"group {group}", "the group"), []).append(group)
    return reasons
