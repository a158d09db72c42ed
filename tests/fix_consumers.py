"""Consumers of one group on the sandbox."""

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector


@pytest.fixture
def connect(sandbox, unique_name):
    """Make consumers of one group; all are shut down at the end."""
    made: list[ConsumerConnector] = []

    def connector(**values) -> ConsumerConnector:
        config = {
            "zookeeper_connect": sandbox.zookeeper_connect,
            "group_id": unique_name,
            "auto_offset_reset": "smallest",
            "zookeeper_session_timeout_ms": 10_000,
            "zookeeper_connection_timeout_ms": 20_000,
            "rebalance_backoff_ms": 600,
            "rebalance_max_retries": 20,
            "consumer_timeout_ms": 60_000,
        }
        made.append(ConsumerConnector(ConsumerConfig(**{**config, **values})))
        return made[-1]

    connector.group = unique_name
    yield connector
    for one in made:
        one.shutdown()
