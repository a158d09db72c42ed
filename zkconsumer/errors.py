"""Every error that zkconsumer raises, as one tree; adapters translate foreign errors at their boundary.

::

    ZkConsumerError
    ├── ConfigError                 a property is missing, malformed or out of range
    ├── UsageError                  a call that is not allowed: second stream creation, two threads on one stream
    ├── RetriableError              trying again later may succeed
    │   ├── ZooKeeperUnavailable    no connection, or it broke during the operation
    │   ├── StrategyConflict        members of the group assign partitions in different ways
    │   ├── OwnershipConflict       another member holds a partition that this consumer should own
    │   ├── ShareChanged            the partitions that this consumer should own have changed meanwhile
    │   ├── CoordinatorUnknown      no coordinator has assigned anything to this consumer yet
    │   ├── RebalanceAwaited        a rebalance of the group is in progress
    │   ├── OwnershipAwaited        a commit concerns a partition that this consumer does not own at the moment
    │   ├── MemberRefused           the coordinator does not let this consumer own partitions
    │   ├── LeaseLapsed             not sent or planned: the group has been silent for most of the session timeout
    │   ├── RegistrationLost        another client deleted this consumer's registration
    │   ├── CoordinatorMoved        another broker coordinates the group's offsets now
    │   ├── LeaderUnknown           a partition has no leader at the moment
    │   ├── ThreadLimit             the system does not allow this process another thread
    │   └── BrokerUnavailable       a broker refused, closed or timed out
    │       └── AuthenticationFailed  a broker and this consumer could not authenticate each other
    ├── MembershipLost              the group has removed this consumer
    │   └── SessionExpired          the ZooKeeper session that the operation belonged to has expired
    ├── AssignorFailed              the application's own assignor raised an exception, or its result cannot be used
    ├── WriteRefused                a guard of a tool that writes refuses; nothing was written
    ├── ZooKeeperRefused            no permission, a quota is used up, or the server is read-only
    ├── ChrootMissing               the path after the slash of zookeeper.connect does not exist
    ├── ConsumerIdInUse             another live consumer registered the same consumer id
    ├── InstanceIdInUse             another consumer has taken the same group.instance.id; this one has left its group
    ├── GroupMissing                a tool was asked for a group that does not exist
    ├── GroupMigrated               the group's offsets were moved to another store; its consumers continue there
    ├── RebalanceFailed             all attempts of a rebalance failed
    ├── NotLeader                   the broker that was asked does not lead the partition; another one does
    ├── NotOwner                    a commit concerns a partition that this consumer does not own
    ├── GenerationEnded             a commit carries positions of an assignment that a newer one has replaced
    ├── CommitRefused               the application could not make durable what a commit would cover
    ├── OffsetsNotStored            the store did not accept some of the offsets of a commit
    ├── MalformedZnode              a znode has content that its readers do not expect
    ├── TopicUnreadable             brokers refuse to serve a topic, for a reason that waiting does not remove
    │   └── TopicAuthorizationFailed  this consumer lacks a permission on a topic
    ├── GroupAuthorizationFailed    this consumer lacks a permission on its group, whose offsets Kafka stores
    ├── OffsetOutOfRange            the broker no longer (or not yet) has the requested offset
    ├── RecordTooLarge              larger than fetch.max.bytes, or than decompressed.max.bytes once decompressed
    ├── CorruptRecord               bytes from a broker fail their checksum or contradict themselves
    ├── DecoderUnavailable          the decoder's library cannot be loaded
    ├── ProtocolError               a broker's answer does not fit the protocol version in use
    │   └── NoCommonVersion         a broker is too old, or too new, for a request
    ├── ConsumerTimeout             nothing arrived within consumer.timeout.ms; the stream stays usable
    │   └── WokenUp                 wakeup() ended the wait of a stream, which stays usable
    ├── StreamIdle                  a stream was left unread for max.stream.idle.ms; its consumer left the group
    ├── ConsumerClosed              the connector was shut down
    └── SandboxError                a sandbox server could not be provided

The type of an error shows whether the operation may be repeated: ``isinstance(error, RetriableError)``. An operation
that depends on no membership or session, such as a read, may also be repeated after their end:
``zkconsumer.errors.TRANSIENT``. An error that is repeated until an operator acts is raised after some attempts:
``zkconsumer.errors.NEEDS_AN_OPERATOR``.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Self

from zkconsumer.model import Broker, TopicPartition


def name_some(things: Collection[object], limit: int = 5) -> str:
    """The first ``limit`` things and the number of the others, for a message: ``a, b and 3 more``."""
    more = f" and {len(things) - limit} more" if len(things) > limit else ""
    return ", ".join(str(thing) for thing in itertools.islice(things, limit)) + more


class ZkConsumerError(Exception):
    """Base of all errors raised by zkconsumer."""


class MissingProperty(str):
    """A violation: a property has no value; ``property_name`` is its name."""

    property_name: str

    def __new__(cls, name: str, why: str = "") -> Self:
        """The sentence, which ``why`` ends."""
        made = super().__new__(cls, f"{name} is missing{why}")
        made.property_name = name
        return made


class ConfigError(ZkConsumerError):
    """One or more properties cannot be used.

    ``violations`` holds one sentence for each, so that a user can fix all of them at once.
    """

    def __init__(self, violations: str | Sequence[str]) -> None:
        self.violations: tuple[str, ...] = (violations,) if isinstance(violations, str) else tuple(violations)
        super().__init__("; ".join(self.violations))


class UsageError(ZkConsumerError):
    """A call that is not allowed in the present state of the object."""


class RetriableError(ZkConsumerError):
    """The same call may succeed later, without a change in this process or its configuration."""


class ZooKeeperUnavailable(RetriableError):
    """There is no usable connection to ZooKeeper, or it was lost during an operation."""


class OwnershipConflict(RetriableError):
    """Partitions that this consumer should own are still held by other members.

    ``holders`` maps each such partition to the consumer thread that its owner znode names.
    """

    def __init__(self, holders: Mapping[TopicPartition, str]) -> None:
        self.holders = dict(holders)
        held = [f"{partition} by {owner}" for partition, owner in sorted(holders.items())]
        super().__init__(f"still owned by other members: {name_some(held)}")


class ThreadLimit(RetriableError):
    """The system does not allow this process another thread, which may change when threads or processes end."""


class StrategyConflict(RetriableError):
    """Members of the group assign partitions in different ways; nothing is claimed until they agree."""


class AssignorFailed(ZkConsumerError):
    """The application's own assignor raised an exception, or returned an assignment that cannot be used.

    The message names partitions and members. Nothing is assigned by such a result. The member that leads the group asks
    the assignor again; its streams raise this error after four attempts.
    """


class ShareChanged(RetriableError):
    """The partitions that this consumer should own have changed since it was asked to claim them.

    Where they are claimed in more than one transaction, some may be claimed; the next release undoes that. The consumer
    obeys the newer command of the group's coordinator at once.
    """


class CoordinatorUnknown(RetriableError):
    """No coordinator of the group has assigned anything to this consumer yet (``group.protocol=coordinator``)."""


class RebalanceAwaited(RetriableError):
    """A rebalance of the group is in progress: members still join, or are being assigned.

    With ``group.protocol`` ``kafka`` or ``consumer`` the group's coordinator ends it after the rebalance timeout at the
    latest (``max.poll.interval.ms``).
    """


class OwnershipAwaited(RetriableError):
    """A commit concerns records of partitions that this consumer does not own at the moment; everything else is stored.

    When the rebalance in progress has ended, this consumer owns them again, or another member does.
    """


class MemberRefused(RetriableError):
    """The coordinator of the group does not let this member own partitions, or join."""


class LeaseLapsed(RetriableError):
    """A commit was not sent, or a batch not planned, since the group has been silent for most of the session timeout.

    Another member may own the partitions by now.
    """


class RegistrationLost(RetriableError):
    """Another client deleted this consumer's ``ids`` znode, or its command; it releases all and registers again.

    Its session znode exists, so it can still write; without that its membership is over (:class:`SessionExpired`).
    """


class CoordinatorMoved(RetriableError):
    """The broker that was asked is not, or not yet, the coordinator of the group."""


class LeaderUnknown(RetriableError):
    """The brokers report no leader for a partition at the moment, or different ones."""


class BrokerUnavailable(RetriableError):
    """A broker refused the connection, closed it, or did not answer in time."""


class AuthenticationFailed(BrokerUnavailable):
    """A broker and this consumer could not authenticate each other: certificate, password or token.

    The connection is tried again as with an unavailable broker, since passwords and certificates are changed on one
    side first. A stream raises this error after a few failures, and at each later one; to keep waiting, iterate again.
    """


class NotLeader(ZkConsumerError):
    """The broker that was asked does not lead the partition; ``leader`` does, so ask that one."""

    def __init__(self, message: str, leader: Broker) -> None:
        self.leader = leader
        super().__init__(message)


class MembershipLost(ZkConsumerError):
    """The group has removed this consumer, so the operation changed nothing; it joins again by itself."""


class SessionExpired(MembershipLost):
    """The ZooKeeper session of this operation has expired, or its znode was deleted; nothing was changed."""


TRANSIENT: Final = (RetriableError, MembershipLost)
"""Errors after which a call that depends on no membership or session may succeed later: another one follows."""


class HoldReason(str):
    """Why a write is refused: a tool holds the group. Its hold ends with its session at the latest, also if it died."""

    __slots__ = ()


class WriteRefused(ZkConsumerError):
    """A guard of a tool that writes offsets refuses: members live, or another client is at work; nothing was written.

    ``reasons`` holds one sentence for each. ``is_held`` is True if all are a :class:`HoldReason`: the same call may
    succeed later.
    """

    def __init__(self, reasons: str | Sequence[str]) -> None:
        self.reasons: tuple[str, ...] = (reasons,) if isinstance(reasons, str) else tuple(reasons)
        self.is_held = bool(self.reasons) and all(isinstance(reason, HoldReason) for reason in self.reasons)
        super().__init__("; ".join(self.reasons))


class ZooKeeperRefused(ZkConsumerError):
    """ZooKeeper does not allow an operation: no permission, a quota is used up, or the server is read-only."""


class ChrootMissing(ZkConsumerError):
    """The chroot of ``zookeeper.connect`` does not exist; the consumer never creates it, like the JVM's."""


class ConsumerIdInUse(ZkConsumerError):
    """Another live session has registered the same consumer id in this group."""


class InstanceIdInUse(ZkConsumerError):
    """Another consumer of the group uses the same ``group.instance.id``; this one has left it, and its streams raise.

    The coordinator keeps the one that joined last. Create a new consumer to join again; that fences the other one.
    """


class GroupMissing(ZkConsumerError):
    """The group that a command names does not exist in the store that the command reads."""


class GroupMigrated(ZkConsumerError):
    """The group was migrated off ZooKeeper (``zkconsumer migrate run``), so this consumer does not join it there.

    Consumers of the same group continue at the store that the message names; one that joined here would read the same
    records. ``zkconsumer migrate rollback`` or ``reverse`` leads back, and ``migrate unmark`` removes a mark that is
    wrong.
    """


class RebalanceFailed(ZkConsumerError):
    """Every attempt of a rebalance failed; ``attempts`` holds the reason of each, in order.

    ``in_zookeeper`` is False for a group that brokers coordinate.
    """

    def __init__(self, group: str, consumer: str, attempts: tuple[str, ...], *, in_zookeeper: bool = True) -> None:
        self.attempts = attempts
        numbers: dict[str, list[int]] = {}
        for number, reason in enumerate(self.attempts, 1):
            numbers.setdefault(reason, []).append(number)
        story = "; ".join(
            f"attempt{'s' if len(which) > 1 else ''} {', '.join(map(str, which))}: {reason}"
            for reason, which in numbers.items()
        )
        count = f"{len(self.attempts)} attempt{'' if len(self.attempts) == 1 else 's'}"
        hint = (
            "; check that rebalance.max.retries x rebalance.backoff.ms exceeds zookeeper.session.timeout.ms and that "
            "all members use one partition.assignment.strategy"
        )
        failed = f"consumer {consumer} of group {group} can't rebalance after {count} ({story})"
        super().__init__(f"{failed}{hint if in_zookeeper else ''}")


class NotOwner(ZkConsumerError):
    """A commit concerns partitions that this consumer does not own.

    An explicit commit names them, which ``force=True`` allows; or ``commit_offsets()`` finds that the user holds
    records of partitions that a rebalance has taken away: their owner reads these records again.
    """


class GenerationEnded(ZkConsumerError):
    """A commit carries positions that were read in an assignment which a newer one has replaced; nothing is stored."""


class CommitRefused(ZkConsumerError):
    """Offsets were not committed, since the application could not make durable what they cover."""


class OffsetsNotStored(ZkConsumerError):
    """The store rejected some of the offsets of a commit and logged the reason; the others are stored."""


class MalformedZnode(ZkConsumerError):
    """The znode at ``path`` has content that its readers do not expect."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"znode {path}: {reason}")


class TopicUnreadable(ZkConsumerError):
    """Brokers refuse to serve ``topic``, attempt after attempt, for a reason that waiting does not remove.

    A stream raises it once for each such topic of which it owns partitions, and can be iterated again: other topics
    continue meanwhile, and so does this one when the cause is removed.
    """

    def __init__(self, message: str, topic: str = "") -> None:
        self.topic = topic
        super().__init__(message)


class TopicAuthorizationFailed(TopicUnreadable):
    """This consumer lacks the permission for ``operation`` (``Read`` or ``Describe``) on ``topic``."""

    def __init__(self, message: str, topic: str = "", operation: str = "") -> None:
        self.operation = operation
        super().__init__(message, topic)


class GroupAuthorizationFailed(ZkConsumerError):
    """This consumer lacks the permission for ``operation`` on its group, whose offsets are stored in Kafka."""

    def __init__(self, message: str, operation: str = "") -> None:
        self.operation = operation
        super().__init__(message)


NEEDS_AN_OPERATOR: Final = (
    AssignorFailed,
    AuthenticationFailed,
    ConfigError,
    GroupAuthorizationFailed,
    MemberRefused,
    ZooKeeperRefused,
)
"""Errors of a whole consumer that end when an operator has changed permissions, passwords or properties, and not by
waiting. Some attempts in a row are made all the same: such changes take effect at different times. What concerns one
topic is a :class:`TopicUnreadable`."""


class OffsetOutOfRange(ZkConsumerError):
    """The broker no longer (or not yet) has the requested offset."""


class RecordTooLarge(ZkConsumerError):
    """A record or batch is larger than ``fetch.max.bytes`` or, once decompressed, than ``decompressed.max.bytes``.

    Its data is valid, but cannot be read under these limits. The position stays before it.
    """


class CorruptRecord(ZkConsumerError):
    """Bytes received from a broker fail their checksum or contradict themselves.

    ``resume_at`` is the first offset after the corrupt batch, None if unknown. ``doubtful`` is True if only a second
    answer proves it: a broker's answer may be older than the records in it.
    """

    def __init__(self, message: str, resume_at: int | None = None, *, doubtful: bool = False) -> None:
        self.resume_at = resume_at
        self.doubtful = doubtful
        super().__init__(message)


class DecoderUnavailable(ZkConsumerError):
    """The decoder's library is missing, older than its source, or cannot be loaded; the message gives the cause."""


class ProtocolError(ZkConsumerError):
    """A broker's answer does not fit the protocol version in use."""


class NoCommonVersion(ProtocolError):
    """A broker is too old, or too new, for a request."""


class ConsumerTimeout(ZkConsumerError):
    """No message arrived within ``consumer.timeout.ms``; the stream can be iterated again."""


class WokenUp(ConsumerTimeout):
    """``wakeup`` was called; the stream can be iterated again, and no record is skipped."""


class StreamIdle(ZkConsumerError):
    """A stream left data unread for longer than ``max.stream.idle.ms``, so its consumer has left the group."""


class ConsumerClosed(ZkConsumerError):
    """The connector was shut down."""


class SandboxError(ZkConsumerError):
    """A sandbox server could not be provided; the message names what to check."""
