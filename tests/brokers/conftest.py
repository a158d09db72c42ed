"""The tests in this directory run against real brokers of many releases."""

from collections.abc import Iterator

import pytest

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.offsetwrites import OffsetGroup
from tests.fixtures.zookeeper import connected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/brokers/" in item.path.as_posix():
            item.add_marker(pytest.mark.brokers)
            item.add_marker(pytest.mark.timeout(600))  # the first test of a release starts its servers


@pytest.fixture
def group(broker: VersionedBroker, unique_name: str) -> Iterator[OffsetGroup]:
    """A group on ZooKeeper with offsets of two partitions of a topic of its name, which have ten records each."""
    topic = broker.create_topic(unique_name[-40:], 2)
    broker.produce(topic, [{"value": b"v", "partition": number % 2} for number in range(20)])
    with connected(broker.sandbox.zookeeper_connect) as client:
        made = OffsetGroup(topic, client)
        made.store(topic, {0: 4, 1: 7})
        yield made
