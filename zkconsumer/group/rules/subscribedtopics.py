"""SubscribedTopics: the topics of a cluster that a subscription selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkconsumer.cluster.rules.clustercatalog import ClusterSource, read_known
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Topic


class SubscribedTopics(NamedTuple):
    """The topics that a subscription selects.

    Attributes:
        described: description of each.
        streams: topic to number of consumer threads.
    """

    described: Mapping[str, Topic]
    streams: Mapping[str, int]


def read_subscribed(source: ClusterSource, subscription: Subscription, *, exclude_internal: bool) -> SubscribedTopics:
    """Read which topics a subscription selects, as :func:`read_known` does; raises as it does.

    Args:
        source: where topics are read from.
        subscription: of the member.
        exclude_internal: ``exclude.internal.topics``.
    """
    names = None if subscription.topic_filter is not None else frozenset(subscription.topics)
    snapshot = read_known(source, names, for_others=False)  # the leader or the broker shares the partitions
    streams = subscription.expand(snapshot.topics(), exclude_internal=exclude_internal)
    return SubscribedTopics(snapshot.describe_topics(streams), streams)
