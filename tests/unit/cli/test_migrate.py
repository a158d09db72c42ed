"""What a survey of many groups prints last."""

import pytest

from zkconsumer.cli.migrate import total_lines
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.topicorigins import JudgedOffset
from zkconsumer.operate.migrate.rules.surveyverdict import SurveyedPartition, SurveyFacts, survey
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.rules.describedgroup import KafkaGroup

INIT = "zkconsumer migrate fleet init fleet --zookeeper h:1"


def surveyed(group, kafka):
    partition = SurveyedPartition(TopicPartition("t", 0), in_zookeeper=JudgedOffset(50), log=LogRange(10, 100))
    brokers = {"retention_minutes": {0: 7 * 24 * 60}, "releases": {0: (3, 9)}}
    return survey(SurveyFacts(group, partitions=(partition,), kafka=kafka, **brokers))


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        (["Dead", "Stable", "Dead"], ["3 groups: 2 ready, 1 not ready: g1", f"next: {INIT}"]),
        (["Dead", "Dead"], ["2 groups: 2 ready", f"next: {INIT}"]),
        (["Stable", "Stable"], ["2 groups: 2 not ready: g0, g1"]),
    ],
)
def test_the_last_line_names_the_groups_that_are_not_ready(states, lines):
    surveys = [surveyed(f"g{number}", KafkaGroup(state, "", 1)) for number, state in enumerate(states)]
    assert list(total_lines(surveys, INIT)) == lines
