"""The ends of a migration, as texts and as values."""

import doctest

import pytest

from tests.fixtures.migrationplans import SOURCE, TARGET, plan
from zkconsumer.operate.migrate.rules import migrationend
from zkconsumer.operate.migrate.rules.migrationend import End, check_ends, check_servers, parse_end


def test_examples():
    assert doctest.testmod(migrationend).failed == 0


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["zookeeper:g", "kafka:g", "zookeeper:g@h:1", "zookeeper:a@b@h:1,i:2/x/y", "zookeeper:g@home", "kafka:a@h:1"],
)
def test_an_end_is_written_as_it_was_read(text):
    assert str(parse_end(text)) == text


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("zookeeper:g@home", End("zookeeper", "g@home")),
        ("zookeeper:a@b@h:1/x", End("zookeeper", "a@b", "h:1/x")),
        ("kafka:a@h:1", End("kafka", "a@h:1")),
    ],
)
def test_servers_are_recognised_by_their_port(text, end):
    assert parse_end(text) == end


@pytest.mark.parametrize(
    "text",
    ["", "g", "kafka", "kafka:", "zookeeper:", "zookeeper:a/b", "zookeeper:..", "redis:g", "storm:id", "storm:/a/../b"],
)
def test_another_end_is_refused(text):
    with pytest.raises(ValueError, match="no end of a migration"):
        parse_end(text)


@pytest.mark.parametrize("end", [SOURCE, TARGET])
def test_both_ends_in_one_store_are_refused(end):
    with pytest.raises(ValueError, match="one kind of store"):
        check_ends(end, end)


def test_a_receiver_is_not_overwritten_by_its_own_offsets():
    check_ends(parse_end("dibbhatt:/consumers/h"), SOURCE)
    with pytest.raises(ValueError, match="would be overwritten"):
        check_ends(parse_end("dibbhatt:/consumers/g"), SOURCE)


@pytest.mark.parametrize("text", ["storm:/r/id", "dibbhatt:/p/id", "spark:/c"])
def test_an_end_that_is_only_read_is_no_target(text):
    check_ends(parse_end(text), TARGET)
    with pytest.raises(ValueError, match="can only be read"):
        check_ends(SOURCE, parse_end(text))


@pytest.mark.parametrize(
    ("source", "target", "group"),
    [(SOURCE, TARGET, "g"), (TARGET, End("zookeeper", "h"), "h"), (parse_end("storm:/r/id"), TARGET, None)],
)
def test_a_group_in_zookeeper_is_held(source, target, group):
    assert plan(source=source, target=target).held_group == group


@pytest.mark.parametrize(
    ("source", "target", "has_servers", "servers"),
    [
        ("zookeeper:g@a:1/x", "kafka:g", True, "a:1/x"),
        ("kafka:g", "zookeeper:g@a:1", False, "a:1"),
        ("kafka:g", "zookeeper:g", False, None),
        ("storm:/s/id@a:1", "zookeeper:g@b:1/kafka", False, "b:1/kafka"),
        ("storm:/s/id@a:1", "zookeeper:g", True, None),
        ("storm:/s/id@a:1", "kafka:g", True, None),
        ("storm:/s/id@a:1", "kafka:g", False, "a:1"),
    ],
)
def test_servers_of_an_end_apply_to_that_end(source, target, has_servers, servers):
    assert check_servers(parse_end(source), parse_end(target), has_servers=has_servers) == servers


def test_a_group_is_not_written_into_the_zookeeper_of_a_spout():
    with pytest.raises(ValueError, match=r"write zookeeper:g@HOST:PORT"):
        check_servers(parse_end("storm:/s/id@a:1"), parse_end("zookeeper:g"), has_servers=False)
