"""BrokerCatalog: the brokers, topics and partitions of a cluster, as the brokers themselves describe them."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from zkconsumer.cluster.rules.clustercatalog import DENIED_S, ClusterSnapshot
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ProtocolError, TopicUnreadable, name_some
from zkconsumer.model import LEGAL_TOPIC, Broker, Topic, TopicIdentity
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient, fetch_metadata, metadata_version
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import NO_SUCH_TOPIC, is_refusal
from zkconsumer.wire.metadatamessages import Metadata
from zkconsumer.wire.refusals import DESCRIBE, topic_refused

TIMEOUT_MS: Final = 5000
"""Limit for connecting and for each answer: a broker that is silent for longer is skipped for another one."""

_FIRST_WITHOUT_CREATION: Final = 4
_PAUSE_S: Final = 0.3
UNLISTED: Final = "not listed, and brokers before 0.11 list only what this client may describe"
"""Why it is unknown whether a topic exists."""
_AS_UNLISTED: Final = (
    "check the ACLs, or omit --bootstrap-server (bootstrap.servers), so that ZooKeeper shows which topics exist"
)
_THE_LIST: Final = ""
"""In place of a topic: that a broker lists any."""
_log: Final = logging.getLogger(__name__)


class CatalogAnswer(NamedTuple):
    """A broker's description of the cluster.

    Attributes:
        snapshot: what it described.
        failed: error code of each topic that it did not describe although it was asked for it by name.
    """

    snapshot: ClusterSnapshot
    failed: dict[str, int]

    def denied(self, topics: Collection[str] | None) -> frozenset[str]:
        """Those of the topics that do not exist by this answer; for all topics (None) one name if there is none."""
        known = self.snapshot.described.keys() | self.snapshot.undescribed
        if topics is None:
            return frozenset() if known else frozenset({_THE_LIST})
        return frozenset(filter(LEGAL_TOPIC.match, topics)) - known

    def unlisted(self, topics: Collection[str]) -> frozenset[str]:
        """Those of them that do not exist, or that this client may not describe: brokers before 0.11 leave out both."""
        return self.denied(topics) if self.snapshot.asked_for is None else frozenset()

    def merged(self, later: CatalogAnswer) -> CatalogAnswer:
        """With what a later answer describes, or does not describe, of some of the same topics."""
        described = {**self.snapshot.described, **later.snapshot.described}
        failed = {name: code for name, code in {**self.failed, **later.failed}.items() if name not in described}
        undescribed = (self.snapshot.undescribed | later.snapshot.undescribed) - described.keys()
        snapshot = replace(self.snapshot, brokers=later.snapshot.brokers, described=described, undescribed=undescribed)
        return CatalogAnswer(snapshot, failed)


def ask_for_catalog(
    connection: BrokerConnection, topics: Collection[str] | None, known: Collection[str] = ()
) -> CatalogAnswer:
    """Ask one broker for the brokers, and for some topics or (None) all of them.

    Brokers before 0.11 might create topics that are asked for by name; they are asked for all.

    Args:
        connection: to the broker.
        topics: as above.
        known: topics that were described before. Those that are missing among all topics are asked for by name: brokers
            do not list what this client may not describe any more.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer, no common version, or the broker lists no brokers, as one that is starting.
    """
    creates = metadata_version(connection) < _FIRST_WITHOUT_CREATION
    if creates:
        topics = None
    asked_for = None if topics is None else frozenset(topics)
    # A member may have registered any text as the name of a topic.
    wanted = None if asked_for is None else sorted(filter(LEGAL_TOPIC.match, asked_for))
    metadata = fetch_metadata(connection, wanted)
    if not metadata.brokers:
        raise ProtocolError(f"{connection} lists no live brokers; it may be starting")
    described = _described(metadata)
    failed = dict(metadata.failed_topics)
    if topics is None and not creates and (missing := sorted(set(known) - described.keys() - failed.keys())):
        of_missing = fetch_metadata(connection, missing)
        described.update(_described(of_missing))
        failed.update(of_missing.failed_topics)
    undescribed = frozenset(name for name, code in failed.items() if code not in NO_SUCH_TOPIC)
    brokers = tuple(sorted(metadata.brokers.values()))
    return CatalogAnswer(ClusterSnapshot(brokers, described, asked_for, undescribed=undescribed), failed)


class _Denial(NamedTuple):
    """Since when a topic was denied, and when it was denied last."""

    since: float
    last: float


class Question(Protocol):
    """Asks one broker about topics; see :func:`ask_for_catalog`."""

    def __call__(self, connection: BrokerConnection, topics: Collection[str] | None) -> CatalogAnswer:
        """See above."""


def _described(metadata: Metadata) -> dict[str, Topic]:
    partitions: dict[str, list[int]] = defaultdict(list)
    for topic, partition in (*metadata.leaders, *metadata.leaderless):
        partitions[topic].append(partition)
    return {
        name: Topic(tuple(sorted(numbers)), TopicIdentity(metadata.topic_ids.get(name), None))
        for name, numbers in partitions.items()
        if name not in metadata.failed_topics
    }


class PatientCatalog:
    """Asks brokers, and again about topics that they deny: these do not exist once they were denied for DENIED_S.

    The list of all topics is asked for again while it is empty. A broker that has just started denies every topic, and
    what follows cannot be undone: offsets count as those of topics that are gone, and plans exclude them. One thread
    uses it. Denials that are at most DENIED_S apart count as one, so a command with several questions waits once.

    Args:
        client: asks any of the brokers.
        wait: pauses for so many seconds, at least ``pause_s``.
        pause_s: between two questions.
        displays: believe the first denial, for a reader that decides nothing, and looks again.
    """

    def __init__(
        self,
        client: BrokerClient,
        *,
        wait: Callable[[float], object] = time.sleep,
        pause_s: float = _PAUSE_S,
        displays: bool = False,
    ) -> None:
        self._client = client
        self._wait = wait
        self._pause_s = pause_s
        self._displays = displays
        self._denied: dict[str, _Denial] = {}

    def ask(
        self,
        topics: Collection[str] | None,
        denied: Callable[[CatalogAnswer], Collection[str]] | None = None,
        question: Question = ask_for_catalog,
    ) -> CatalogAnswer:
        """Ask about topics, or (None) about all; raises as :meth:`.BrokerClient.ask_any`.

        Args:
            topics: names of the topics to describe.
            denied: those of them that do not exist by an answer; None for :meth:`CatalogAnswer.denied`.
            question: puts the question to a broker.
        """
        denied = denied or (lambda answer: answer.denied(topics))
        now = time.monotonic()
        self._denied = {name: one for name, one in self._denied.items() if now - one.last <= DENIED_S}
        answer = self._client.ask_any(partial(question, topics=topics))
        while (doubtful := self._doubtful(frozenset(denied(answer)), topics)) and not self._displays:
            self._wait(self._pause_s)
            left = None if topics is None else doubtful
            answer = answer.merged(self._client.ask_any(partial(question, topics=left)))
        return answer

    def _doubtful(self, denied: frozenset[str], topics: Collection[str] | None) -> frozenset[str]:
        now = time.monotonic()
        for name in frozenset({_THE_LIST} if topics is None else topics) - denied:
            self._denied.pop(name, None)
        for name in denied:
            since = self._denied[name].since if name in self._denied else now
            self._denied[name] = _Denial(since, now)
        return frozenset(name for name in denied if now - self._denied[name].since < DENIED_S)

    def read(self, topics: Collection[str] | None) -> ClusterSnapshot:
        """The cluster as it is now; a topic that may not be described is reported in the log and skipped.

        Args:
            topics: names of the topics to describe; None for all that this consumer may describe.

        Raises:
            BrokerUnavailable, AuthenticationFailed: no broker answers.
        """
        answer = self.ask(topics)
        snapshot = answer.snapshot
        for name in sorted(snapshot.undescribed):
            _log.error("%s", topic_refused(name, answer.failed[name], DESCRIBE, "a broker", self._client.security))
        if topics is None or not (unlisted := answer.unlisted(topics)):
            return snapshot
        _log.error("whether topics exist is unknown: %s: %s; %s", name_some(sorted(unlisted)), UNLISTED, _AS_UNLISTED)
        return replace(snapshot, undescribed=snapshot.undescribed | unlisted)


def require_described(config: ConsumerConfig, brokers: Sequence[Broker], undescribed: Collection[str]) -> None:
    """For a reader, which must not take a topic of which nothing is known for one that does not exist.

    The brokers of ``bootstrap.servers`` are asked once more, since their error codes name the reason.

    Args:
        config: where the cluster is, and how brokers are reached.
        brokers: live ones; where ZooKeeper has none, it does not know which topics there are.
        undescribed: those of the reader's topics that may exist, although they are not described.

    Raises:
        TopicUnreadable: there is one; without it what is read would be incomplete.
        BrokerUnavailable: there is no broker, or none answers.
    """
    if not brokers or (undescribed and config.bootstrap_servers is not None):
        with closing(BrokerClient.from_config(lambda: brokers, config, timeout_ms=TIMEOUT_MS)) as client:
            failed = client.ask_any(partial(ask_for_catalog, topics=undescribed)).failed
            for topic in sorted(failed):
                if is_refusal(failed[topic]):
                    raise topic_refused(topic, failed[topic], DESCRIBE, "a broker", client.security)
    for topic in sorted(undescribed):
        raise TopicUnreadable(f"topic {topic} cannot be read, since it is not described; the log has the reason", topic)


class BrokerCatalog:
    """Reads the cluster; each reading is a connection of its own.

    Args:
        config: has ``bootstrap.servers``, and specifies how brokers are reached.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._brokers = bootstrap_brokers(config.bootstrap_servers)

    def read(self, topics: Collection[str] | None) -> ClusterSnapshot:
        """See :meth:`PatientCatalog.read`."""
        with closing(BrokerClient.from_config(lambda: self._brokers, self._config, timeout_ms=TIMEOUT_MS)) as client:
            return PatientCatalog(client).read(topics)


class RememberedCatalog:
    """The cluster at one moment, for one run of a tool: brokers are asked for all topics, once, at the first question.

    Topics that are missing in that answer are asked for by name, once, since brokers report only then that a topic may
    not be described. Used by one thread at a time.

    Args:
        read: asks brokers, as :meth:`PatientCatalog.read` does.
    """

    def __init__(self, read: Callable[[Collection[str] | None], ClusterSnapshot]) -> None:
        self._read = read
        self._snapshot: ClusterSnapshot | None = None
        self._asked_by_name: frozenset[str] = frozenset()

    def read(self, topics: Collection[str] | None) -> ClusterSnapshot:
        """See :meth:`PatientCatalog.read`; topics that were not asked for are described, too."""
        snapshot = self._snapshot or self._read(None)
        missing = frozenset(topics or ()) - snapshot.described.keys() - self._asked_by_name
        if missing:
            later = self._read(missing)
            described = {**snapshot.described, **later.described}
            undescribed = snapshot.undescribed | later.undescribed
            snapshot = ClusterSnapshot(later.brokers, described, None, undescribed=undescribed)
        self._snapshot, self._asked_by_name = snapshot, self._asked_by_name | missing
        return snapshot
