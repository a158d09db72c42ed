from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import Broker
from zkconsumer.ranges.leaderconnections import PooledConnection
from zkconsumer.spark.worker import connections_for
from zkconsumer.wire.connection import BrokerConnection


def test_unused_connections_of_other_queries_are_closed():
    kept = {}

    def of(group):
        return connections_for(ConsumerConfig(zookeeper_connect="unused:1", group_id=group), kept)

    old, busy = of("old"), of("busy")
    connection = BrokerConnection("127.0.0.1", 1, client_id="test", timeout_ms=1000)
    old.return_connection(Broker(0, "127.0.0.1", 1), PooledConnection(connection))
    old.used_at -= 60
    assert of("busy") is busy
    assert connection._transport.closed
    assert of("old") is not old
