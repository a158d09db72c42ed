"""FetchedTopics: the topics whose records a member has fetched, by identity: one may be deleted and created again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkconsumer.errors import ShareChanged, name_some
from zkconsumer.model import TopicIdentity, replaced_topics


class FetchedTopics:
    """Written by one thread. A topic that this member has never fetched has no position that could be wrong."""

    def __init__(self) -> None:
        self._fetched: dict[str, TopicIdentity] = {}
        self._begun: dict[str, TopicIdentity] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._fetched

    def begin(self, topics: Mapping[str, TopicIdentity], recreated: Collection[str]) -> None:
        """These are to be fetched if the attempt in progress succeeds; replaces those of an attempt that failed.

        Args:
            topics: their present identities.
            recreated: those of which the attempt has found out that they were created again.

        Raises:
            ShareChanged: another one was. Otherwise: 1. an attempt begins; 2. a listener takes long, and the topic is
                deleted and created again, with its offsets in Kafka; 3. no offset is found, so this member continues
                at its position in the former topic; 4. from now on the new topic is the one that it has fetched.
        """
        if late := self.replaced(topics) - set(recreated):
            raise ShareChanged(f"topics were created again during the attempt: {name_some(sorted(late))}")
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
        existing = {topic: identity for topic, identity in now.items() if identity is not None}
        return replaced_topics(self._fetched, existing)
