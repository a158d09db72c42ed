"""Members of an earlier version and of this one share a group: a rolling upgrade, and back, under load."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.fixtures.documents import ROOT
from tests.fixtures.sandbox import Topics, produce_records
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress

EARLIER = "785932a7567ebb3fbf726e9df75814bbc43ce962"
"""A commit of some days before, since no version was released yet."""
PARTITIONS = 6
WAIT_S = 200

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A directory into which the earlier version was installed, as a wheel that was built from its commit."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no history: this is not a checkout of git")
    archive = subprocess.run(["git", "-C", ROOT, "archive", EARLIER], capture_output=True, timeout=60, check=False)
    if archive.returncode:
        pytest.skip(f"the history does not have {EARLIER}: {archive.stderr.decode().strip()}")
    source, installed = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("earlier")
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True, timeout=60)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", installed, source], check=True, timeout=500)
    return installed


@pytest.fixture(scope="module")
def kafka4():
    """A broker that assigns the partitions of groups."""
    with Sandbox(kafka_version="4.2.0", zookeepers=0, progress=Progress()) as started:
        yield started


class Members:
    """Processes of one group; each writes its records as JSON to a file of its own."""

    def __init__(self, group, topic, properties, directory):
        self._directory = directory
        self.running = []
        self._started = 0
        self._options = ["--group", group, "--topic", topic, "--from-beginning", "--format", "json"]
        for name, value in {**properties, "auto.commit.interval.ms": 500, "rebalance.max.retries": 40}.items():
            self._options += ["-p", f"{name}={value}"]

    def start(self, version):
        """Start a member of the package in a directory."""
        self._started += 1
        output = self._directory / f"{self._started}.json"
        with output.with_suffix(".log").open("wb") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "zkconsumer", "consume", *self._options, "--output", output],
                    env={**os.environ, "PYTHONPATH": str(version)},
                    cwd=version,
                    stderr=log,
                )
            )

    def stop_first(self):
        """Stop the oldest member by SIGTERM, which commits."""
        process = self.running.pop(0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, self.logs()

    def wait_for(self, records):
        """Wait until these records were written, and each member has written some."""
        deadline = time.monotonic() + WAIT_S
        outputs = [self._directory / f"{number}.json" for number in range(1, self._started + 1)]
        while not (all(path.exists() and path.stat().st_size for path in outputs) and records <= set(self.records())):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)

    def records(self):
        """Partition and offset of each record that was written, in the order of the files."""
        lines = [line for path in self._directory.glob("*.json") for line in path.read_bytes().split(b"\n")[:-1]]
        return [(record["partition"], record["offset"]) for record in map(json.loads, lines)]

    def logs(self):
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("*.log")))


IN_ZOOKEEPER = {"zookeeper.connection.timeout.ms": 60000, "zookeeper.session.timeout.ms": 30000}
AT_BROKERS = {"session.timeout.ms": 30000, "heartbeat.interval.ms": 500}


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator"])
def test_members_are_upgraded_and_downgraded_one_by_one(sandbox, unique_name, tmp_path, earlier, protocol):
    properties = {"group.protocol": protocol, "zookeeper.connect": sandbox.zookeeper_connect, **IN_ZOOKEEPER}
    upgrade_and_downgrade(sandbox, earlier, unique_name, properties, tmp_path)


def test_members_of_a_group_of_brokers_are_upgraded_one_by_one(sandbox, unique_name, tmp_path, earlier):
    """With the assignor whose user data members of both versions read of each other."""
    strategy = {"partition.assignment.strategy": "zkconsumer"}
    properties = {"group.protocol": "kafka", "bootstrap.servers": sandbox.bootstrap_servers, **strategy, **AT_BROKERS}
    upgrade_and_downgrade(sandbox, earlier, unique_name, properties, tmp_path)


def test_members_are_upgraded_one_by_one_where_the_broker_assigns(kafka4, unique_name, tmp_path, earlier):
    properties = {"group.protocol": "consumer", "bootstrap.servers": kafka4.bootstrap_servers}
    upgrade_and_downgrade(kafka4, earlier, unique_name, properties, tmp_path)


def upgrade_and_downgrade(servers, earlier, name, properties, directory):
    """Replace two members of a group in turn while records are produced; each record is consumed exactly once."""
    topic = Topics(servers.bootstrap_servers).create(name, PARTITIONS)
    produced, ended = [], threading.Event()

    def feed():
        while not ended.wait(0.2):
            batch = [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(60)]
            produced.extend(produce_records(servers.bootstrap_servers, topic, batch))

    members = Members(name, topic, properties, directory)
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for version in (earlier, earlier, ROOT, ROOT, earlier, ROOT):
            if len(members.running) == 2:
                members.stop_first()
            members.start(version)
            members.wait_for(set(produced))
        ended.set()
        feeder.join()
        members.wait_for(set(produced))
        while members.running:
            members.stop_first()
    finally:
        ended.set()
        feeder.join()
        for process in members.running:
            process.kill()
            process.wait()
    assert sorted(members.records()) == sorted(produced), members.logs()
