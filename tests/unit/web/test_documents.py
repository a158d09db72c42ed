"""The documents of the API."""

from zkconsumer.web.documents import group_document, groups_document, history_document


def test_a_group_in_the_list(one_group):
    found = groups_document(one_group, 100.0)
    assert (found["sampled_ms"], found["interval_s"], found["stale"]) == (one_group.at_ms, 10.0, False)
    (line,) = found["groups"]
    assert (line["group"], line["status"], line["lag"], line["unknown"]) == ("g", "STALL", 3, 1)
    assert (line["partitions"], line["owned"], line["rebalances"]) == (2, 1, 1)
    assert line["consumed_per_s"] == 0.0


def test_a_group_has_its_partitions_and_the_age_of_the_sample(one_group):
    found = group_document(one_group, one_group.groups["g"], 131.0)
    assert found["stale"]
    assert [(one["partition"], one["lag"], one["committed"]) for one in found["partitions"]] == [
        (0, 3, 5),
        (1, None, None),
    ]


def test_history_has_a_column_for_each_partition_of_today(one_group):
    found = history_document(one_group, one_group.groups["g"], 100.0)
    assert found["at_ms"] == [90_000, 100_000]
    assert [one["lag"] for one in found["partitions"]] == [[3, 3], [None, None]]
    assert found["rebalances"] == [{"at_ms": 100_000, "partitions": 1, "joined": ("g_c",), "left": ()}]
