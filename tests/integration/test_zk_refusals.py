"""What a ZooKeeper server refuses: quota, size, and a server that has lost its quorum."""

import pytest

from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.errors import ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore
from zkconsumer.sandbox import ZooKeeperServer
from zkconsumer.sandbox.ports import free_port
from zkconsumer.zookeeper.fencedtransaction import Operation

pytestmark = pytest.mark.integration


def test_a_quota_that_is_used_up_is_named(start_zookeeper, open_session, caplog):
    server = start_zookeeper(properties={"enforceQuota": "true"})
    session = open_session(server.address)
    store = ZooKeeperOffsetStore(session, "g")
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    store.fetch([first, second])
    assert store.commit({first: 1}) == {first}
    with connected(server.address) as operator:
        operator.create(
            "/zookeeper/quota/consumers/g/zookeeper_limits",
            b"count=-1,bytes=-1;byteHardLimit=-1;countHardLimit=4",
            makepath=True,
        )
        operator.create("/zookeeper/quota/consumers/g/zookeeper_stats", b"count=4,bytes=1")
    assert store.commit({first: 2, second: 2}) == {first}
    assert "ZooKeeper refused create /consumers/g/offsets/t/1: a quota above the node is used up" in caplog.text
    with pytest.raises(ZooKeeperRefused, match="create /consumers/g/owners: a quota above"):
        session.ensure_path("/consumers/g/owners/t", None)


def test_a_request_that_is_too_long_names_its_size(start_zookeeper, open_session):
    connections = []
    session = open_session(start_zookeeper().address, on_connection=lambda: connections.append(True))
    with pytest.raises(ZooKeeperUnavailable, match=r"set /zookeeper.* 1100011 bytes .* jute.maxbuffer"):
        session.transact("/", [Operation("set", "/zookeeper", b"x" * 1_100_000)])
    eventually(lambda: len(connections) > 1)  # the request fails before the session hears of the broken connection
    assert session.exists("/") is not None


class OneOfTwo(ZooKeeperServer):
    """A server that serves reads, since the only other one of its ensemble was never started."""

    def is_serving(self) -> bool:
        return "Mode: read-only" in self.ask("srvr")

    def _command(self) -> list[str]:
        data = self.directory / "zookeeper"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text("1")
        command = [part.replace("ZooKeeperServerMain", "quorum.QuorumPeerMain") for part in super()._command()]
        return [command[0], "-Dreadonlymode.enabled=true", *command[1:]]


def test_a_server_without_a_quorum_is_not_used(start_zookeeper, open_session):
    peers = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2)}
    server = start_zookeeper(OneOfTwo, properties={"initLimit": "10", "syncLimit": "10", **peers})

    def refuses():
        with pytest.raises(ZooKeeperUnavailable) as raised:
            open_session(server.address, connection_timeout_ms=1500)
        return "have a quorum" in str(raised.value)  # the time may pass before the server has answered

    eventually(refuses)
