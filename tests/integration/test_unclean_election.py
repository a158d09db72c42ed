"""A group whose position is lost in an unclean leader election, while the log grows past it again."""

import threading

import pytest
from kazoo.client import KazooClient

from tests.fixtures.uncleanelection import NEW_ROWS, OLD_ROWS, RECOVERY_S, unclean_election
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_group_reads_what_an_unclean_leader_wrote_before_its_position(private_sandbox, unique_name, caplog):
    box = private_sandbox(brokers=3)
    topic = f"{unique_name}-t"
    rows = []
    config = ConsumerConfig(
        zookeeper_connect=box.zookeeper_connect,
        group_id=unique_name,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=200,
        zookeeper_session_timeout_ms=30_000,
    )

    def read(stream):
        rows.extend((message.offset, message.value) for message in stream)

    zookeeper = KazooClient(box.zookeeper_connect)
    zookeeper.start()

    def committed():
        path = f"/consumers/{unique_name}/offsets/{topic}/0"
        return zookeeper.exists(path) and int(zookeeper.get(path)[0])

    with unclean_election(box, topic) as election:
        with ConsumerConnector(config) as connector:
            (stream,) = connector.create_message_streams({topic: 1})[topic]
            reading = threading.Thread(target=read, args=[stream])
            reading.start()
            eventually(lambda: committed() == 30, RECOVERY_S)
            election.elect()
            eventually(lambda: committed() == 50, RECOVERY_S)
        reading.join()
    zookeeper.stop()
    zookeeper.close()
    assert rows == OLD_ROWS + NEW_ROWS
    assert f"the new leader of {topic}-0 has lost the records at offsets 10 to 29" in caplog.text
