"""``migrate guide`` beside JVM members that move their offsets to Kafka with two rolling restarts."""

import json

import pytest
from click.testing import CliRunner

from tests.fixtures.jvm import PATIENT_PROPERTIES
from tests.fixtures.waiting import eventually
from zkconsumer.cli.migrateguide import guide_command
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset

pytestmark = pytest.mark.timeout(1800)

IN_ZOOKEEPER = {"offsets_storage": "zookeeper"}
DUAL = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
IN_KAFKA = {"offsets_storage": "kafka", "dual_commit_enabled": "false"}
COMMITS = {"auto_commit_interval_ms": 500, "auto_offset_reset": "smallest"}


@pytest.fixture
def busy(topic_factory, feed):
    """A topic of two partitions to which records are produced all the time."""
    topic = topic_factory(partitions=2)
    feed(topic)
    return topic


@pytest.fixture
def members(group, busy):
    """Start a member, or restart it with other properties: ``members("a", storage)``."""
    running = {}

    def start(name, storage):
        if name in running:
            group.leave(running[name])
        running[name] = group.join_jvm(name, {busy: 1}, **COMMITS, **storage)

    return start


@pytest.fixture
def guide(group, sandbox):
    """Run the command until it reports a stage, since members may rebalance once more; its document and exit code.

    On a busy machine a watch may end before each member has committed: ``until`` is what it shows when all have.
    """

    def run(stage, watch="15s", until=lambda _: True):
        group.settle()
        found = {}

        def is_there():
            arguments = ["--zookeeper", sandbox.zookeeper_connect, "--group", group.name, "--watch", watch, "--json"]
            arguments += PATIENT_PROPERTIES
            done = CliRunner().invoke(guide_command, arguments)
            assert done.exit_code in (0, 3), done.output
            found.update(json.loads(done.output), exit_code=done.exit_code)
            return found["stage"] == stage and until(found)

        eventually(is_there, 300)
        return found

    return run


def owners_of(document):
    return {one["partition"]: one["owner"] for one in document["partitions"]}


def test_two_rolling_restarts_are_guided(group, members, guide, busy):
    members("a", IN_ZOOKEEPER)
    members("b", IN_ZOOKEEPER)
    contradicted = {"contradicted"}
    begin = guide("zookeeper", until=lambda found: {one["evidence"] for one in found["partitions"]} == contradicted)
    assert (begin["exit_code"], begin["obstacles"], begin["left_behind"]) == (0, [], [])

    members("a", DUAL)
    half = guide("mixed", until=lambda found: len(found["left_behind"]) == 1)
    assert half["exit_code"] == 3
    (behind,) = half["left_behind"]
    assert behind.startswith(f"{group.name}_b-")

    members("b", DUAL)
    dual = guide("dual", "60s", until=lambda found: not found["left_behind"])
    assert (dual["exit_code"], dual["left_behind"]) == (0, [])

    members("a", IN_KAFKA)
    # What is written after the first member's last commit to both stores shows that it commits to Kafka only.
    half = guide("dual", "60s", until=lambda found: found["left_behind"])
    (behind,) = half["left_behind"]
    assert behind.startswith(f"{group.name}_b-")
    assert half["exit_code"] == 3

    members("b", IN_KAFKA)
    end = guide("kafka", "60s", until=lambda found: not found["obstacles"] + found["warnings"])
    assert (end["exit_code"], end["obstacles"], end["warnings"]) == (0, [], [])
    assert set(owners_of(end).values()) == set(group.owners().values())


def test_an_old_offset_in_kafka_stops_dual_commit(group, members, guide, busy, cluster):
    members("a", IN_ZOOKEEPER)
    stale = [TopicPartition(busy, partition) for partition in range(2)]
    assert cluster.commit(group.name, dict.fromkeys(stale, StoredOffset(1_000_000_000))) == {}
    found = guide("zookeeper")
    assert found["exit_code"] == 3
    for obstacle, partition in zip(found["obstacles"], stale, strict=True):
        assert str(partition) in obstacle


def test_an_old_znode_is_in_the_way_back(group, members, guide, busy, zookeeper):
    members("a", IN_KAFKA)
    zookeeper.ensure_path(group.path("offsets", busy))
    for partition in range(2):
        zookeeper.create(group.path("offsets", busy, partition), b"1000000000" if partition else b"0")
    found = guide("kafka", "60s")
    (warning,) = found["warnings"]
    assert str(TopicPartition(busy, 1)) in warning
    assert found["exit_code"] == 0
