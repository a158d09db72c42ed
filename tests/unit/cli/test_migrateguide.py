"""Which partitions of a group ``migrate guide`` watches."""

from contextlib import nullcontext

from click.testing import CliRunner

from tests.fixtures.groups import with_brokers, znodes_of_a_group
from zkconsumer.cli import migrateguide
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import Broker
from zkconsumer.operate.migrate import guidewatch


def test_partitions_of_a_topic_that_is_not_described_are_watched(monkeypatch):
    """Its members may be the last ones that store offsets in ZooKeeper alone."""
    znodes, watched = with_brokers(znodes_of_a_group(), Broker(1, "h", 1)), []
    znodes.write("/brokers/topics/secret", b"{")
    for topic in ("secret", "deleted"):
        znodes.write(f"/consumers/g/offsets/{topic}/0", b"5")

    def watch(_session, _cluster, _group, partitions):
        watched.extend(map(str, partitions))
        raise ZkConsumerError("enough")

    monkeypatch.setattr(migrateguide, "tool_session", lambda _config: nullcontext(znodes))
    monkeypatch.setattr(guidewatch, "GroupWatch", watch)
    CliRunner().invoke(migrateguide.guide_command, ["--zookeeper", "h:1", "--group", "g"])
    assert watched == ["secret-0", "t-0", "t-1"]


def test_the_refusal_of_a_marked_group_names_commands_with_servers(monkeypatch):
    znodes = with_brokers(znodes_of_a_group(), Broker(1, "h", 1))
    znodes.write("/consumers/g/zkconsumer/migrated", b"{}")
    monkeypatch.setattr(migrateguide, "tool_session", lambda _config: nullcontext(znodes))
    done = CliRunner().invoke(migrateguide.guide_command, ["--zookeeper", "h:1", "--group", "g"])
    assert "`zkconsumer migrate unmark --group g --zookeeper h:1`" in done.output
