"""What docs/deployment.md has one copy: the unit of systemd, the manifest of Kubernetes, the sizing, JSON logs."""

import json
import logging
import re
import shutil
import subprocess
import sys

import pytest

from tests.fixtures.documents import ROOT, examples
from tests.unit.docs.test_examples import resolve
from zkconsumer import ConsumerConfig
from zkconsumer.cli.main import command

PAGE = ROOT / "docs/deployment.md"
UNIT = ROOT / "examples/systemd/zkconsumer@.service"
MANIFEST = ROOT / "docker/kubernetes/consumer.yaml"
PROGRAM = "/opt/zkconsumer/bin/zkconsumer"
MIB = 1 << 20


def documents():
    """The documents of the manifest, and the package that has the schemas."""
    schemas = pytest.importorskip("kubernetes_validate", reason="comes with the extra `test` of setup.cfg")
    import yaml

    return list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))), schemas


def check_command(words):
    """A command line of ours has a command and options that exist."""
    found, rest = resolve(command, words)
    options = {name for parameter in found.params for name in parameter.opts}
    assert [word for word in rest if word.startswith("-") and word not in options] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing; apt install systemd")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "zkconsumer@orders.service"
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(PROGRAM, sys.executable), encoding="utf-8")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_command_of_the_unit_exists():
    text = UNIT.read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", text, re.MULTILINE)
    check_command(line.split())


def test_kubernetes_accepts_the_manifest():
    found, schemas = documents()
    for document in found:
        schemas.validate(document, schemas.latest_version(), strict=True)


def test_commands_and_properties_of_the_manifest_exist(tmp_path):
    (properties, deployment), _ = documents()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    check_command(container["args"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        program, *words = container[probe]["exec"]["command"]
        assert program == "zkconsumer"
        check_command(words)
    file = tmp_path / "consumer.properties"
    file.write_text(properties["data"]["consumer.properties"], encoding="utf-8")
    config = ConsumerConfig.from_properties(file)
    assert (config.group_id, config.metrics_host, config.max_stream_idle_ms) == ("orders", "0.0.0.0", 600_000)


def test_the_example_of_sizing_is_computed_right():
    text = PAGE.read_text(encoding="utf-8").replace("\n", " ")
    waits, streams, queue, partitions, fetch, _, batch, bound = map(
        int, re.search(r"bound is (\d+) \+ (\d+) x (\d+) \+ (\d+) x (\d+) \+ (\d+) x (\d+) = (\d+) MiB", text).groups()
    )
    config = ConsumerConfig(zookeeper_connect="h:1", group_id="g")
    assert (queue, fetch) == (config.queued_max_bytes // MIB, config.fetch_message_max_bytes // MIB)
    assert bound == waits + streams * queue + partitions * fetch + streams * batch
    assert f"with 8 MiB the bound is {bound - streams * (queue - 8)} MiB" in text


def test_lines_of_the_log_become_json(capsys):
    (example,) = [block for block in examples(PAGE, "python") if "JsonLines" in block]
    logger = logging.getLogger("zkconsumer")
    former = (logger.handlers[:], logger.level, logger.propagate)
    try:
        exec(example, {})
        logging.getLogger("zkconsumer.events").info("group %s: joined", "g")
    finally:
        logger.handlers, logger.level, logger.propagate = former
    written = json.loads(capsys.readouterr().err)
    assert (written["level"], written["message"]) == ("INFO", "group g: joined")
