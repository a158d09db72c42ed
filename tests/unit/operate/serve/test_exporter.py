"""The page of metrics, as Prometheus's own parser reads it."""

import dataclasses
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.documents import ROOT
from tests.fixtures.groups import followed, group_znodes
from tests.unit.operate.serve.conftest import group_snapshot, lag_sample, snapshot
from zkconsumer.model import TopicPartition
from zkconsumer.operate.serve.exporter import METRICS, exposition


def series(page):
    """Every series of a page, by name, then by the values of its labels."""
    found = {}
    for family in text_string_to_metric_families(page):
        assert family.type == "gauge"
        assert family.documentation == METRICS[family.name]
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_all_that_is_known_has_a_series(one_group):
    found = series(exposition(one_group, 100.0))
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 3}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 3}
    assert found["kafka_consumergroup_current_offset"] == {("g", "t", "0"): 5}
    assert found["kafka_consumergroup_current_offset_sum"] == {("g", "t"): 5}
    assert found["kafka_consumergroupzookeeper_lag_zookeeper"] == {("g", "t", "0"): 3}
    assert found["kafka_consumergroup_members"] == {("g",): 1}
    assert found["kafka_topic_partition_current_offset"] == {("t", "0"): 8, ("t", "1"): 8}
    assert found["kafka_topic_partition_oldest_offset"] == {("t", "0"): 0, ("t", "1"): 0}
    assert found["kafka_topic_partitions"] == {("t",): 2}
    assert found["zkconsumer_consumergroup_status"] == {("g", "STALL"): 1}
    assert METRICS.keys() - found.keys() == {
        "zkconsumer_consumergroup_former_status",
        "zkconsumer_consumergroup_lag_seconds",
    }


def test_a_group_that_could_not_be_read_has_its_status_alone(one_group):
    one_group.groups["g"] = dataclasses.replace(one_group.groups["g"], unread="no broker answers")
    found = series(exposition(one_group, 100.0))
    assert found["zkconsumer_consumergroup_status"] == {("g", "UNKNOWN"): 1}
    assert found["zkconsumer_consumergroup_former_status"] == {("g", "STALL"): 1}
    assert not any(name.startswith("kafka_") for name in found)


def test_the_age_of_lag_has_a_series_where_it_is_known():
    samples = [lag_sample(30.0, committed=5, log_end=5), lag_sample(100.0, committed=5, log_end=12)]
    found = series(exposition(snapshot(group_snapshot({"t-0": samples})), 100.0))
    assert found["zkconsumer_consumergroup_lag_seconds"] == {("g", "t", "0"): 70.0}


def test_each_series_has_the_label_of_the_cluster(one_group):
    found = series(exposition(one_group, 100.0, 'e"u'))
    assert found["kafka_consumergroup_lag"] == {('e"u', "g", "t", "0"): 3}
    assert found["zkconsumer_serve_problems"] == {('e"u',): 0}


def test_a_log_of_two_groups_has_one_series():
    groups = [group_snapshot({"t-0": [lag_sample()]}, znodes=group_znodes(topics={"t": 1})) for _ in range(2)]
    taken = snapshot(groups[0])
    page = exposition(taken.__class__(0.0, 0, 0.0, 1.0, {"a": groups[0], "b": groups[1]}, ()), 0.0)
    assert page.count("\nkafka_topic_partition_current_offset{") == 1


@pytest.mark.parametrize("committed", [None, -1])
def test_unknown_values_have_no_series(committed):
    unknown = group_snapshot({"t-0": [lag_sample(committed=committed, log_end=None, log_start=None)]})
    found = series(exposition(snapshot(unknown), 100.0))
    assert {name for name in found if name.startswith("kafka")} == {
        "kafka_consumergroup_members",
        "kafka_topic_partitions",
    }


def test_groups_of_a_stale_snapshot_are_unknown_and_have_no_other_series(one_group):
    found = series(exposition(one_group, 200.0))
    assert found["zkconsumer_consumergroup_status"] == {("g", "UNKNOWN"): 1}
    assert found["zkconsumer_serve_sample_timestamp_seconds"] == {(): 1_700_000_100.0}
    assert not {name for name in found if name.startswith("kafka")}


def test_without_a_sample_the_page_has_only_its_problems():
    assert series(exposition(None, 0.0)) == {"zkconsumer_serve_problems": {(): 0}}


def test_a_sample_that_fails_is_a_problem_beside_those_of_the_last_one():
    assert series(exposition(None, 0.0, failure="no broker answers"))["zkconsumer_serve_problems"] == {(): 1}
    taken = dataclasses.replace(snapshot(group_snapshot({"t-0": [lag_sample()]})), problems=("one", "two"))
    assert series(exposition(taken, 100.0, failure="no broker answers"))["zkconsumer_serve_problems"] == {(): 3}


def test_labels_may_have_any_character():
    name = 'a"b\\n\\c\nd<e>\u202e'
    taken = snapshot(
        group_snapshot({"t-0": [lag_sample()]}).__class__(
            group_znodes(), {TopicPartition(name, 0): followed([lag_sample()])}, 2, (), ()
        )
    )
    assert series(exposition(taken, 100.0))["kafka_consumergroup_lag"] == {("g", name, "0"): 3}


def test_every_metric_is_in_the_documentation():
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `((?:kafka|zkconsumer)_\w+)` \|", page, re.MULTILINE)) == METRICS.keys()
