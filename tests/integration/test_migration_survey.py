"""Surveys of groups on a real ZooKeeper and broker."""

import json
import shlex

import pytest
from click.testing import CliRunner

from tests.fixtures.migrations import is_record
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, our_metadata
from zkconsumer.operate.migrate.rules.surveyverdict import SurveyVerdict, survey
from zkconsumer.operate.migrate.survey import read_survey_facts
from zkconsumer.wire.rules.describedgroup import DEAD

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(filled_topic):
    """Two partitions with ten records each."""
    return filled_topic(10)


@pytest.fixture
def surveyed(tool_session, cluster):
    """Survey one group: ``surveyed(name) -> Survey``."""

    def run(name):
        (facts,) = read_survey_facts(tool_session, cluster.config, [name])
        return survey(facts)

    return run


def codes(found):
    return {one.code for one in found.findings}


def test_a_stopped_group_is_ready_and_nothing_is_written(offset_group, topic, surveyed):
    offset_group.store(topic, {0: 4, 1: 10})
    before = offset_group.tree()
    found = surveyed(offset_group.name)
    assert (found.verdict, found.facts.storage, found.facts.kafka.state) == (SurveyVerdict.READY, "zookeeper", DEAD)
    assert [(one.in_zookeeper.offset, one.log) for one in found.facts.partitions] == [(4, (0, 10)), (10, (0, 10))]
    assert all(release >= (3, 0) for release in found.facts.releases.values())
    assert len(found.facts.releases) == 1
    assert offset_group.tree() == before


def test_a_group_with_members_and_a_filter_is_running(group_nodes, topic, surveyed):
    group_nodes.register("a", {f"{topic[:-1]}\\d": 1}, pattern="white_list")
    for partition in range(2):
        group_nodes.own(topic, partition, "a")
        group_nodes.commit(topic, partition, 4)
    found = surveyed(group_nodes.name)
    assert (found.verdict, codes(found)) == (SurveyVerdict.RUNNING, {"members", "subscription"})


def test_partitions_without_an_offset_need_a_decision(offset_group, topic, surveyed):
    offset_group.store(topic, {0: 4})
    found = surveyed(offset_group.name)
    assert (found.verdict, found.facts.missing) == (SurveyVerdict.NOT_READY, [TopicPartition(topic, 1)])


def test_offsets_in_kafka_that_are_ahead_are_found(offset_group, topic, surveyed, cluster):
    offset_group.store(topic, {0: 4, 1: 4})
    assert cluster.commit(offset_group.name, {TopicPartition(topic, 0): StoredOffset(7)}) == {}
    found = surveyed(offset_group.name)
    assert (found.verdict, found.facts.storage, found.facts.kafka.state) == (SurveyVerdict.NOT_READY, "both", "Empty")
    assert "kafka-ahead" in codes(found)


def test_offsets_of_earlier_topics_in_kafka_are_none(offset_group, topic, surveyed, cluster):
    offset_group.store(topic, {0: 4})
    former = StoredOffset(7, our_metadata("1", "id-of-the-former-topic"))
    assert cluster.commit(offset_group.name, {TopicPartition(topic, number): former for number in range(2)}) == {}
    found = surveyed(offset_group.name)
    assert (found.facts.missing, "kafka-ahead" in codes(found)) == ([TopicPartition(topic, 1)], False)


def test_offsets_before_their_topic_are_a_warning(group_nodes, unique_name, filled_topic, surveyed):
    """The group has no record of the topic, since JVM members alone have committed."""
    for partition in range(2):
        group_nodes.commit(f"{unique_name}-t0", partition, 4)
    topic = filled_topic(10)
    group_nodes.commit(topic, 1, 10)
    found = surveyed(group_nodes.name)
    (warning,) = [one.text for one in found.findings if one.code == "before-topic"]
    assert (found.verdict, warning.partition(" were ")[0]) == (SurveyVerdict.READY, f"offsets of {topic}-0")


def test_a_group_that_lives_in_kafka_is_found(offset_group, topic, surveyed, sandbox):
    from confluent_kafka import Consumer

    offset_group.store(topic, {0: 4, 1: 4})
    consumer = Consumer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "group.id": offset_group.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        eventually(lambda: is_record(consumer.poll(0.5)))
        found = surveyed(offset_group.name)
    finally:
        consumer.close()
    assert found.facts.kafka == ("Stable", "consumer", 1)
    assert "kafka-group" in codes(found)


def test_offsets_of_receivers_are_not_taken_for_the_jvms(offset_group, topic, surveyed):
    offset_group.store(topic, {0: 4, 1: 4})
    offset_group.client.create(offset_group.path("owners", topic, 0), b"receiver", makepath=True)
    assert surveyed(offset_group.name).facts.layout == "last-processed"
    offset_group.client.delete(offset_group.path("owners", topic, 0))
    offset_group.client.create(offset_group.path("ids", topic, "Receiver-1"), b"", makepath=True)
    assert surveyed(offset_group.name).facts.layout == "last-processed"


def test_a_group_that_does_not_exist_is_an_error(surveyed, unique_name):
    with pytest.raises(ZkConsumerError, match="does not exist"):
        surveyed(unique_name)


def test_the_command_ends_with_3_when_not_ready(offset_group, topic, sandbox, tmp_path, monkeypatch):
    offset_group.store(topic, {0: 4})
    arguments = ["migrate", "survey", "--group", offset_group.name, "--zookeeper", sandbox.zookeeper_connect]
    ended = CliRunner().invoke(command, [*arguments, "--json"])
    document = json.loads(ended.stdout)
    assert (ended.exit_code, document["verdict"]) == (3, "not ready")
    assert "--missing earliest" in document["next"]
    monkeypatch.chdir(tmp_path)  # it names the file of the plan
    pasted = CliRunner().invoke(command, shlex.split(document["next"])[1:])
    assert pasted.exit_code == 0, pasted.output
    assert (tmp_path / f"{offset_group.name}.plan.json").exists()
    assert document["brokers"][0]["offsets_retention_minutes"] is not None
    text = CliRunner().invoke(command, arguments)
    assert text.exit_code == 3
    assert "have no offset" in text.stdout
    offset_group.client.create(offset_group.path("offsets", topic, 1), b"4")
    assert CliRunner().invoke(command, arguments).exit_code == 0


def test_a_topic_regex_for_librdkafka_selects_the_same_topics(topic_factory, topics, unique_name, sandbox):
    """With librdkafka's own engine, on a real broker."""
    from confluent_kafka import Consumer

    from zkconsumer.operate.migrate.rules.portableregex import portable_regex

    names = [topics.create(f"{unique_name}-{end}") for end in ("a1", "b2", "ab", "c3")]
    regex = portable_regex(rf"{unique_name}-(?:[a-z&&[^c]])\d").librdkafka
    consumer = Consumer(
        {"bootstrap.servers": sandbox.bootstrap_servers, "group.id": unique_name, "auto.offset.reset": "earliest"}
    )
    assigned: list[str] = []
    consumer.subscribe([regex], on_assign=lambda _, partitions: assigned.extend(p.topic for p in partitions))
    try:
        eventually(lambda: (consumer.poll(0.5), assigned)[1])
    finally:
        consumer.close()
    assert sorted(assigned) == sorted(names[:2])
