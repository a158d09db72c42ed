"""Names in user pages: properties, metrics and errors are those of the code."""

import builtins
import re

import pytest

import zkconsumer
from tests.fixtures.documents import ROOT, examples, prose
from zkconsumer.config.consumerconfig import PROPERTIES
from zkconsumer.connector.consumermetrics import METRICS

PAGES = (
    "README",
    "docs/delivery",
    "docs/deployment",
    "docs/migration",
    "docs/operations",
    "docs/programs",
    "docs/quickstart",
    "docs/security",
    "docs/streams",
    "docs/troubleshooting",
    "docs/upgrades",
)
# Settings of brokers, ZooKeeper servers, JVM clients and Spark.
OTHERS = {
    "bootstrap.servers",
    "broker.rack",
    "replica.fetch.wait.max.ms",
    "replica.selector.class",
    "connections.max.reauth.ms",
    "controller.quorum.voters",
    "enable.auto.commit",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "jute.maxbuffer",
    "kerberos.removeHostFromPrincipal",
    "kerberos.removeRealmFromPrincipal",
    "offsets.retention.minutes",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "spark.executorEnv.KRB5_CLIENT_KTNAME",
    "sasl.jaas.config",
    "spark.streaming.stopGracefullyOnShutdown",
    "topology.message.timeout.secs",
    "zookeeper.metadata.migration.enable",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.migration.policy",
    "group.consumer.session.timeout.ms",
}
NAMES = {row.name for row in PROPERTIES.values()}


@pytest.mark.parametrize("page", PAGES)
def test_properties_exist(page):
    path = ROOT / f"{page}.md"
    named = re.findall(r"`([a-z]+(?:\.[a-zA-Z0-9_]+)+)(?:=[^`]*)?`", prose(path))
    named += [
        line.split("=")[0]
        for block in examples(path, "properties")
        for line in block.splitlines()
        if line[:1] not in ("", "#")
    ]
    files = {name for name in named if name.endswith((".md", ".py", ".conf", ".cfg", ".json", ".properties"))}
    calls = {name for name in named if name.split(".")[0] in ("os", "zkconsumer", "java", "kafka", "pyarrow")}
    assert sorted(set(named) - files - calls - OTHERS - NAMES) == []


def test_properties_are_accepted_as_they_are_written(tmp_path):
    """As a file: a comment after a value would be a part of the value."""
    blocks = examples(ROOT / "docs/security.md", "properties")
    assert blocks
    for block in blocks:
        file = tmp_path / "consumer.properties"
        file.write_text(f"zookeeper.connect=h:2181\ngroup.id=g\n{block}", encoding="utf-8")
        config = zkconsumer.ConsumerConfig.from_properties(file)
        written = [line.partition("=") for line in block.splitlines() if not line.startswith("#")]
        found = {name: getattr(config, name.replace(".", "_")) for name, _, _ in written}
        assert found == {name: {"true": True}.get(value, value) for name, _, value in written}


def test_metrics_exist():
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"zkconsumer_[a-z_]+", text)) <= {metric.name for metric in METRICS}


@pytest.mark.parametrize("page", PAGES)
def test_errors_exist(page):
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\brais\w+ `(\w+)`", text))
    places = (zkconsumer, builtins)
    assert [name for name in sorted(named) if not any(hasattr(place, name) for place in places)] == []
