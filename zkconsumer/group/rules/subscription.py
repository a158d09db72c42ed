"""Subscriptions: topics by name, or by whitelist or blacklist, and the number of consumer threads.

See jvm-consumer.md#subscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from zkconsumer.errors import ConfigError
from zkconsumer.model import LEGAL_TOPIC
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.zookeeper.rules.znodes import BLACK_LIST, STATIC, WHITE_LIST, Registration

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})


def normalise_regex(text: str) -> str:
    """The regex as the JVM registers it: commas become alternatives, spaces and outer quotes are removed.

    See jvm-consumer.md#subscriptions.
    """
    return text.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")


@dataclass(frozen=True)
class TopicFilter:
    """A regex over topic names; it must match the whole name.

    Attributes:
        regex: the normalised regex, as it is registered.

    Raises:
        ConfigError: the regex is not valid in the JVM, or cannot be translated (:mod:`zkconsumer.java.javaregex`). This
            is checked before anything is registered: a filter that JVM members cannot compile stops all of them.
    """

    regex: str
    _keeps_matches: ClassVar[bool]

    def __init__(self, regex: str) -> None:
        object.__setattr__(self, "regex", normalise_regex(regex))
        _ = self._compiled

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        from zkconsumer.java.javaregex import UnsupportedRegex, to_python  # most groups have no filter

        try:
            return re.compile(to_python(self.regex), re.ASCII)
        except (
            UnsupportedRegex,
            re.error,
            RecursionError,
            OverflowError,
        ) as error:
            raise ConfigError(
                f"topic filter {self.regex!r} is not a regex that JVM members and this consumer interpret in the same "
                f"way: {error} (note that every comma becomes |)"
            ) from None

    def allows(self, topic: str) -> bool:
        """True if the filter selects the topic, internal topics not considered."""
        return (self._compiled.fullmatch(topic) is not None) == self._keeps_matches

    def broker_regex(self, *, exclude_internal: bool) -> str:
        """The regex by which a coordinator selects the same topics (KIP-848); "" if the member has to select them.

        RE2/J has no negation, so there is none for a blacklist, nor for a whitelist that internal topics are excluded
        from.
        """
        from zkconsumer.java.javaregex import to_re2j

        selects_excluded = exclude_internal and any(map(self.allows, INTERNAL_TOPICS))
        return "" if selects_excluded or not self._keeps_matches else to_re2j(self.regex) or ""

    def select(self, topics: Collection[str], *, exclude_internal: bool) -> list[str]:
        """The selected ones among ``topics``, sorted."""
        memo = _selections(frozenset(topics))
        key = (self, exclude_internal)
        if key not in memo:
            memo[key] = tuple(
                sorted(
                    topic
                    for topic in topics
                    if not (exclude_internal and topic in INTERNAL_TOPICS) and self.allows(topic)
                )
            )
        return list(memo[key])


@lru_cache(maxsize=2)
def _selections(topics: frozenset[str]) -> dict[tuple[TopicFilter, bool], tuple[str, ...]]:
    """What each filter selected of these topics: most members of a group have equal filters, and topics seldom change.

    Kept for the last two sets of topics, so that those of two clusters do not evict each other.
    """
    del topics
    return {}


class Whitelist(TopicFilter):
    """Topics whose whole name matches the regex."""

    _keeps_matches = True


class Blacklist(TopicFilter):
    """Topics whose whole name does not match the regex."""

    _keeps_matches = False


@dataclass(frozen=True)
class Subscription:
    """The subscription of one member: a static map, or a filter with a number of streams.

    Attributes:
        topics: topic to number of streams; empty with a filter.
        topic_filter: the filter, None for a static subscription.
        streams: number of streams of the filter.
        weight: for how many streams each one counts in a group that brokers coordinate and whose strategy is
            ``zkconsumer``; ZooKeeper does not have it.
    """

    topics: Mapping[str, int]
    topic_filter: TopicFilter | None = None
    streams: int = 0
    weight: int = 1

    @cached_property
    def key(self) -> Hashable:
        """Equal for subscriptions that select the same topics with the same numbers of streams."""
        return (self.topic_filter, self.streams, frozenset(self.topics.items()))

    @classmethod
    def static(cls, topics: Mapping[str, int]) -> Subscription:
        """Topics by name.

        Raises:
            ConfigError: no broker accepts the name of a topic, a number of streams is not an integer of at least 1, or
                ``topics`` is not a mapping.
        """
        if not isinstance(topics, Mapping):
            raise ConfigError(f"topics must be a mapping of topic to number of streams, not {topics!r}")
        wrong = [
            f"number of streams of topic {topic!r} must be an integer of at least 1, not {streams!r}"
            for topic, streams in topics.items()
            if not _is_count(streams)
        ]
        wrong += [
            f"{topic!r} cannot be the name of a topic: it has at most 255 letters, digits, dots, underscores and "
            "hyphens"
            for topic in topics
            if not (isinstance(topic, str) and LEGAL_TOPIC.match(topic))
        ]
        if wrong:
            raise ConfigError(wrong)
        return cls(dict(topics))

    @classmethod
    def by_filter(cls, topic_filter: TopicFilter, streams: int) -> Subscription:
        """Topics by whitelist or blacklist.

        Raises:
            ConfigError: the number of streams is not an integer of at least 1, or the filter is not one.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise ConfigError(f"topic_filter must be Whitelist(regex) or Blacklist(regex), not {topic_filter!r}")
        if not _is_count(streams):
            raise ConfigError(f"number of streams must be an integer of at least 1, not {streams!r}")
        return cls({}, topic_filter, streams)

    @classmethod
    def from_registration(cls, registration: Registration) -> Subscription:
        """The subscription that another member registered; for a filter only its first entry is read.

        See jvm-consumer.md#registration.
        """
        if registration.pattern == STATIC:
            return cls(dict(registration.subscription))
        regex, streams = next(iter(registration.subscription.items()))
        kind = Whitelist if registration.pattern == WHITE_LIST else Blacklist
        return cls({}, kind(regex), streams)

    def to_registration(self, timestamp_ms: int) -> Registration:
        """What to write into the ``ids`` znode."""
        if self.topic_filter is None:
            return Registration(dict(self.topics), STATIC, str(timestamp_ms))
        pattern = WHITE_LIST if isinstance(self.topic_filter, Whitelist) else BLACK_LIST
        return Registration({self.topic_filter.regex: self.streams}, pattern, str(timestamp_ms))

    def expand(self, all_topics: Collection[str], *, exclude_internal: bool) -> dict[str, int]:
        """Topic to number of streams; a filter is matched against ``all_topics``, names are not checked."""
        if self.topic_filter is None:
            return dict(self.topics)
        return dict.fromkeys(self.topic_filter.select(all_topics, exclude_internal=exclude_internal), self.streams)

    def has_stream(self, topic: str, number: int) -> bool:
        """True if the member has a stream of this number that reads the topic."""
        if self.topic_filter is None:
            return number < self.topics.get(topic, 0)
        return number < self.streams and self.topic_filter.allows(topic)


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def all_topics(subscriptions: Iterable[Subscription], topics: Collection[str]) -> set[str]:
    """Every topic that one of the subscriptions selects, internal ones included; filters select from ``topics``."""
    distinct = {subscription.key: subscription for subscription in subscriptions}
    return {
        topic for subscription in distinct.values() for topic in subscription.expand(topics, exclude_internal=False)
    }
