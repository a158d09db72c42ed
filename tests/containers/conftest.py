"""Fixtures of these tests. Here and not in the root's plugins, since testcontainers is slow to import."""

from tests.fix_compose import compose_stack  # noqa: F401
from tests.fix_containers import (  # noqa: F401
    consumer_container,
    container_images,
    container_network,
    docker_engine,
    kafka_container,
    zookeeper_container,
)
