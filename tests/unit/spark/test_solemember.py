import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.core.groupview import Topic
from zkconsumer.errors import UsageError
from zkconsumer.model import ConsumerThreadId, TopicIdentity, TopicPartition
from zkconsumer.spark.solemember import SoleMember


def sole(*answers, session_ms=1):
    """The group has these members, one answer for each request."""
    config = ConsumerConfig(zookeeper_connect="h:1", group_id="g", zookeeper_session_timeout_ms=session_ms)
    return SoleMember(config, iter(answers).__next__)


def assignment(owned, generation=1):
    threads = {TopicPartition("t", number): ConsumerThreadId("g_own", 0) for number in range(owned)}
    return FetchAssignment(generation, threads, {}, topics={"t": Topic((0, 1), TopicIdentity("id", 40))})


def test_a_member_that_was_killed_is_waited_for():
    sole({"g_old"}, {"g_old"}, (), session_ms=600_000).await_empty_group()


def test_a_group_with_a_live_member_is_refused_by_name():
    with pytest.raises(UsageError, match=r"has live members: g_jvm, g_spark; with group\.share=false"):
        sole(*[{"g_spark", "g_jvm"}] * 10).await_empty_group()


def test_a_query_that_owns_everything_does_not_read_the_group():
    sole().require_everything(assignment(2), "g_own")


def test_a_member_that_takes_a_share_is_named():
    with pytest.raises(UsageError, match=r"own a part of its partitions: g_jvm; with group\.share=false"):
        sole({"g_own", "g_jvm"}).require_everything(assignment(1), "g_own")


def test_where_brokers_choose_the_ids_its_own_is_among_them():
    with pytest.raises(UsageError, match=r"partitions: g-1, g-2 \(this query is one of these\); with"):
        sole({"g-1", "g-2"}).require_everything(assignment(1), "g_own")


def test_partitions_that_no_other_member_has_are_accepted():
    group = sole({"g_own"}, {"g_own", "g_jvm"})
    group.require_everything(assignment(1), "g_own")
    group.require_everything(assignment(1), "g_own")  # of the same generation: not read again
    with pytest.raises(UsageError, match="g_jvm"):
        group.require_everything(assignment(1, generation=2), "g_own")
