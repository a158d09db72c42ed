"""Which groups a new file of a fleet gets."""

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.topicorigins import NOT_STORED, JudgedOffset
from zkconsumer.operate.migrate.rules.fleetfound import found_groups
from zkconsumer.operate.migrate.rules.surveyverdict import SurveyedPartition, SurveyFacts, survey
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.rules.describedgroup import KafkaGroup

OFFSET = JudgedOffset(50)


def found(*, in_zookeeper=NOT_STORED, in_kafka=NOT_STORED):
    log = LogRange(10, 100)
    partition = SurveyedPartition(TopicPartition("t", 0), in_zookeeper=in_zookeeper, in_kafka=in_kafka, log=log)
    brokers = {"kafka": KafkaGroup("Dead"), "retention_minutes": {0: 7 * 24 * 60}, "releases": {0: (3, 9)}}
    (one,) = found_groups([survey(SurveyFacts("g", partitions=(partition,), **brokers))])
    return one.is_ready, one.note


def test_a_group_whose_offsets_are_all_in_kafka_is_in_no_wave():
    note = "ready, 0 members, 1 partitions"
    assert found(in_kafka=OFFSET) == (False, f"{note}: all offsets are in Kafka: no plan needed")
    assert found(in_zookeeper=OFFSET) == found(in_zookeeper=OFFSET, in_kafka=OFFSET) == (True, note)


def test_what_has_to_be_decided_is_named_as_in_the_file():
    is_ready, note = found()
    assert not is_ready
    assert 'decide where they begin (missing = "earliest" or missing = "latest")' in note
