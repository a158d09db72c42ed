"""The bytes of the coordinator's znodes, and what is rejected."""

import zlib

import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.group.coordinator.rules import coordinatorznodes
from zkconsumer.group.coordinator.rules.coordinatorznodes import (
    MOST_BYTES,
    Command,
    CommandNode,
    LeaderNode,
    PolicyNode,
    Status,
    StatusNode,
    consumer_id_of,
    session_node_of,
)
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths

PATHS = CoordinatorPaths("g")
PATH = PATHS.command("g_c-1", 255, 0)


def share(**threads):
    """``share(t=[[0, 1], [2]])``: per topic the partitions of each consumer thread."""
    return {
        TopicPartition(topic, partition): ConsumerThreadId("g_c-1", number)
        for topic, numbers in threads.items()
        for number, partitions in enumerate(numbers)
        for partition in partitions
    }


def test_a_policy_names_an_assignor():
    assert PolicyNode.decode("/p", b'{"assignor":"roundrobin"}') == "roundrobin"
    assert PolicyNode.decode("/p", b'{"assignor":"sticky","comment":"ignored"}') == "sticky"


@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]", b'{"assignor":"best"}', b'{"assignor":["sticky"]}', b"\xff"])
def test_a_policy_that_names_none_is_malformed(data):
    with pytest.raises(MalformedZnode):
        PolicyNode.decode("/p", data)


def test_paths_are_below_the_nodes_of_zkconsumer():
    assert PATH == "/consumers/g/zkconsumer/coordinator/commands/g_c-1@00000000000000ff.0"
    assert PATHS.epoch == "/consumers/g/zkconsumer/coordinator/epoch"
    assert PATHS.leader == "/consumers/g/zkconsumer/coordinator/leader"
    assert PATHS.status == "/consumers/g/zkconsumer/coordinator/status"
    assert PATHS.policy == "/consumers/g/zkconsumer/coordinator/policy"
    assert PATHS.candidate(2) == "/consumers/g/zkconsumer/coordinator/candidate-2"
    assert consumer_id_of(PATH) == "g_c-1"
    assert session_node_of("g", PATH) == GroupPaths("g").session("g_c-1", 255)


def test_a_command_names_ranges_by_thread():
    command = Command(share(t=[[0, 1, 2, 3, 7], [4, 5]], u=[[], [0]]), 8, 21)
    data = CommandNode.encode(command)
    assert data == b'{"version":1,"epoch":8,"generation":21,"share":{"t":["0-3,7","4-5"],"u":["","0"]}}'
    assert CommandNode.decode(PATH, data) == command
    assert CommandNode.encode(Command(dict(reversed(command.share.items())), 8, 21)) == data


def test_a_command_has_the_eviction_of_its_member():
    evicted = Command({}, 3, 7, "it hangs", 6000)
    encoded = CommandNode.encode(evicted)
    assert encoded == b'{"version":1,"epoch":3,"generation":7,"share":{},"refused":"it hangs","evicted_ms":6000}'
    assert CommandNode.decode(PATH, encoded) == evicted


def test_a_command_names_brokers_for_the_first_request():
    named = Command({}, 3, 7, brokers=(Broker(1, "a", 9092), Broker(5, "b", 9093)), security_protocol="SSL")
    encoded = CommandNode.encode(named)
    assert encoded.endswith(b',"brokers":{"SSL":[[1,"a",9092],[5,"b",9093]]}}')
    decoded = CommandNode.decode(PATH, encoded)
    assert (decoded.brokers, decoded.security_protocol) == (named.brokers, "SSL")
    assert decoded == Command({}, 3, 7), "brokers come and go without a new command"


def test_a_long_document_is_compressed():
    """Otherwise servers would close the connection of the leader, and of each of its successors."""
    topics = {TopicPartition(f"{'topic' * 48}-{number}", 0): ConsumerThreadId("g_c-1", 0) for number in range(4500)}
    command = Command(topics, 1, 1)
    data = CommandNode.encode(command)
    assert len(data) < MOST_BYTES / 5
    assert CommandNode.decode(PATH, data) == command
    status = Status(1, 1, 1, frozenset(topics))
    assert len(StatusNode.encode(status)) < MOST_BYTES / 5
    assert StatusNode.decode(PATHS.status, StatusNode.encode(status)) == status


@pytest.mark.parametrize("data", [b"\xff\xfe", zlib.compress(b"{}" * 99)[:-4], zlib.compress(b"{" + b" " * 1000)])
def test_a_document_that_cannot_be_unpacked_is_malformed(data, monkeypatch):
    monkeypatch.setattr(coordinatorznodes, "_MOST_UNPACKED", 1000)
    with pytest.raises(MalformedZnode):
        CommandNode.decode(PATH, data)


def test_only_what_is_longer_than_the_limit_is_compressed(monkeypatch):
    command = Command(share(t=[[0]]), 1, 1)
    plain = CommandNode.encode(command)
    monkeypatch.setattr(coordinatorznodes, "_PLAIN_BYTES", len(plain))
    assert CommandNode.encode(command) == plain
    monkeypatch.setattr(coordinatorznodes, "_PLAIN_BYTES", len(plain) - 1)
    assert CommandNode.encode(command) == zlib.compress(plain)


def test_a_document_that_is_too_long_when_unpacked_is_malformed(monkeypatch):
    """Its beginning would be a command."""
    data = CommandNode.encode(Command(share(t=[[0]]), 1, 1))
    monkeypatch.setattr(coordinatorznodes, "_MOST_UNPACKED", 1000)
    assert CommandNode.decode(PATH, zlib.compress(data + b" " * 500)) == Command(share(t=[[0]]), 1, 1)
    with pytest.raises(MalformedZnode, match="too long"):
        CommandNode.decode(PATH, zlib.compress(data + b" " * 2000))


def test_a_command_has_at_most_so_many_partitions(monkeypatch):
    monkeypatch.setattr(coordinatorznodes, "_MOST_PARTITIONS", 3)
    most = Command(share(t=[[0, 1, 2]]), 1, 1)
    assert CommandNode.decode(PATH, CommandNode.encode(most)) == most
    for too_many in (share(t=[[0, 1, 2, 3]]), share(t=[[0, 1], [2, 3]])):
        with pytest.raises(MalformedZnode):
            CommandNode.decode(PATH, CommandNode.encode(Command(too_many, 1, 1)))
    status = Status(1, 1, 1, frozenset(share(t=[[0, 1, 2, 3]])))
    with pytest.raises(MalformedZnode, match="partitions 0-3"):
        StatusNode.decode(PATHS.status, StatusNode.encode(status))


def test_an_empty_share_is_a_command_and_an_empty_node_is_none():
    nothing = Command({}, 1, 1)
    assert CommandNode.decode(PATH, CommandNode.encode(nothing)) == nothing
    assert CommandNode.decode(PATH, b"") is None
    assert CommandNode.decode(PATH, None) is None


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"epoch":1,"generation":1}',
        b'{"epoch":1,"generation":1,"share":{"t":[5]}}',
        b'{"epoch":1,"generation":1,"share":{"..":["0"]}}',
        b'{"epoch":1,"generation":1,"share":{"t":["3-1"]}}',
        b'{"epoch":1,"generation":1,"share":{"t":["x"]}}',
        b'{"epoch":1,"generation":1,"share":{"t":["0","0"]}}',
        b'{"epoch":1,"generation":1,"share":{"t":["0-9999999999999"]}}',
        b'{"epoch":null,"generation":1,"share":{}}',
        b'{"epoch":1,"generation":1,"share":{},"brokers":["h:9092"]}',
        b'{"epoch":1,"generation":1,"share":{},"brokers":{"SSL":[[1,"h"]]}}',
    ],
)
def test_what_no_leader_wrote_is_reported_with_its_path(data):
    with pytest.raises(MalformedZnode, match="g_c-1@"):
        CommandNode.decode(PATH, data)


@pytest.mark.parametrize("decode", [CommandNode.decode, LeaderNode.decode, StatusNode.decode, PolicyNode.decode])
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"epoch":Infinity,"generation":1,"share":{},"consumer":"g_c"}',
        b'{"epoch":1e999,"generation":1,"share":{},"consumer":"g_c"}',
        b'{"epoch":1,"generation":1,"members_version":-Infinity,"awaited":{},"refused":"","consumer":{},"share":[]}',
    ],
)
def test_json_that_cannot_be_read_costs_one_znode(decode, data):
    with pytest.raises(MalformedZnode):
        decode(PATH, data)


def test_the_leader_node_names_consumer_and_epoch():
    assert LeaderNode.encode("g_c", 3) == b'{"version":1,"consumer":"g_c","epoch":3}'
    assert LeaderNode.decode(PATHS.leader, LeaderNode.encode("g_c", 3)) == ("g_c", 3)
    with pytest.raises(MalformedZnode):
        LeaderNode.decode(PATHS.leader, b"{}")


def test_the_status_names_awaited_partitions_as_ranges():
    awaited = frozenset(TopicPartition(topic, number) for topic in "cba" for number in (0, 1, 5))
    status = Status(8, 21, 40, awaited, "ü")
    data = StatusNode.encode(status)
    assert (
        data
        == (
            '{"version":1,"epoch":8,"generation":21,"members_version":40,'
            '"awaited":{"a":"0-1,5","b":"0-1,5","c":"0-1,5"},"refused":"ü"}'
        ).encode()
    )
    assert StatusNode.decode(PATHS.status, data) == status


def test_the_status_names_the_members_that_it_waits_for():
    status = Status(8, 21, 40, waits_for={"g_b": 1700000000000, "g_a": None})
    data = StatusNode.encode(status)
    assert data.endswith(b',"waits_for":{"g_a":null,"g_b":1700000000000}}')
    assert StatusNode.decode(PATHS.status, data) == status


@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]", b'{"awaited":{"t":5}}'])
def test_what_is_no_status_is_reported(data):
    with pytest.raises(MalformedZnode, match="status"):
        StatusNode.decode(PATHS.status, data)
