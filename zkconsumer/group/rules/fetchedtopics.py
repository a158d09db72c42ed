"""FetchedTopics: the topics whose records a member has fetched, by identity: one may be deleted and created again."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.model import TopicIdentity


class FetchedTopics:
    """Written by one thread. A topic that this member has never fetched has no position that could be wrong."""

    def __init__(self) -> None:
        self._fetched: dict[str, TopicIdentity] = {}
        self._begun: dict[str, TopicIdentity] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._fetched

    def begin(self, topics: Mapping[str, TopicIdentity]) -> None:
        """These are to be fetched if the attempt in progress succeeds; replaces those of an attempt that failed."""
        self._begun = dict(topics)

    def started(self) -> None:
        """The topics of the last :meth:`begin` are fetched."""
        self._fetched.update(self._begun)
        self._begun = {}

    def replaced(self, now: Mapping[str, TopicIdentity | None]) -> set[str]:
        """Those of the topics that exist and are not the ones that were fetched under these names.

        Args:
            now: the present identities; None for a topic that does not exist.
        """
        return {
            topic
            for topic, identity in now.items()
            if identity is not None and topic in self._fetched and not identity.is_same_topic(self._fetched[topic])
        }
