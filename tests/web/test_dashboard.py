"""The queries of the Grafana dashboard and the alerts, in a real Prometheus that scrapes a real ``serve``."""

import json
import re
import subprocess
import time
from contextlib import ExitStack

import pytest

from tests.fixtures.documents import ROOT
from tests.fixtures.programs import require_for_web
from tests.fixtures.prometheus import DASHBOARD, Prometheus, queries
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer.sandbox.ports import HOST, free_port

pytestmark = pytest.mark.timeout(300)

PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
VARIABLES = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
COMMITTED = 2
CLUSTERS = ("a", "b", None)
"""``--cluster`` of each server that is scraped; all have the same groups and topics."""
ALL = ".*"
CONFIG = """
scrape_configs:
  - job_name: zkconsumer
    scrape_interval: 1s
    static_configs: [{{targets: {targets}}}]
"""


@pytest.fixture
def lagging(group, topic_factory, produce):
    """A topic of two partitions with five records each, of which a member has consumed two each; the topic."""
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": number % 2} for number in range(10)])
    group.consume(topic, (0, 1), COMMITTED)
    return topic


@pytest.fixture
def prometheus(sandbox, group, lagging, tmp_path):
    """Scrapes a server of this group for each cluster, twice already."""
    require_for_web("prometheus", package="prometheus")
    with ExitStack() as running:
        targets = []
        for cluster in CLUSTERS:
            named = () if cluster is None else ("--cluster", cluster)
            options = ("--interval", "300ms", "--match", group.name, *named)
            served = running.enter_context(serving(sandbox.zookeeper_connect, *options))
            targets.append(served.url.removeprefix("http://"))
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(targets=json.dumps(targets)))
        address = f"{HOST}:{free_port()}"
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        command += [f"--web.listen-address={address}", "--log.level=warn"]
        with subprocess.Popen(command) as process:
            try:
                started = Prometheus(f"http://{address}")
                scraped = "count(count_over_time(kafka_consumergroup_lag[1m]) >= 2)"
                eventually(lambda: started.values(scraped) == [2 * len(CLUSTERS)])
                yield started
            finally:
                process.terminate()


def until_scraped(condition):
    """Ask until the condition holds, for a minute: after a scrape that a busy machine answered too late nothing has a
    result. The caller says what is missing.
    """
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.parametrize(("cluster", "count"), [("a", 1), (ALL, len(CLUSTERS))])
def test_every_query_of_the_dashboard_has_results_for_each_cluster(prometheus, group, lagging, cluster, count):
    """Groups and topics of one name in several clusters are not added up, and a query does not fail of them."""
    found = {}

    def all_have_results():
        asked = queries(DASHBOARD, cluster=cluster, consumergroup=group.name, topic=lagging)
        for title, expressions in asked.items():
            for expression in expressions:
                found[title] = prometheus.values(expression)
        return all(len(values) >= count for values in found.values())

    until_scraped(all_have_results)
    assert [title for title, values in found.items() if len(values) < count] == []
    assert found["Lag by group"] == [6] * count
    assert found["Lag by partition"] == [3, 3] * count
    assert found["Members"] == [1] * count
    assert found["Groups by status"] == found["Groups in trouble"] == [1] * count
    assert found["Lag by offsets in ZooKeeper"] == [6] * count
    assert found["Records above the log start"] == [COMMITTED] * count


def test_alerts_fire_after_their_time():
    require_for_web("promtool", package="prometheus")
    command = ["promtool", "test", "rules", str(ROOT / "tests/web/alerts.yml")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_variables_list_clusters_groups_and_topics(prometheus, group, lagging):
    for name, expected in (("cluster", ["a", "b"]), ("consumergroup", [group.name]), ("topic", [lagging])):
        query = VARIABLES[name]["query"]["query"].replace("$cluster", ALL)
        metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
        found = []

        def is_listed(metric=metric, label=label, expected=expected, found=found):
            found[:] = [prometheus.get(f"label/{label}/values", **{"match[]": metric})]
            return found == [expected]

        until_scraped(is_listed)
        assert found == [expected]


def test_queries_of_dashboards_for_kafka_exporter_have_results(prometheus, group, lagging):
    for query in (
        f'sum(kafka_consumergroup_lag{{consumergroup="{group.name}", topic=~"{lagging}"}}) by (consumergroup, topic)',
        f'sum(delta(kafka_consumergroup_current_offset{{topic=~"{lagging}"}}[5m])/5) by (consumergroup, topic)',
        f'sum(rate(kafka_topic_partition_current_offset{{topic=~"{lagging}"}}[1m])) by (topic)',
        f'sum by(topic) (kafka_topic_partitions{{topic=~"{lagging}"}})',
        "kafka_consumergroup_lag_sum",
    ):
        found = []

        def has_results(query=query, found=found):
            found[:] = prometheus.values(query)
            return found

        until_scraped(has_results)
        assert found, query


def test_a_group_that_has_committed_nothing_can_be_chosen():
    """As none of the metrics of offsets has it."""
    assert "zkconsumer_consumergroup_status" in VARIABLES["consumergroup"]["query"]["query"]


def test_panels_use_the_variable_of_the_data_source():
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS.values())
    assert len({panel["id"] for panel in PANELS.values()}) == len(PANELS)
