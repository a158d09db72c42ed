"""SourceOptions: what a query asked for, read from Spark's options and checked in one go (DESIGN 3.3).

Options of the source have Spark's camel case; every other name must be a property of the consumer. Spark ignores the
case of option names.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from zkconsumer.config import PROPERTIES, ConsumerConfig
from zkconsumer.core.subscription import Subscription, Whitelist
from zkconsumer.errors import ConfigError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.offsets_json import EARLIEST, LATEST, decode_positions

Position = Literal["group", "earliest", "latest"] | Mapping[TopicPartition, int]
"""Where to begin or end: by name, or an offset for some partitions (the others follow the default)."""

OPTION_NAMES = (
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "numStreams",
)
"""The source's own options, as the documentation spells them."""

_KNOWN = {name.lower(): name for name in OPTION_NAMES} | {row.name: row.name for row in PROPERTIES.values()}


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query.

    Attributes:
        config: the consumer's properties.
        topics: names given by ``subscribe``; empty with a pattern.
        pattern: ``subscribePattern``, None with names.
        starting: where partitions of the first batch start.
        ending: where a batch read ends; None if not given, which means the ends of the logs.
        max_offsets_per_trigger: most offsets of one micro-batch, None for no limit.
        min_partitions: least number of Spark tasks, None for one per consumer thread.
        fail_on_data_loss: fail when offsets to read are gone; otherwise skip them with a warning.
        include_headers: add the column ``headers``.
        num_streams: consumer threads to register, None to choose by CPUs and partitions.
    """

    config: ConsumerConfig
    topics: tuple[str, ...]
    pattern: str | None
    starting: Position = "group"
    ending: Position | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    num_streams: int | None = None

    def wants(self, topic: str) -> bool:
        """True if the query subscribes to the topic."""
        return topic in self.topics if self.pattern is None else Whitelist(self.pattern).allows(topic)

    def select(self, all_topics: frozenset[str]) -> list[str]:
        """Topics to read, sorted: the names given, or what the pattern matches among ``all_topics``."""
        if self.pattern is None:
            return sorted(self.topics)
        return Whitelist(self.pattern).select(all_topics, exclude_internal=self.config.exclude_internal_topics)

    def subscription(self, streams: Mapping[str, int], of_pattern: int) -> Subscription:
        """What to register: consumer threads of each topic, or of the whole pattern."""
        if self.pattern is None:
            return Subscription.static({topic: streams[topic] for topic in self.topics})
        return Subscription.by_filter(Whitelist(self.pattern), of_pattern)


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of ``spark.readStream`` or ``spark.read``.

    Raises:
        ConfigError: naming *every* option that is unknown, malformed, missing or contradicts another.
    """
    given = {name.lower(): value for name, value in options.items()}
    reader = _Reader({_KNOWN[name]: value for name, value in given.items() if name in _KNOWN})
    reader.violations += [_unknown(name, value) for name, value in given.items() if name not in _KNOWN]
    parsed = reader.source_options()
    if parsed is None or reader.violations:
        raise ConfigError(reader.violations)
    return parsed


def check_streaming(options: SourceOptions) -> None:
    """Refuse what only a batch read can do.

    Raises:
        ConfigError: naming the options.
    """
    if options.ending is not None:
        raise ConfigError(
            "endingOffsets only applies to spark.read: a stream has no end; use trigger(availableNow=True)"
        )


def check_batch(options: SourceOptions) -> None:
    """Refuse what only a stream can do.

    Raises:
        ConfigError: naming the options.
    """
    starting = options.starting
    if starting == "latest" or (isinstance(starting, Mapping) and LATEST in starting.values()):
        raise ConfigError("startingOffsets of a batch read cannot be latest (-1): there would be nothing to read")


class _Reader:
    """Collects values and violations of one set of options; used once, by one thread."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.violations: list[str] = []

    def source_options(self) -> SourceOptions | None:
        topics, pattern = self._what_to_read()
        starting = self._position("startingOffsets", ("group", "earliest", "latest"))
        ending = self._position("endingOffsets", ("latest",))
        if isinstance(ending, Mapping) and EARLIEST in ending.values():
            self.violations.append("endingOffsets cannot be earliest (-2): there would be nothing to read")
        numbers = [self._positive(name) for name in ("maxOffsetsPerTrigger", "minPartitions", "numStreams")]
        flags = (self._flag("failOnDataLoss", True), self._flag("includeHeaders", False))
        self._known_topics(topics, starting, ending)
        config = self._config()
        if config is None:
            return None
        if config.offsets_storage != "zookeeper":
            self.violations.append("offsets.storage=kafka is not available in this source yet; use zookeeper")
        return SourceOptions(
            config, topics, pattern, starting or "group", ending, numbers[0], numbers[1], *flags, numbers[2]
        )

    def _config(self) -> ConsumerConfig | None:
        properties = {name: value for name, value in self._values.items() if name not in OPTION_NAMES}
        try:
            return ConsumerConfig(**properties)
        except ConfigError as error:
            self.violations += error.violations
            return None

    def _what_to_read(self) -> tuple[tuple[str, ...], str | None]:
        names, pattern = self._values.get("subscribe"), self._values.get("subscribePattern")
        if (names is None) == (pattern is None):
            self.violations.append("give exactly one of subscribe and subscribePattern")
        topics = tuple(sorted({name.strip() for name in (names or "").split(",")} - {""}))
        try:
            if pattern is not None:
                self._check_pattern(pattern)
            elif names is not None:
                Subscription.static(dict.fromkeys(topics, 1))
                if not topics:
                    self.violations.append("subscribe names no topic")
        except ConfigError as error:
            self.violations += error.violations
        return topics, pattern

    def _check_pattern(self, pattern: str) -> None:
        if "," in pattern:
            self.violations.append(
                f"subscribePattern {pattern!r} has a comma, which JVM members of the group read as |: write | for "
                "alternatives, and repeat instead of {m,n}"
            )
        elif not Whitelist(pattern).regex:
            self.violations.append("subscribePattern is empty")

    def _position(self, name: str, words: tuple[str, ...]) -> Position | None:
        text = self._values.get(name)
        if text is None:
            return None
        if text.strip().lower() in words:
            return text.strip().lower()  # type: ignore[return-value]  # one of the literals, by the line above
        try:
            if not text.lstrip().startswith("{"):
                raise ValueError(f"must be one of {', '.join(words)} or JSON, not {text!r}")
            return decode_positions(text)
        except ValueError as error:
            self.violations.append(f"{name} {error}")
            return None

    def _known_topics(self, topics: tuple[str, ...], *positions: Position | None) -> None:
        named = {p.topic for position in positions if isinstance(position, Mapping) for p in position}
        strangers = sorted(named - set(topics))
        if topics and strangers:
            self.violations.append(f"offsets are given for topics that are not subscribed: {', '.join(strangers)}")

    def _positive(self, name: str) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if text.strip().isascii() and text.strip().isdigit() and int(text) > 0:
            return int(text)
        self.violations.append(f"{name} must be a positive integer, not {text!r}")
        return None

    def _flag(self, name: str, default: bool) -> bool:
        text = self._values.get(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            self.violations.append(f"{name} must be true or false, not {self._values[name]!r}")
        return text == "true"


def _unknown(name: str, value: str) -> str:
    """One sentence for an option that this source does not have, with the likely remedy."""
    if name == "kafka.bootstrap.servers":
        return (
            f"kafka.bootstrap.servers ({value}) is not used: this source finds the brokers in ZooKeeper; give "
            "zookeeper.connect (host:port[,...][/chroot]) and group.id instead"
        )
    if name == "path":
        return f"load() takes no path ({value!r}): name topics with subscribe or subscribePattern"
    if name.removeprefix("kafka.") in _KNOWN:
        return f"{name} is not an option of this source: write {_KNOWN[name.removeprefix('kafka.')]}"
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8)
    hint = f"; did you mean {_KNOWN[near[0]]}?" if near else ""
    return f"{name} is neither an option of this source nor a property of the consumer{hint}"
