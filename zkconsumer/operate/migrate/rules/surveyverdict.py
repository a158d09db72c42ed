"""The verdict of a survey: whether the offsets of a ZooKeeper group can move to Kafka, and what comes next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import usable_offset
from zkconsumer.offsets.rules.topicorigins import NOT_STORED, JudgedOffset, WrittenFor, describe_before
from zkconsumer.operate.migrate.rules.migrationplan import choose_new
from zkconsumer.operate.migrate.rules.portableregex import portable_regex
from zkconsumer.operate.offsets.rules.offsetguards import moving_back, outside_logs
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.rules.describedgroup import KafkaGroup, why_no_groups
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import MigrationMark, describe_mark, mark_verdict

Layout = Literal["consumer", "offsets", "kafka-0.7", "last-processed", "empty"]
"""What the group's znodes are: a consumer's; offsets alone; Kafka 0.7's; those of a consumer that stores the last
processed offset where the JVM stores the next one; or none."""

Storage = Literal["none", "zookeeper", "kafka", "both"]
OffsetZnode = Literal["known", "malformed", "refused"]

_SHORT_RETENTION_MINUTES: Final = 7 * 24 * 60
"""The brokers' default of ``offsets.retention.minutes`` since 2.0; it was one day before."""


class SurveyVerdict(Enum):
    """What a survey results in.

    READY: no member is registered and nothing stands in the way. RUNNING: the same, once its members are stopped.
    NOT_READY: something has to be decided or fixed first. MIGRATED: it has no members in ZooKeeper, and the mark of a
    migration, or all of its offsets are in Kafka and it has members at the brokers; if it continues there under its
    name, these have it.
    """

    READY = "ready"
    RUNNING = "running"
    NOT_READY = "not ready"
    MIGRATED = "migrated"


class Level(Enum):
    """How a finding counts: a BLOCKER makes the group not ready, a WARNING is to be read first, a NOTE is a fact."""

    BLOCKER = "blocker"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SurveyFinding:
    """One result of a survey.

    Attributes:
        level: see :class:`Level`.
        code: a word for programs.
        text: a sentence for operators.
        command: what to run next because of it; empty if there is no such command.
    """

    level: Level
    code: str
    text: str
    command: str = ""


def storage_of(in_zookeeper: Iterable[int | None], in_kafka: Iterable[int | None]) -> Storage:
    """Which stores hold these offsets of a group; None stands for no offset.

    >>> storage_of([None, 5], [None]), storage_of([None], [7])
    ('zookeeper', 'kafka')
    """
    zookeeper, kafka = (any(offset is not None for offset in store) for store in (in_zookeeper, in_kafka))
    if zookeeper and kafka:
        return "both"
    return "zookeeper" if zookeeper else "kafka" if kafka else "none"


@dataclass(frozen=True, slots=True)
class SurveyedMember:
    """A member: its id, ``jvm``, ``zkconsumer`` or ``unknown``, the kind of its subscription, a filter's regex."""

    id: str
    client: str
    pattern: str
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class SurveyedPartition:
    """A partition of the group.

    Attributes:
        partition: which one.
        exists: whether the cluster has it.
        in_zookeeper: offset stored there, None if there is none.
        in_kafka: the same in Kafka.
        log: the offsets of its log; None if unknown.
        znode: ``malformed`` if it holds no offset, ``refused`` if it may not be read: that is a problem, and no missing
            offset.
    """

    partition: TopicPartition
    exists: bool = True
    in_zookeeper: JudgedOffset = NOT_STORED
    in_kafka: JudgedOffset = NOT_STORED
    log: LogRange | None = None
    znode: OffsetZnode = "known"

    @property
    def planned(self) -> int | None:
        """The offset that a plan writes to Kafka; None if there is none in either store."""
        return choose_new(self.in_zookeeper, self.in_kafka)


@dataclass(frozen=True, slots=True)
class SurveyFacts:
    """What was found of a group.

    Attributes:
        group: its name.
        layout: see :data:`Layout`.
        members: those that are registered.
        partitions: of all its topics.
        newest_commit_ms: when an offset in ZooKeeper was last written, in ms since the epoch.
        kafka: the group of the same name that brokers coordinate; None if unknown.
        retention_minutes: ``offsets.retention.minutes`` by broker; None where the broker does not report it.
        releases: release of each broker.
        problems: what could not be read, one sentence each.
        mark: of a migration; None for other groups.
        continues_at_brokers: True if the mark shows that the group continues at the brokers, under its name.
        lost: that the brokers do not have it then, in a sentence; empty if they do, or if that is unknown.
        plan_file: that its plan is written to; empty for GROUP.plan.json.
        servers: of brokers, where the command does not name them already; empty if it does, or if they are unknown.
    """

    group: str
    layout: Layout = "consumer"
    members: tuple[SurveyedMember, ...] = ()
    partitions: tuple[SurveyedPartition, ...] = ()
    newest_commit_ms: int | None = None
    kafka: KafkaGroup | None = None
    retention_minutes: Mapping[int, int | None] = field(default_factory=dict)
    releases: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    mark: MigrationMark | None = None
    continues_at_brokers: bool = False
    lost: str = ""
    plan_file: str = ""
    servers: str = ""

    @property
    def storage(self) -> Storage:
        """Which stores hold offsets of the group."""
        return storage_of(
            (usable_offset(partition.in_zookeeper.offset) for partition in self.partitions),
            (partition.in_kafka.position for partition in self.partitions),
        )

    @property
    def missing(self) -> list[TopicPartition]:
        """Existing partitions without an offset in either store, unless all offsets of the group are in Kafka."""
        if self.storage == "kafka":
            return []
        return [p.partition for p in self.partitions if p.exists and p.znode == "known" and p.planned is None]


@dataclass(frozen=True, slots=True)
class Survey:
    """A group's facts, with what follows from them.

    Attributes:
        facts: what was found.
        findings: blockers first, then warnings, then notes.
        verdict: see :class:`SurveyVerdict`.
        next: the command to run next.
        to_do: what people do before it, in words; empty if there is nothing.
    """

    facts: SurveyFacts
    findings: tuple[SurveyFinding, ...]
    verdict: SurveyVerdict
    next: str
    to_do: str = ""


_STOP: Final = "stop its members"
_READING: Final = ("zkconsumer migrate survey ", "zkconsumer groups explain ", "zkconsumer groups describe ")


def survey(facts: SurveyFacts) -> Survey:
    """Derive the verdict from the facts."""
    if facts.mark is not None and mark_verdict(facts.mark, has_members=bool(facts.members)) == "done":
        return _survey_migrated(facts, facts.mark)
    findings = [finding for rule in _RULES for finding in rule(facts)]
    findings.sort(key=lambda finding: list(Level).index(finding.level))
    blockers = [finding for finding in findings if finding.level is Level.BLOCKER]
    if blockers:
        command = next((blocker.command for blocker in blockers if blocker.command), "")
        to_do = "" if command else "clear the blockers"
        if facts.members and not (command or _READING[0]).startswith(_READING):
            to_do = _STOP
        return Survey(facts, tuple(findings), SurveyVerdict.NOT_READY, command or _command("survey", facts), to_do)
    verdict = SurveyVerdict.RUNNING if facts.members else SurveyVerdict.READY
    if facts.storage == "kafka":  # there is nothing to write
        if facts.kafka is not None and facts.kafka.has_members:
            return Survey(facts, tuple(findings), SurveyVerdict.MIGRATED, _explain_command(facts))
        command = f"zkconsumer groups describe --group {shlex.quote(facts.group)} --offsets kafka"
        return Survey(facts, tuple(findings), verdict, command)
    return Survey(facts, tuple(findings), verdict, _plan_command(facts), _STOP if facts.members else "")


def _survey_migrated(facts: SurveyFacts, mark: MigrationMark) -> Survey:
    """One that continues at the brokers under its name is judged as they have it."""
    verdict, state = SurveyVerdict.MIGRATED, ""
    findings = []
    if facts.lost:
        verdict = SurveyVerdict.NOT_READY
        findings.append(SurveyFinding(Level.BLOCKER, "lost", facts.lost))
    elif facts.continues_at_brokers and facts.kafka is not None:
        state = f" ({facts.kafka.state}, {facts.kafka.members} members)"
        if not facts.kafka.has_members:
            no_members = "no consumer is a member of it at the brokers: its offsets expire unless one commits"
            findings.append(SurveyFinding(Level.WARNING, "no-member", no_members))
    elif facts.continues_at_brokers:
        unknown = f"it was migrated to {mark.where}, and what the brokers have of it is unknown"
        problems = (SurveyFinding(Level.WARNING, "unreadable", problem) for problem in facts.problems)
        findings += [SurveyFinding(Level.WARNING, "kafka-group", unknown), *problems]
    text = f"it was migrated: its consumers continue at {mark.where}{state}"
    findings.append(SurveyFinding(Level.NOTE, "migrated", text))
    return Survey(facts, tuple(findings), verdict, _explain_command(facts))


def _explain_command(facts: SurveyFacts) -> str:
    """Of a group that continues at brokers: in ZooKeeper alone it looks like one without consumers."""
    servers = f" --bootstrap-server {shlex.quote(facts.servers)}" if facts.servers else ""
    return f"zkconsumer groups explain --group {_quoted(facts)}{servers}"


def _quoted(facts: SurveyFacts) -> str:
    return shlex.quote(facts.group)


def _command(name: str, facts: SurveyFacts) -> str:
    return f"zkconsumer migrate {name} --group {_quoted(facts)}"


def _plan_command(facts: SurveyFacts, options: str = "", *, source: str = "") -> str:
    group = facts.group
    ends = f"--from {shlex.quote(source or f'zookeeper:{group}')} --to {shlex.quote(f'kafka:{group}')}"
    return f"zkconsumer migrate plan {ends} --output {shlex.quote(facts.plan_file or f'{group}.plan.json')}{options}"


# -- rules ------------------------------------------------------------------------------------------------------------


def _marked(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    """A migration that is not done, or whose old consumers have returned."""
    if facts.mark is not None:
        command = f"zkconsumer groups explain --group {_quoted(facts)}"
        text = describe_mark(facts.group, facts.mark)
        if facts.members:
            text = f"members are registered, and have a mark against them: {text}"
        yield SurveyFinding(Level.BLOCKER, "marked", text, command)


def _layout(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    reasons = {
        "kafka-0.7": "its offset znodes are those of Kafka 0.7 (broker-partition), which no later broker has",
        "last-processed": (
            "its znodes are those of a consumer that stores the last processed offset (the JVM's less one): members "
            "are named Receiver-N, or owner znodes are persistent"
        ),
        "empty": "it has neither members nor offsets, so there is nothing to migrate",
    }
    if facts.layout in reasons:
        commands = {
            "last-processed": _plan_command(facts, source=f"dibbhatt:{GroupPaths(facts.group).root}"),
            "empty": f"zkconsumer groups delete --group {_quoted(facts)}",
        }
        yield SurveyFinding(Level.BLOCKER, "layout", reasons[facts.layout], commands.get(facts.layout, ""))


def _members(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    if facts.members:
        clients = sorted({member.client for member in facts.members})
        yield SurveyFinding(
            Level.NOTE,
            "members",
            f"{len(facts.members)} members live ({', '.join(clients)}); stop them before `migrate run`",
        )


def _missing(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    if facts.layout == "empty" or not facts.missing:
        return
    if facts.members and facts.storage == "none":
        yield SurveyFinding(
            Level.BLOCKER,
            "no-commit",
            "its members have not committed an offset yet; survey it again when they have (auto.commit.interval.ms is "
            f"{ConsumerConfig.auto_commit_interval_ms // 1000} s by default)",
            _command("survey", facts),
        )
    else:
        yield SurveyFinding(
            Level.BLOCKER,
            "no-offset",
            f"{len(facts.missing)} partitions have no offset: {name_some(facts.missing)}{_earlier(facts)}; decide "
            "where they begin (--missing earliest or --missing latest)",
            _plan_command(facts, " --missing earliest"),
        )


def _earlier(facts: SurveyFacts) -> str:
    outdated = [
        one.partition
        for one in facts.partitions
        if one.in_zookeeper.written_for is WrittenFor.EARLIER and one.exists and one.planned is None
    ]
    return f" (those of {name_some(outdated)} were stored for earlier topics of that name)" if outdated else ""


def _before_topic(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    before = [
        one.partition
        for one in facts.partitions
        if one.in_zookeeper.written_for is WrittenFor.BEFORE and one.exists and one.planned == one.in_zookeeper.position
    ]
    for text in describe_before(before if facts.storage != "kafka" else ()):
        yield SurveyFinding(
            Level.WARNING,
            "before-topic",
            text,
            f"zkconsumer offsets reset --group {_quoted(facts)} {_topic_options(before)} --to-earliest",
        )


def _outside(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    # If all offsets are in Kafka, nothing is planned.
    existing = [partition for partition in facts.partitions if partition.exists and facts.storage != "kafka"]
    if outside := outside_logs({p.partition: p.planned for p in existing}, {p.partition: p.log for p in existing}):
        group = shlex.quote(facts.group)
        yield SurveyFinding(
            Level.BLOCKER,
            "outside-log",
            f"offsets of {name_some(outside)} are outside the log, so a consumer resets them by auto.offset.reset; "
            "reset them first",
            f"zkconsumer offsets reset --group {group} {_topic_options(outside)} --to-earliest",
        )


def _topic_options(partitions: Iterable[TopicPartition]) -> str:
    """Options that name these partitions and no others, whose offsets are valid."""
    numbers: dict[str, list[str]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(str(partition.partition))
    return " ".join("--topic " + shlex.quote(f"{topic}:{','.join(of)}") for topic, of in numbers.items())


def _gone(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    gone = [
        partition.partition
        for partition in facts.partitions
        if not partition.exists and partition.in_zookeeper.offset is not None
    ]
    if gone and not any(partition.exists for partition in facts.partitions):
        text = f"the topics of all its offsets were deleted, so there is nothing to migrate: {name_some(gone)}"
        command = "" if facts.members else f"zkconsumer groups delete --group {_quoted(facts)}"
        yield SurveyFinding(Level.BLOCKER, "no-partition", text, command)
    elif gone:
        yield SurveyFinding(
            Level.WARNING,
            "no-partition",
            f"offsets of {name_some(gone)} are not migrated, since the cluster has no such partitions",
        )


def _stores(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    if facts.storage == "kafka":
        stop = "stop the members, and " if facts.members else ""
        follows = f"; {stop}start the new consumers"
        if facts.kafka is not None and facts.kafka.has_members and not facts.members:
            follows = ", where its consumers continue; it has no mark, so old consumers that are started would join"
        yield SurveyFinding(Level.NOTE, "storage", f"all of its offsets are in Kafka{follows}")
    existing = [partition for partition in facts.partitions if partition.exists]
    zookeeper = {partition.partition: partition.in_zookeeper.counting for partition in existing}
    kafka = {partition.partition: partition.in_kafka.counting for partition in existing}
    logs = {partition.partition: partition.log for partition in existing}
    if ahead := moving_back(zookeeper, kafka, logs):
        yield SurveyFinding(
            Level.WARNING if facts.members else Level.BLOCKER,
            "kafka-ahead",
            f"Kafka's offsets of {name_some(ahead)} are ahead of ZooKeeper's: new consumers may have run, and records "
            "would be read again",
            f"zkconsumer groups describe --group {shlex.quote(facts.group)} --offsets both",
        )
    if older := moving_back(kafka, zookeeper, logs):
        yield SurveyFinding(
            Level.NOTE, "zookeeper-ahead", f"ZooKeeper's offsets of {name_some(older)} are ahead of Kafka's"
        )


def _kafka_group(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    if facts.kafka is None:
        yield SurveyFinding(
            Level.BLOCKER, "kafka-group", "the state of the group in Kafka is unknown; see what could not be read"
        )
    elif facts.kafka.has_members and (facts.members or facts.storage != "kafka"):
        members = "" if facts.kafka.members is None else f" with {facts.kafka.members} members"
        way_out = "stop its consumers, or migrate to another name"
        if facts.storage == "kafka":
            way_out = "both read every record: stop the members in ZooKeeper"
        yield SurveyFinding(
            Level.BLOCKER,
            "kafka-group",
            f"a group of the same name lives in Kafka ({facts.kafka.state}{members}), and refuses commits of others; "
            f"{way_out}",
        )


def _retention(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    known = [minutes for minutes in facts.retention_minutes.values() if minutes is not None]
    if len(known) < len(facts.retention_minutes) or not facts.retention_minutes:
        yield SurveyFinding(
            Level.WARNING,
            "retention",
            "not every broker reports offsets.retention.minutes (it is one day by default before 2.0, seven since); "
            "offsets without a consumer expire after that time",
        )
    if known and min(known) < _SHORT_RETENTION_MINUTES:
        yield SurveyFinding(
            Level.WARNING,
            "retention",
            f"offsets.retention.minutes is {min(known)}: offsets expire that many minutes after the write unless new "
            "consumers commit by then; give `migrate plan` --retention, such as 30d",
        )


def _brokers(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    if (reason := why_no_groups(facts.releases)) is not None:
        yield SurveyFinding(Level.BLOCKER, "brokers", reason)
    if len(set(facts.releases.values())) > 1:
        shown = ", ".join(
            f"{number} has {format_release(release)}" for number, release in sorted(facts.releases.items())
        )
        yield SurveyFinding(Level.WARNING, "brokers", f"brokers differ in their release: {shown}")


def _subscriptions(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    filters = {(member.pattern, member.regex) for member in facts.members if member.regex is not None}
    for pattern, regex in sorted(filters, key=str):
        portable = portable_regex(str(regex))
        is_black = pattern == "black_list"
        level = Level.NOTE if portable.is_unchanged and not is_black else Level.WARNING
        yield SurveyFinding(level, "subscription", _regex_text(str(regex), is_black=is_black))


def _regex_text(regex: str, *, is_black: bool) -> str:
    portable = portable_regex(regex)
    used = f"; it uses {', '.join(portable.features)}" if portable.features else ""
    if is_black:
        rdkafka = (
            "list the topics" if portable.librdkafka is None else f"^.* with topic.blacklist={portable.librdkafka}"
        )
        return (
            f"black list {regex!r} has no successor in the new consumers: subscribe in Java to (?!(?:{regex})$).*; "
            f"for librdkafka: {rdkafka}{used}"
        )
    rdkafka = "none, so list the topics by name" if portable.librdkafka is None else portable.librdkafka
    return f"white list {regex!r}: the Java consumer takes it as it is; for librdkafka: {rdkafka}{used}"


def _unknown(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    """While a znode of the group is refused, so is every reset."""
    refused, malformed = (
        [one.partition for one in facts.partitions if one.exists and one.znode == znode]
        for znode in ("refused", "malformed")
    )
    if refused:
        yield SurveyFinding(
            Level.BLOCKER,
            "unknown-offset",
            f"the offset znodes of {name_some(refused)} may not be read, and may hold offsets; as a principal that "
            "may, give this client access (zookeeper-shell getAcl, setAcl), and survey it again",
            _command("survey", facts),
        )
    if malformed:
        yield SurveyFinding(
            Level.BLOCKER,
            "unknown-offset",
            f"the offset znodes of {name_some(malformed)} hold no number; decide from where these are consumed "
            "(--to-earliest, --to-latest or --to-offset N), and write it",
            f"zkconsumer offsets reset --group {_quoted(facts)} {_topic_options(malformed)} --to-earliest",
        )


def _problems(facts: SurveyFacts) -> Iterator[SurveyFinding]:
    for problem in facts.problems:
        yield SurveyFinding(Level.BLOCKER, "unreadable", problem)


_RULES: Final[Sequence[Callable[[SurveyFacts], Iterator[SurveyFinding]]]] = (
    _marked,
    _layout,
    _problems,
    _unknown,
    _before_topic,
    _outside,
    _stores,
    _kafka_group,
    _brokers,
    _missing,
    _retention,
    _gone,
    _subscriptions,
    _members,
)


def format_release(release: tuple[int, ...]) -> str:
    """A release as text: ``3.9``."""
    return ".".join(map(str, release))
