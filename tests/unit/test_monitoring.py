"""What ``docker/compose.monitoring.yaml`` mounts and connects is there, and Grafana's files fit each other."""

import json
import re
from urllib.parse import urlsplit

import pytest

from tests.fixtures.documents import ROOT

yaml = pytest.importorskip("yaml")

DOCKER = ROOT / "docker"
PROVISIONING = DOCKER / "grafana" / "provisioning"


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


def test_ports_are_published_on_loopback_only():
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert [
        port for port in published if not re.match(r"127\.0\.0\.1:\$\{ZKCONSUMER_\w+_PORT:-(\d+)\}:\1$", port)
    ] == []
