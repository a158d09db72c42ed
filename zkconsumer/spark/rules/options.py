"""SourceOptions: the options of a query, parsed from Spark's options and checked together (spark.md#options).

Options of the source have Spark's camel case; every other name must be a property of the consumer. Spark ignores the
case of option names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from zkconsumer.config.consumerconfig import PROPERTIES, ConsumerConfig
from zkconsumer.config.consumerproperties import RENAMED
from zkconsumer.errors import ConfigError, name_some
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST
from zkconsumer.spark.rules import kafkasource
from zkconsumer.spark.rules.kafkasecurity import UNDERSTOOD, JavaStore, read_security
from zkconsumer.spark.rules.offsetsjson import decode_assignment, decode_positions, decode_timestamps


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Start or end at the first record that is not older than a timestamp, in ms since the epoch.

    Attributes:
        everywhere: timestamp of all partitions that are not in ``given``; None: they follow the default.
        given: timestamps of some partitions.
        or_latest: True: a partition without such a record starts at its end; False: that is an error.
    """

    everywhere: int | None = None
    given: Mapping[TopicPartition, int] = field(default_factory=dict)
    or_latest: bool = False


Position = Literal["group", "earliest", "latest"] | Mapping[TopicPartition, int] | Timestamps
"""A start or end: by name, by time, or by offsets of some partitions (the others follow the default)."""

OPTION_NAMES = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "numStreams",
    "checkpointGroup",
    "memberName",
)
"""The source's own options, in the spelling of the documentation."""

DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
"""Default of ``maxTriggerDelay``, as in Spark."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+)\s*([a-z]*)")

_REDACTED = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Names of options whose values Spark hides in plans and event logs: the default of ``spark.redaction.regex``."""

_INSTEAD_OF_SHOWN = {"zookeeper.digest": "zookeeper.digest.username and zookeeper.digest.password"}
"""Properties with a secret under a name that Spark does not hide, and what to set as options instead."""

_KNOWN = {name.lower(): name for name in OPTION_NAMES} | {row.name: row.name for row in PROPERTIES.values()}


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query.

    Attributes:
        config: the consumer's properties.
        topics: names given by ``subscribe`` or in ``assign``; empty with a pattern.
        pattern: ``subscribePattern``, None with names.
        starting: start of the partitions in the first batch.
        ending: end of a batch read; None for the ends of the logs.
        max_offsets_per_trigger: maximum number of offsets in one micro-batch, None for no limit.
        min_offsets_per_trigger: minimum number of offsets before a micro-batch is planned, None for any.
        max_trigger_delay_ms: limit of the wait for that minimum.
        min_partitions: minimum number of Spark tasks, None for one per consumer thread.
        max_records_per_partition: maximum number of offsets in one Spark task, None for no limit.
        fail_on_data_loss: fail if offsets to read are not in the log any more; otherwise skip them with a warning.
        include_headers: whether to add the column ``headers``.
        num_streams: consumer threads to register, None to choose by CPUs and partitions.
        checkpoint_group: another group whose checkpoint this query may continue; None for no other.
        member_name: distinguishes readers of one group under one driver; None: there must be no other.
        assigned: the only partitions that a batch read reads; None: all of its topics.
        trust: a store of Java in place of ``ssl.ca.location``.
        key: a store of Java in place of ``ssl.certificate.location`` and ``ssl.key.location``.
    """

    config: ConsumerConfig
    topics: tuple[str, ...]
    pattern: str | None
    starting: Position = "group"
    ending: Position | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    num_streams: int | None = None
    checkpoint_group: str | None = None
    member_name: str | None = None
    assigned: frozenset[TopicPartition] | None = None
    trust: JavaStore | None = None
    key: JavaStore | None = None

    @property
    def named_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that options name one by one; all of them have to exist."""
        return (self.assigned or frozenset()).union(*map(_given, (self.starting, self.ending)))

    @property
    def starting_option(self) -> str:
        """The option that specified :attr:`starting`, for messages."""
        if isinstance(self.starting, Timestamps):
            return "startingOffsetsByTimestamp" if self.starting.everywhere is None else "startingTimestamp"
        return f"startingOffsets={self.starting}" if isinstance(self.starting, str) else "startingOffsets"

    def select(self, all_topics: frozenset[str]) -> list[str]:
        """Topics to read, sorted: the names given, or what the pattern matches among ``all_topics``."""
        if self.pattern is None:
            return sorted(self.topics)
        return Whitelist(self.pattern).select(all_topics, exclude_internal=self.config.exclude_internal_topics)

    def subscription(self, streams: Mapping[str, int], of_pattern: int) -> Subscription:
        """The subscription to register: consumer threads of each topic, or of the whole pattern."""
        if self.pattern is None:
            return Subscription.static({topic: streams[topic] for topic in self.topics})
        return Subscription.by_filter(Whitelist(self.pattern), of_pattern)


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of ``spark.readStream`` or ``spark.read``.

    Raises:
        ConfigError: naming *every* option that is unknown, malformed, missing or contradicts another.
    """
    given = {name.lower(): value for name, value in options.items()}
    reader = _OptionReader({_KNOWN[name]: value for name, value in given.items() if name in _KNOWN}, given)
    reader.violations += [
        _unknown(name, value) for name, value in given.items() if name not in UNDERSTOOD.union(_KNOWN)
    ]
    parsed = reader.source_options()
    if parsed is None or reader.violations:
        raise ConfigError(reader.violations)
    return parsed


def check_streaming(options: SourceOptions) -> None:
    """Refuse options that apply only to batch reads.

    Raises:
        ConfigError: naming the options.
    """
    refused = []
    if options.assigned is not None:
        refused.append(
            "assign only applies to spark.read: in a stream the group assigns the partitions. Set subscribe="
            f"{','.join(options.topics)} instead, and group.share=false for a query that has to read all partitions"
        )
    if options.ending is not None:
        refused.append(
            "endingOffsets, endingTimestamp and endingOffsetsByTimestamp only apply to spark.read: a stream has no "
            "end; use trigger(availableNow=True)"
        )
    if refused:
        raise ConfigError(refused)


def check_batch(options: SourceOptions) -> None:
    """Refuse values that apply only to streams.

    Raises:
        ConfigError: naming the options.
    """
    starting = options.starting
    if starting == "latest" or (isinstance(starting, Mapping) and LATEST in starting.values()):
        raise ConfigError("startingOffsets of a batch read cannot be latest (-1): there would be nothing to read")


class _OptionReader:
    """Collects values and violations of one set of options; used once, by one thread."""

    def __init__(self, values: Mapping[str, str], given: Mapping[str, str]) -> None:
        self._security = read_security(given)
        twice = sorted(self._security.replaced & values.keys())
        self._values = {**self._security.properties, **values}
        self.violations = [f"{name} is given twice, also by an option kafka.*: remove one of them" for name in twice]
        self.violations += self._security.violations

    def source_options(self) -> SourceOptions | None:
        topics, pattern, assigned = self._what_to_read()
        starting = self._begin_or_end("starting", ("group", "earliest", "latest"))
        ending = self._begin_or_end("ending", ("latest",))
        if isinstance(ending, Mapping) and EARLIEST in ending.values():
            self.violations.append("endingOffsets cannot be earliest (-2): there would be nothing to read")
        self._refuse_strangers(topics, assigned, _given(starting) | _given(ending))
        most, least, delay = self._trigger_limits()
        tasks = self._positive("minPartitions"), self._positive("maxRecordsPerPartition")
        flags = self._flag("failOnDataLoss", True), self._flag("includeHeaders", False)
        streams, checkpoint_group = self._positive("numStreams"), self._values.get("checkpointGroup")
        member = self._values.get("memberName")
        config = self._config()
        if config is None:
            return None
        limits = (most, least, delay, *tasks)
        stores = self._security.trust, self._security.key
        values = (ending, *limits, *flags, streams, checkpoint_group, member, assigned, *stores)
        return SourceOptions(config, topics, pattern, starting or "group", *values)

    def _trigger_limits(self) -> tuple[int | None, int | None, int]:
        most, least = self._positive("maxOffsetsPerTrigger"), self._positive("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            self.violations.append(f"minOffsetsPerTrigger ({least}) exceeds maxOffsetsPerTrigger ({most})")
        delay = self._duration("maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS)
        if "maxTriggerDelay" in self._values and "minOffsetsPerTrigger" not in self._values:
            self.violations.append("maxTriggerDelay only applies together with minOffsetsPerTrigger")
        return most, least, delay

    def _config(self) -> ConsumerConfig | None:
        properties: dict[str, Any] = {n: value for n, value in self._values.items() if n not in OPTION_NAMES}
        self.violations += [
            f"{row.name} cannot be an option, since Spark shows its value in plans and event logs: set "
            f"{_INSTEAD_OF_SHOWN.get(row.name, 'a property with password or token in its name')}"
            for row in PROPERTIES.values()
            if row.secret and row.name in properties and not _REDACTED.search(row.name)
        ]
        try:
            return ConsumerConfig(**properties)
        except ConfigError as error:
            self.violations += error.violations
            return None

    def _what_to_read(self) -> tuple[tuple[str, ...], str | None, frozenset[TopicPartition] | None]:
        names, pattern, text = map(self._values.get, ("subscribe", "subscribePattern", "assign"))
        if [names, pattern, text].count(None) != 2:
            self.violations.append("set exactly one of subscribe and subscribePattern (a batch read: or assign)")
        assigned = None if text is None else self._assignment(text)
        topics = tuple(sorted({name.strip() for name in (names or "").split(",")} - {""}))
        try:
            if pattern is not None:
                self._check_pattern(pattern)
            elif names is not None:
                Subscription.static(dict.fromkeys(topics, 1))
                if not topics:
                    self.violations.append("subscribe names no topic")
            elif assigned:
                topics = tuple(sorted({partition.topic for partition in assigned}))
                Subscription.static(dict.fromkeys(topics, 1))
        except ConfigError as error:
            self.violations += error.violations
        return topics, pattern, assigned

    def _assignment(self, text: str) -> frozenset[TopicPartition] | None:
        try:
            return decode_assignment(text)
        except ValueError as error:
            self.violations.append(f"assign {error}")
            return None

    def _check_pattern(self, pattern: str) -> None:
        if "," in pattern:
            self.violations.append(
                f"subscribePattern {pattern!r} has a comma, which JVM members of the group interpret as |: write | for "
                "alternatives, and repeat instead of {m,n}"
            )
        elif not Whitelist(pattern).regex:
            self.violations.append("subscribePattern is empty")

    def _begin_or_end(self, which: str, words: tuple[str, ...]) -> Position | None:
        """The value of the one given of ``<which>Offsets``, ``<which>Timestamp`` and ``<which>OffsetsByTimestamp``."""
        names = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
        given = [name for name in names if name in self._values]
        if len(given) > 1:
            self.violations.append(f"{' and '.join(given)} contradict each other: set only one of them")
        or_latest = self._or_latest(names[1:]) if which == "starting" else True
        if names[0] in given:
            return self._position(names[0], words)
        if names[1] in given:
            moment = self._number(names[1])
            return None if moment is None else Timestamps(everywhere=moment, or_latest=or_latest)
        return self._timestamps(names[2], or_latest) if given else None

    def _or_latest(self, with_options: tuple[str, ...]) -> bool:
        name = "startingOffsetsByTimestampStrategy"
        word = self._values.get(name, "error").strip().lower()
        if word not in ("error", "latest"):
            self.violations.append(f"{name} must be error or latest, not {self._values[name]!r}")
        if name in self._values and not self._values.keys() & set(with_options):
            self.violations.append(f"{name} only applies together with {' or '.join(with_options)}")
        return word == "latest"

    def _position(self, name: str, words: tuple[str, ...]) -> Position | None:
        text = self._values[name]
        if text.strip().lower() in words:
            return text.strip().lower()  # type: ignore[return-value]  # one of the literals, by the line above
        try:
            if not text.lstrip().startswith("{"):
                raise ValueError(f"must be one of {', '.join(words)} or JSON, not {text!r}")
            return decode_positions(text)
        except ValueError as error:
            self.violations.append(f"{name} {error}")
            return None

    def _timestamps(self, name: str, or_latest: bool) -> Timestamps | None:
        try:
            return Timestamps(given=decode_timestamps(self._values[name]), or_latest=or_latest)
        except ValueError as error:
            self.violations.append(f"{name} {error}")
            return None

    def _refuse_strangers(
        self, topics: Collection[str], assigned: Set[TopicPartition] | None, given: Set[TopicPartition]
    ) -> None:
        """Refuse positions of partitions that are not read."""
        strangers = sorted({partition.topic for partition in given}.difference(topics))
        if topics and strangers:
            self.violations.append(f"offsets are given for topics that are not subscribed: {', '.join(strangers)}")
        unassigned = [str(p) for p in sorted(given - assigned) if p.topic in topics] if assigned else []
        if unassigned:
            self.violations.append(f"offsets are given for partitions that are not in assign: {name_some(unassigned)}")

    def _number(self, name: str, minimum: int = 0, kind: str = "a number of milliseconds") -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if text.strip().isascii() and text.strip().isdigit() and int(text) >= minimum:
            return int(text)
        self.violations.append(f"{name} must be {kind}, not {text!r}")
        return None

    def _positive(self, name: str) -> int | None:
        return self._number(name, 1, "a positive integer")

    def _duration(self, name: str, default_ms: int) -> int:
        """A duration in ms, from a number with one of Spark's units, or without for milliseconds."""
        text = self._values.get(name)
        if text is None:
            return default_ms
        match = _DURATION.fullmatch(text.strip().lower())
        if match is None or (match[2] or "ms") not in _UNITS_MS:
            self.violations.append(
                f"{name} must be a duration such as 30s or 15m ({', '.join(_UNITS_MS)}), not {text!r}"
            )
            return default_ms
        return int(match[1]) * _UNITS_MS[match[2] or "ms"]

    def _flag(self, name: str, default: bool) -> bool:
        text = self._values.get(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            self.violations.append(f"{name} must be true or false, not {self._values[name]!r}")
        return text == "true"


def _given(position: Position | None) -> Set[TopicPartition]:
    """The partitions that a position names."""
    by_partition = position.given if isinstance(position, Timestamps) else position
    return by_partition.keys() if isinstance(by_partition, Mapping) else frozenset()


def _unknown(name: str, value: str) -> str:
    """One sentence about an option that this source does not have, with the likely remedy."""
    answer = kafkasource.answer(name, value)
    if answer is not None:
        return answer
    if name == "path":
        return f"load() takes no path ({value!r}): set topics with subscribe or subscribePattern"
    of_kafka = name.removeprefix("kafka.")
    if instead := _KNOWN.get(of_kafka) or RENAMED.get(of_kafka):
        return f"{name} is not an option of this source: use {instead}"
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8)
    if name.startswith("kafka.") and not near:
        return f"{name} is of Kafka's Java client, and has no counterpart here: remove it"
    hint = f"; did you mean {_KNOWN[near[0]]}?" if near else ""
    return f"{name} is neither an option of this source nor a property of the consumer{hint}"
