"""Fixtures for pytest: ``pytest_plugins = ["zkconsumer.testing.pytest_plugin"]`` in the topmost ``conftest.py``.

Imports are inside of the fixtures: a test session that uses none of them pays for none.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from zkconsumer.sandbox import ZooKeeperServer
    from zkconsumer.testing.cluster import KafkaCluster
    from zkconsumer.testing.containers import ZooKeeperContainer
    from zkconsumer.testing.group import ConsumerGroup

_LONGEST_NAME = 60


class Servers(NamedTuple):
    """The servers of a test session."""

    zookeeper: ZooKeeperServer | ZooKeeperContainer
    kafka: KafkaCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the servers come from."""
    group = parser.getgroup("zkconsumer", "ZooKeeper and Kafka for tests of consumers")
    group.addoption(
        "--zkconsumer-servers",
        choices=["sandbox", "containers"],
        default="sandbox",
        help="sandbox: from jars, without Docker (the default); containers: from images",
    )
    group.addoption(
        "--zkconsumer-zookeeper-image", metavar="IMAGE", default="zkconsumer/zookeeper", help="image of ZooKeeper"
    )
    group.addoption(
        "--zkconsumer-kafka-image", metavar="IMAGE", default="zkconsumer/kafka", help="image of Kafka, up to 3.9"
    )
    group.addoption(
        "--zkconsumer-kafka-environment",
        metavar="PREFIX",
        help="prefix of environment variables that the image of Kafka makes settings of: KAFKA_ or KAFKA_CFG_",
    )


@pytest.fixture(scope="session")
def zkconsumer_servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """One ZooKeeper and one broker for the whole test session."""
    start = _containers if request.config.getoption("--zkconsumer-servers") == "containers" else _sandbox
    with start(request.config) as servers:
        yield servers


@pytest.fixture(scope="session")
def zookeeper(zkconsumer_servers: Servers) -> ZooKeeperServer | ZooKeeperContainer:
    """The ZooKeeper server: ``address``, ``pause()``, ``resume()``, ``kill()``, ``restart()``."""
    return zkconsumer_servers.zookeeper


@pytest.fixture(scope="session")
def kafka_cluster(zkconsumer_servers: Servers) -> KafkaCluster:
    """The cluster: ``bootstrap_servers``, ``zookeeper_connect``, ``create_topic()``, ``produce()``."""
    return zkconsumer_servers.kafka


@pytest.fixture
def consumer_group(kafka_cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[ConsumerGroup]:
    """A group of the test's own: ``consumer()``, ``expire_session()``, ``cut()``, ``heal()``, ``describe()``."""
    from zkconsumer.testing.group import ConsumerGroup

    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")[:_LONGEST_NAME]
    with ConsumerGroup(f"{test}-{uuid.uuid4().hex[:8]}", kafka_cluster.zookeeper_connect) as group:
        yield group


@contextlib.contextmanager
def _sandbox(_: pytest.Config) -> Iterator[Servers]:
    from zkconsumer.sandbox import Sandbox
    from zkconsumer.testing.cluster import KafkaCluster

    with Sandbox() as box:
        yield Servers(box.zookeeper, KafkaCluster(box.zookeeper_connect, box.bootstrap_servers))


@contextlib.contextmanager
def _containers(config: pytest.Config) -> Iterator[Servers]:
    from testcontainers.core.network import Network

    from zkconsumer.testing.cluster import KafkaCluster
    from zkconsumer.testing.containers import KafkaContainer, ZooKeeperContainer

    with (
        Network() as network,
        ZooKeeperContainer(config.getoption("--zkconsumer-zookeeper-image"), network=network) as zookeeper,
        KafkaContainer(
            config.getoption("--zkconsumer-kafka-image"),
            network=network,
            environment=config.getoption("--zkconsumer-kafka-environment"),
        ) as kafka,
    ):
        yield Servers(zookeeper, KafkaCluster(zookeeper.address, kafka.bootstrap_servers))
