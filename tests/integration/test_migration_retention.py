"""How long Kafka keeps migrated offsets, on a broker that keeps them for a minute."""

from contextlib import ExitStack, closing

import pytest

from tests.fixtures.fetch import brokers_of
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.migrationmark import remove_mark
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import make_plan
from zkconsumer.operate.migrate.rules.planfile import encode_plan
from zkconsumer.operate.migrate.rules.surveyverdict import Level, survey
from zkconsumer.operate.migrate.run import run_plan
from zkconsumer.operate.migrate.survey import read_survey_facts
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.zookeeper.session import ZkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


def test_offsets_stay_as_long_as_the_plan_asks_for(private_sandbox, tmp_path):
    """Two groups of the same offsets: one expires, and the survey had warned of it."""
    box = private_sandbox(
        kafka_properties={"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    )
    Topics(box.bootstrap_servers).create("t", 1)
    produce_records(box.bootstrap_servers, "t", [b"a", b"b", b"c"])
    config = ConsumerConfig(zookeeper_connect=box.zookeeper_connect, group_id="tools")
    partition = TopicPartition("t", 0)
    with (
        connected(box.zookeeper_connect) as client,
        closing(ZkSession.from_config(config)) as session,
        ExitStack() as clusters,
    ):
        session.open()
        cluster = clusters.enter_context(closing(Cluster(config, brokers_of(box.bootstrap_servers), session)))
        for group, retention_ms in (("short", None), ("long", 3_600_000)):
            client.create(f"/consumers/{group}/offsets/t/0", b"2", makepath=True)
            ends = MigrationEnds(session, cluster, End("zookeeper", group), End("kafka", group))
            plan = make_plan(
                ends.source,
                ends.target,
                session.address,
                ends.observe(),
                missing="fail",
                retention_ms=retention_ms,
                now_ms=1,
            )
            file = tmp_path / f"{group}.plan.json"
            file.write_text(encode_plan(plan), encoding="utf-8")
            assert run_plan(ends, plan, file).faults == []
        remove_mark(session, "short")  # of a group with a mark nothing else is reported
        (facts,) = read_survey_facts(session, config, ["short"])
        assert ("retention", Level.WARNING) in {(one.code, one.level) for one in survey(facts).findings}
        eventually(lambda: cluster.committed("short", [partition]) == {}, 180)
        assert cluster.committed("long", [partition])[partition].offset == 2
