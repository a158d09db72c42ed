"""The stack with ``docker/compose.monitoring.yaml``: its Prometheus, its alerts, its dashboard.

Grafana itself does not run: `tests.fixtures.compose` says what stands for it.
"""

import json
import time
from collections.abc import Callable

import pytest
import yaml

from tests.fixtures.compose import ComposeStack
from tests.fixtures.documents import ROOT
from tests.fixtures.prometheus import DASHBOARD, Prometheus, queries
from tests.fixtures.sandbox import Topics, produce_records
from zkconsumer.sandbox.ports import HOST

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]  # the first test builds the images

TOPIC = "records"
GROUP = "example"
COUNT = 10
WITHIN_S = 180.0
RULES = yaml.safe_load((ROOT / "docker/prometheus/consumer-groups.yml").read_text(encoding="utf-8"))
PROVISIONING = "/etc/grafana/provisioning"


def until(stack: ComposeStack, condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {WITHIN_S:g} s\n{stack.errors()}"
        time.sleep(0.5)  # neither the engine nor Prometheus notifies: they must be polled


@pytest.fixture(scope="module")
def prometheus(monitored_stack: ComposeStack) -> Prometheus:
    """The server of the stack; it has the offsets of a group that has consumed all records of a topic."""
    stack = monitored_stack
    asked = Prometheus(f"http://{HOST}:{stack.prometheus_port}")
    until(stack, lambda: stack.health("kafka") == "healthy", "the broker is healthy")
    Topics(stack.bootstrap_servers).create(TOPIC, 2)
    produce_records(stack.bootstrap_servers, TOPIC, [(b"key", b"value")] * COUNT)
    query = f'sum(kafka_consumergroup_current_offset{{consumergroup="{GROUP}"}})'
    until(stack, lambda: asked.values(query) == [COUNT], "Prometheus has the offsets of the group")
    return asked


def test_prometheus_evaluates_each_alert(monitored_stack: ComposeStack, prometheus: Prometheus) -> None:
    until(monitored_stack, lambda: monitored_stack.health("serve") == "healthy", "serve is healthy")
    (group,) = prometheus.get("rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [rule["alert"] for rule in RULES["groups"][0]["rules"]]
    until(
        monitored_stack,
        lambda: {rule["health"] for rule in prometheus.get("rules")["groups"][0]["rules"]} == {"ok"},
        "each rule is evaluated",
    )


def test_grafana_finds_a_dashboard_whose_queries_its_data_source_answers(
    monitored_stack: ComposeStack, prometheus: Prometheus
) -> None:
    stack = monitored_stack
    (file,) = stack.list_in_grafana(f"{PROVISIONING}/dashboards")
    (provider,) = yaml.safe_load(stack.read_in_grafana(f"{PROVISIONING}/dashboards/{file}"))["providers"]
    directory = provider["options"]["path"]
    (name,) = stack.list_in_grafana(directory)
    dashboard = json.loads(stack.read_in_grafana(f"{directory}/{name}"))
    assert dashboard == DASHBOARD
    (file,) = stack.list_in_grafana(f"{PROVISIONING}/datasources")
    (source,) = yaml.safe_load(stack.read_in_grafana(f"{PROVISIONING}/datasources/{file}"))["datasources"]
    of_source = Prometheus(source["url"])
    asked = queries(dashboard, cluster=".*", consumergroup=GROUP, topic=TOPIC)
    del asked["Groups in trouble"]  # there are none
    urls = [of_source.address("query", query=query) for of_panel in asked.values() for query in of_panel]

    def all_have_results() -> bool:
        return all(answer["data"]["result"] for answer in stack.ask_from_grafana(urls))

    until(stack, all_have_results, "each query has a result")


def test_an_alert_is_raised_when_the_consumer_has_gone(monitored_stack: ComposeStack, prometheus: Prometheus) -> None:
    monitored_stack.run("stop", "consumer-1")
    produce_records(monitored_stack.bootstrap_servers, TOPIC, [(b"key", b"value")] * COUNT)
    # Pending, since it fires after minutes: tests/web/alerts.yml has when.
    raised = f'ALERTS{{alertname="ConsumerGroupWithoutMembers", consumergroup="{GROUP}"}}'
    until(monitored_stack, lambda: prometheus.values(raised) == [1], "the alert is raised")
