import dataclasses

import pytest

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import RetriableError, UsageError
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, Topic, TopicIdentity, TopicPartition
from zkconsumer.spark.clusterview import ClusterView
from zkconsumer.spark.groupsharing import GroupSharing
from zkconsumer.spark.rules.querystate import QueryState


def view(members=(), unshared=(), replaced=()):
    of_group = frozenset(members), frozenset()
    return ClusterView((), frozenset(), {}, *of_group, unshared=frozenset(unshared), replaced=frozenset(replaced))


def sharing(*views, shares=False, session_ms=1):
    """The group is in these states, one for each request."""
    config = ConsumerConfig(
        zookeeper_connect="h:1", group_id="g", zookeeper_session_timeout_ms=session_ms, group_share=shares
    )
    return GroupSharing(config, iter(views).__next__)


def assignment(owned, generation=1):
    thread = ConsumerThreadId("g_own", 0)
    partitions = {TopicPartition("t", number): AssignedPartition(thread) for number in range(owned)}
    topics = {"t": Topic((0, 1), TopicIdentity("id", 40))}
    return QueryState().assigned(FetchAssignment(generation, partitions, topics))


def test_a_member_that_was_killed_is_waited_for():
    old = view({"g_old"}, {"g_old"})
    assert sharing(old, old, view(), session_ms=600_000).await_admission() == view()
    assert sharing(old, old, view(), session_ms=600_000, shares=True).await_admission() == view()


def test_a_member_that_was_killed_is_waited_for_as_long_as_its_own_session_may_last():
    """The servers' least session is longer than what this query asks for, for example."""
    old = dataclasses.replace(view({"g_old"}, {"g_old"}), session_ms={"g_old": 600_000})
    assert sharing(old, old, view()).await_admission() == view()


def test_a_query_that_does_not_share_joins_no_live_member():
    with pytest.raises(UsageError, match="its members g_jvm, g_spark are live, and this query does not share it"):
        sharing(*[view({"g_spark", "g_jvm"})] * 10).await_admission()


def test_a_query_joins_no_member_that_does_not_share():
    with pytest.raises(UsageError, match="its members g_sole do not share it"):
        sharing(*[view({"g_sole", "g_jvm"}, {"g_sole"})] * 10, shares=True).await_admission()


def test_a_query_that_shares_joins_others_that_do():
    both = view({"g_a", "g_b"})
    assert sharing(both, shares=True).await_admission() == both
    sharing(shares=True).require_everything(assignment(1), "g_own")


def test_a_query_that_owns_everything_does_not_read_the_group():
    sharing().require_everything(assignment(2), "g_own")


def test_a_member_that_takes_a_share_is_named():
    with pytest.raises(UsageError, match=r"own a part of its partitions: g_jvm; with group\.share=false"):
        sharing(view({"g_own", "g_jvm"})).require_everything(assignment(1), "g_own")


def test_a_query_that_another_one_replaces_is_not_waited_for():
    killed = view({"g-1"}, replaced={"g-1"})
    assert sharing(killed).await_admission() == killed


def test_a_static_query_notices_the_member_that_takes_a_share():
    with pytest.raises(UsageError, match=r"own a part of its partitions: g-2; with group\.share=false"):
        sharing(view({"g-1", "g-2"}, replaced={"g-1"})).require_everything(assignment(1), "g_own")


def test_where_brokers_choose_the_ids_its_own_is_among_them():
    with pytest.raises(UsageError, match=r"partitions: g-1, g-2 \(this query is one of these\); with"):
        sharing(view({"g-1", "g-2"})).require_everything(assignment(1), "g_own")


def test_members_that_the_coordinator_does_not_report_are_asked_for_again():
    group = sharing(view(), view({"g_own", "g_jvm"}))
    with pytest.raises(RetriableError, match="the members of group g are unknown"):
        group.require_everything(assignment(1), "g_own")
    with pytest.raises(UsageError, match="g_jvm"):
        group.require_everything(assignment(1), "g_own")


def test_partitions_that_no_other_member_has_are_accepted():
    group = sharing(view({"g_own"}), view({"g_own", "g_jvm"}))
    group.require_everything(assignment(1), "g_own")
    group.require_everything(assignment(1), "g_own")  # of the same generation: not read again
    with pytest.raises(UsageError, match="g_jvm"):
        group.require_everything(assignment(1, generation=2), "g_own")
