"""What a sandbox refuses before it starts a server."""

import pytest

from zkconsumer.errors import UsageError
from zkconsumer.sandbox import Sandbox


def test_only_kafka_4_runs_without_a_zookeeper():
    with pytest.raises(UsageError, match=r"Kafka 3\.9\.1 needs a ZooKeeper"):
        Sandbox(kafka_version="3.9.1", zookeepers=0)
    assert not Sandbox(kafka_version="4.2.0", zookeepers=0).running
