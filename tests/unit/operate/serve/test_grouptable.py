"""Which groups the list shows, and in which order."""

import pytest

from zkconsumer.errors import UsageError
from zkconsumer.operate.serve.grouptable import MOST, GroupQuery, choose_part, parse_query


def line(group, status="OK", severity=0, lag=0, lag_s=None):
    return {"group": group, "status": status, "severity": severity, "lag": lag, "lag_s": lag_s}


LINES = [
    line("Svc-a", "STOP", 5, 10, 3.0),
    line("svc-b", "OK", 0, 99),
    line("other", "STOP", 5, 70, 1.0),
    line("svc-c", "WARN", 3, 5, 900.0),
]


def names(**asked):
    return [one["group"] for one in choose_part(LINES, GroupQuery(**asked)).lines]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["Svc-a", "other", "svc-b", "svc-c"]),
        ({"sort": "worst"}, ["other", "Svc-a", "svc-c", "svc-b"]),
        ({"sort": "worst", "descending": True}, ["svc-b", "svc-c", "Svc-a", "other"]),
        ({"sort": "lag", "descending": True}, ["svc-b", "other", "Svc-a", "svc-c"]),
        ({"sort": "lag_s"}, ["other", "Svc-a", "svc-c", "svc-b"]),
        ({"sort": "lag_s", "descending": True}, ["svc-c", "Svc-a", "other", "svc-b"]),
        ({"search": "SVC"}, ["Svc-a", "svc-b", "svc-c"]),
        ({"statuses": frozenset({"STOP", "WARN"}), "sort": "worst"}, ["other", "Svc-a", "svc-c"]),
        ({"first": 1, "count": 2}, ["other", "svc-b"]),
        ({"first": 9}, []),
    ],
)
def test_order_and_choice(asked, expected):
    assert names(**asked) == expected


def test_counts_are_those_of_all_states_that_the_search_finds():
    part = choose_part(LINES, GroupQuery(search="svc", statuses=frozenset({"OK"}), count=1))
    assert part.counts == {"STOP": 1, "OK": 1, "WARN": 1}
    assert part.total == 1


def test_a_query_of_a_url():
    asked = {"search": "a b", "status": "STOP,NO MEMBERS", "sort": "-lag", "first": "20", "count": "10"}
    assert parse_query(asked) == GroupQuery("a b", frozenset({"STOP", "NO MEMBERS"}), "lag", True, 20, 10)
    assert parse_query({}) == GroupQuery()
    assert parse_query({"status": ""}).statuses == frozenset()
    assert parse_query({"count": "9" * 30}).count == MOST


@pytest.mark.parametrize("asked", [{"sort": "reason"}, {"first": "-1"}, {"count": "x"}, {"count": "\u0663"}])
def test_a_query_without_meaning_is_refused(asked):
    with pytest.raises(UsageError, match=r"is (one of|a number)"):
        parse_query(asked)
