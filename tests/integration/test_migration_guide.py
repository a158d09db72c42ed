"""``migrate guide`` on a real ZooKeeper and broker; groups of JVM members are in ``tests/interop``."""

from contextlib import closing

import pytest

from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import take_over
from zkconsumer.core.migrationguide import Evidence
from zkconsumer.core.offsets import StoredOffset
from zkconsumer.errors import SessionExpired
from zkconsumer.model import TopicPartition
from zkconsumer.tools.migrationguide import GroupWatch, watch_group
from zkconsumer.zookeeper.session import ZkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class ExpiringSession(ZkSession):
    """A session that the servers end right before each read of znodes, until a read has failed by it."""

    expiries: int | None = None

    def get_many(self, paths):
        if self.expiries == 0:
            servers, identity = self.takeover()
            take_over(servers, identity)
            eventually(lambda: not self.connected or self.session_id != identity[0])
        try:
            return super().get_many(paths)
        except SessionExpired:
            self.expiries += 1
            raise


def test_a_watch_continues_after_its_session_expired(group_nodes, sandbox, cluster, topic_factory):
    topic = topic_factory()
    partition = TopicPartition(topic, 0)
    group_nodes.consume(topic, [0], 4)
    with closing(
        ExpiringSession(sandbox.zookeeper_connect, session_timeout_ms=30_000, connection_timeout_ms=20_000)
    ) as session:
        session.open()
        with closing(GroupWatch(session, cluster, group_nodes.name, [partition])) as watch:
            session.expiries = 0

            def look_until_the_session_expires():
                watch.look()
                return session.expiries

            eventually(look_until_the_session_expires)
            for offset in (4, 5):  # a member with dual commit
                assert cluster.commit(group_nodes.name, {partition: StoredOffset(offset)}) == {}
                group_nodes.commit(topic, 0, offset)
            (seen,) = watch_group(watch, 60)
    assert (seen.owner, seen.evidence) == (f"{group_nodes.name}_c-0", Evidence.PROVEN)
    assert (seen.znode, seen.commits, seen.is_dual) == (5, (4, 5), True)
