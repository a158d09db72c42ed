"""Fixtures of these tests. Here and not in the root's plugins, since testcontainers is slow to import."""

from tests.fixtures.compose import compose_stack, monitored_stack  # noqa: F401
from tests.fixtures.containers import (  # noqa: F401
    consumer_container,
    container_images,
    container_network,
    docker_engine,
    ensemble_containers,
    inner_kafka_container,
    kafka_container,
    spark_image,
    zookeeper_container,
)
