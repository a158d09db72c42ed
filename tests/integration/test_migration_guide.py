"""``migrate guide`` on a real ZooKeeper and broker; groups of JVM members are in ``tests/interop``."""

from contextlib import closing

import pytest

from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import take_over
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.migrate.guidewatch import GroupWatch, watch_group
from zkconsumer.operate.migrate.rules.guidance import Evidence
from zkconsumer.zookeeper.session import ZkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_a_watch_continues_after_its_session_expired(group_nodes, sandbox, cluster, topic_factory):
    topic = topic_factory()
    partition = TopicPartition(topic, 0)
    group_nodes.consume(topic, [0], 4)
    with closing(
        ZkSession(sandbox.zookeeper_connect, session_timeout_ms=30_000, connection_timeout_ms=20_000)
    ) as session:
        session.open()
        with closing(GroupWatch(session, cluster, group_nodes.name, [partition])) as watch:
            expired = session.session_id

            def look_until_the_session_expires():
                take_over(*session.takeover())  # without an effect if this client connects again before
                watch.look()
                return session.session_id != expired

            eventually(look_until_the_session_expires)
            for offset in (4, 5):  # a member with dual commit
                assert cluster.commit(group_nodes.name, {partition: StoredOffset(offset)}) == {}
                group_nodes.commit(topic, 0, offset)
            (seen,) = watch_group(watch, 60)
    assert (seen.owner, seen.evidence) == (f"{group_nodes.name}_c-0", Evidence.PROVEN)
    assert (seen.znode, seen.commits, seen.is_dual) == (5, (4, 5), True)
