"""The stack of ``docker/compose.yaml`` works again after each of its containers was restarted."""

import time
from collections.abc import Callable

import pytest

from tests.fixtures.compose import ComposeStack
from tests.fixtures.sandbox import Topics, produce_records

pytestmark = [pytest.mark.containers, pytest.mark.timeout(2400)]  # the first test builds the images

TOPIC = "records"
PARTITIONS = 4
CONSUMERS = ("consumer-1", "consumer-2")
SERVICES = ("zookeeper", "kafka", *CONSUMERS)
RECOVERY_S = 180.0


def until(stack: ComposeStack, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + RECOVERY_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {RECOVERY_S:g} s\n{stack.errors()}"
        time.sleep(0.5)  # the engine cannot notify: it must be polled


def owns_everything_evenly(stack: ComposeStack) -> bool:
    group = stack.describe_group(CONSUMERS[0])
    if group is None:
        return False
    owners = [row["owner"].rpartition("-")[0] for row in group["partitions"] if row["owner_live"]]
    return len(owners) == PARTITIONS and sorted(map(owners.count, set(owners))) == [PARTITIONS // 2] * 2


def works(stack: ComposeStack, kind: str) -> None:
    """Wait until the stack is healthy, both consumers own partitions, and each prints its own records."""
    for service in SERVICES:
        until(stack, lambda service=service: stack.health(service) == "healthy", f"{kind}: {service} is healthy")
    until(stack, lambda: owns_everything_evenly(stack), f"{kind}: two consumers share the partitions")
    # With keys, so that every partition gets records.
    values = {f"{kind}-{number}" for number in range(400)}
    produce_records(stack.bootstrap_servers, TOPIC, [(value.encode(), value.encode()) for value in sorted(values)])
    until(
        stack,
        lambda: values <= set.union(*(stack.values(consumer) for consumer in CONSUMERS)),
        f"{kind}: records are consumed",
    )
    for consumer in CONSUMERS:
        assert values & stack.values(consumer), f"{kind}: {consumer} printed nothing"


def test_the_stack_works_again_after_each_container_is_restarted(compose_stack: ComposeStack) -> None:
    until(compose_stack, lambda: compose_stack.health("kafka") == "healthy", "the broker is healthy")
    Topics(compose_stack.bootstrap_servers).create(TOPIC, PARTITIONS)
    works(compose_stack, "at-first")
    for service in SERVICES:
        before = compose_stack.started_at(service)
        compose_stack.run("restart", service)
        assert compose_stack.started_at(service) != before
        works(compose_stack, f"after-{service}")


def test_a_consumer_without_zookeeper_stays_healthy_and_reports_it(compose_stack: ComposeStack) -> None:
    def reported(consumer: str) -> bool:
        return "not connected to ZooKeeper" in compose_stack.run("exec", "-T", consumer, "zkconsumer", "health")

    for consumer in CONSUMERS:
        until(compose_stack, lambda consumer=consumer: compose_stack.health(consumer) == "healthy", f"{consumer} runs")
    until(compose_stack, lambda: not any(map(reported, CONSUMERS)), "the consumers are connected")
    compose_stack.run("stop", "zookeeper")
    until(compose_stack, lambda: all(map(reported, CONSUMERS)), "the consumers report it")
    compose_stack.run("start", "zookeeper")
    until(compose_stack, lambda: not any(map(reported, CONSUMERS)), "the consumers are connected again")
    assert {compose_stack.health(consumer) for consumer in CONSUMERS} == {"healthy"}
