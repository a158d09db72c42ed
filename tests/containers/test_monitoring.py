"""The stack with ``docker/compose.monitoring.yaml``: Prometheus has the group of the stack, and the alerts."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable

import pytest
import yaml

from tests.fixtures.compose import ComposeStack
from tests.fixtures.documents import ROOT
from tests.fixtures.sandbox import Topics, produce_records
from zkconsumer.sandbox.ports import HOST

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]  # the first test builds the images

TOPIC = "records"
START_S = 180.0
RULES = yaml.safe_load((ROOT / "docker/prometheus/consumer-groups.yml").read_text(encoding="utf-8"))


def ask(stack: ComposeStack, path: str, **parameters: str):
    """The data of an answer of Prometheus; None while there is no answer."""
    query = urllib.parse.urlencode(parameters)
    try:
        url = f"http://{HOST}:{stack.prometheus_port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def until(stack: ComposeStack, condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {START_S:g} s\n{stack.errors()}"
        time.sleep(0.5)  # neither the engine nor Prometheus notifies: they must be polled


def test_prometheus_has_the_group_and_the_alerts(monitored_stack: ComposeStack) -> None:
    stack = monitored_stack
    until(stack, lambda: stack.health("kafka") == "healthy", "the broker is healthy")
    Topics(stack.bootstrap_servers).create(TOPIC, 2)
    produce_records(stack.bootstrap_servers, TOPIC, [(b"key", b"value")] * 10)

    def consumed() -> bool:
        query = 'sum(kafka_consumergroup_current_offset{consumergroup="example"})'
        found = ask(stack, "query", query=query)
        return bool(found and [float(one["value"][1]) for one in found["result"]] == [10])

    until(stack, consumed, "Prometheus has the offsets of the group")
    until(stack, lambda: stack.health("serve") == "healthy", "serve is healthy")
    (group,) = ask(stack, "rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [rule["alert"] for rule in RULES["groups"][0]["rules"]]
    until(
        stack,
        lambda: {rule["health"] for rule in ask(stack, "rules")["groups"][0]["rules"]} == {"ok"},
        "each rule is evaluated",
    )
