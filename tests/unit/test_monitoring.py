"""What ``docker/compose.monitoring.yaml`` mounts and connects is there, and Grafana's files fit each other."""

import json
import re
from urllib.parse import urlsplit

import pytest

from tests.fixtures.documents import ROOT

yaml = pytest.importorskip("yaml")

DOCKER = ROOT / "docker"
PROVISIONING = DOCKER / "grafana" / "provisioning"


LISTED = ("consumergroup", "topic")
"""Variables whose values are those of the chosen clusters."""


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


SERVICES = load(DOCKER / "compose.monitoring.yaml")["services"]
MOUNTS = {
    target: DOCKER / source
    for service in SERVICES.values()
    for source, target, _ in (volume.split(":") for volume in service.get("volumes", ()))
}


def port_of(service):
    """The port that a service listens on."""
    (published,) = SERVICES[service]["ports"]
    return int(published.rpartition(":")[2])


def test_what_is_mounted_is_there():
    assert [source for source in MOUNTS.values() if not source.exists()] == []


def test_prometheus_scrapes_serve_at_a_name_that_it_answers_to():
    config = load(DOCKER / "prometheus" / "prometheus.yml")
    (target,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"serve:{port_of('serve')}"
    command = SERVICES["serve"]["command"]
    assert command[command.index("--listen") + 1] == f"0.0.0.0:{port_of('serve')}"
    assert command[command.index("--allow-host") + 1] == "serve"
    assert [name for name in config["rule_files"] if not (DOCKER / "prometheus" / name).exists()] == []


def test_grafana_asks_the_prometheus_of_the_stack():
    (source,) = load(PROVISIONING / "datasources" / "prometheus.yaml")["datasources"]
    assert urlsplit(source["url"]).netloc == f"prometheus:{port_of('prometheus')}"
    dashboard = json.loads((DOCKER / "grafana" / "consumer-groups.json").read_text(encoding="utf-8"))
    (variable,) = [one for one in dashboard["templating"]["list"] if one["type"] == "datasource"]
    assert (variable["query"], source["isDefault"]) == (source["type"], True)


def test_grafana_finds_the_dashboard():
    (provider,) = load(PROVISIONING / "dashboards" / "consumer-groups.yaml")["providers"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert MOUNTS[home] == DOCKER / "grafana" / "consumer-groups.json"
    assert home.rpartition("/")[0] == provider["options"]["path"]


def lost(given, kept, place="dashboard"):
    """The places of values in one JSON value that the other one does not have."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [one for name, value in given.items() for one in lost(value, kept.get(name), f"{place}.{name}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = enumerate(zip(given, kept, strict=True))
        return [one for number, pair in pairs for one in lost(*pair, f"{place}[{number}]")]
    return [] if given == kept else [place]


def test_the_schema_of_grafana_has_each_field_of_the_dashboard():
    schema = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="comes with the extra `test`")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    dashboard = json.loads((DOCKER / "grafana" / "consumer-groups.json").read_text(encoding="utf-8"))
    # Reading it leaves out what the schema does not have.
    assert lost(dashboard, json.loads(json.dumps(schema.Dashboard.from_json(dashboard), cls=JSONEncoder))) == []
    dashboard["panels"][0]["targets"][0]["exprr"] = "up"
    kept = json.loads(json.dumps(schema.Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert lost(dashboard, kept) == ["dashboard.panels[0].targets[0].exprr"]


def test_the_schema_is_that_of_the_grafana_of_the_stack():
    (image,) = re.findall(r":-grafana/grafana:([\d.]+)\}", SERVICES["grafana"]["image"])
    assert f"grafana-foundation-sdk==1769699379!{image}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


SELECTED = re.compile(r"\b(?:kafka|zkconsumer)_\w+(?:\{([^}]*)\})?")


def test_each_query_of_the_dashboard_keeps_clusters_apart():
    dashboard = json.loads((DOCKER / "grafana" / "consumer-groups.json").read_text(encoding="utf-8"))
    variables = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["name"] in LISTED]
    for query in [*(target["expr"] for panel in dashboard["panels"] for target in panel["targets"]), *variables]:
        assert all(labels.startswith('cluster=~"$cluster"') for labels in SELECTED.findall(query)), query
        assert re.findall(r"\b(?:by|on|without|ignoring) \((?!cluster, )", query) == [], query
    assert len(variables) == len(LISTED)


def test_ports_are_published_on_loopback_only():
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert [
        port for port in published if not re.match(r"127\.0\.0\.1:\$\{ZKCONSUMER_\w+_PORT:-(\d+)\}:\1$", port)
    ] == []
