"""Topics that are deleted and created again, with more records than the group had consumed, on a real broker."""

import json
import threading
from contextlib import closing
from functools import partial

import pytest
from click.testing import CliRunner

from tests.fixtures.consumers import collect
from tests.fixtures.fetch import brokers_of
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.scriptedserver import SilentServer, running
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.errors import BrokerUnavailable, RetriableError
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, our_metadata
from zkconsumer.spark.batchplan import plan_batch_read
from zkconsumer.spark.rules.options import parse_options
from zkconsumer.wire.brokerclient import BrokerClient

pytestmark = pytest.mark.integration

OLD, NEW = 40, 300


@pytest.fixture
def create_again(sandbox, unique_name):
    """Create the topic, or delete it and create it again, and produce: ``create_again([b"1", ..])``."""
    topics = Topics(sandbox.bootstrap_servers)
    created = []

    def create(produced):
        if created:
            topics.delete(unique_name)
        created.append(topics.create(unique_name))
        produce_records(sandbox.bootstrap_servers, unique_name, [{"value": value} for value in produced])

    return create


def settings(protocol, **others):
    """Of a member that starts at the end of a log where it finds no offset, and commits often."""
    return {
        "group_protocol": protocol,
        "auto_offset_reset": "largest",
        "auto_commit_interval_ms": 100,
        "rebalance_backoff_ms": 1000,
        "consumer_timeout_ms": -1,
        **others,
    }


IN_KAFKA = {"offsets_storage": "kafka", "dual_commit_enabled": False, "auto_commit_enable": False}
"""Brokers delete these offsets with the topic."""


@pytest.mark.parametrize(("protocol", "store"), [("zookeeper", {}), ("coordinator", {}), ("zookeeper", IN_KAFKA)])
def test_a_running_member_reads_the_new_topic_from_its_start(connect, create_again, unique_name, protocol, store):
    old, new = values(OLD), values(NEW, start=OLD)
    create_again(old)
    member = connect(**settings(protocol, auto_offset_reset="smallest", **store))
    received = collect(member.create_message_streams({unique_name: 1})[unique_name])
    eventually(lambda: set(received) == set(old))
    if store:
        member.commit_offsets()
    create_again(new)
    eventually(lambda: set(received) >= set(new))


def test_assign_uses_no_stored_offset_before_a_broker_has_described_the_topic(
    connect, create_again, sandbox, unique_name
):
    """The stored offset may be of an earlier topic; who assigns again when brokers answer reads from the start."""
    old, new = values(OLD), values(NEW, start=OLD)
    stored = {TopicPartition(unique_name, 0): None}
    create_again(old)
    reader = connect(**settings("zookeeper"))
    first = reader.create_message_streams({unique_name: 1})[unique_name][0]
    reader.commit_offsets({TopicPartition(unique_name, 0): OLD})
    first.close()
    reader.shutdown()
    create_again(new)
    with running(SilentServer) as silent:
        address = f"{silent.broker.host}:{silent.broker.port}"
        with pytest.raises(BrokerUnavailable, match="check that brokers run"):
            connect(**settings("zookeeper", bootstrap_servers=address)).assign(stored)
    received = collect([connect(**settings("zookeeper", bootstrap_servers=sandbox.bootstrap_servers)).assign(stored)])
    eventually(lambda: received == new)


def test_a_topic_that_is_created_again_while_a_listener_runs_is_read_from_its_start(
    connect, topics, create_again, unique_name
):
    """The brokers have deleted the offset, and the attempt began before that: it must not continue at its position."""
    old, new = values(OLD), values(NEW, start=OLD)

    class CreatesAgain(ConsumerRebalanceListener):
        def before_releasing_partitions(self, partitions):
            if may_create.acquire(blocking=False):
                create_again(new)

    may_create = threading.Semaphore(0)
    create_again(old)
    other = topics.create(f"{unique_name}-other")
    member = connect(**settings("zookeeper", auto_offset_reset="smallest", **IN_KAFKA))
    member.set_rebalance_listener(CreatesAgain())
    received = collect(member.create_message_streams({unique_name: 1, other: 1})[unique_name])
    eventually(lambda: set(received) == set(old))
    member.commit_offsets()
    may_create.release()
    topics.grow(other, 2)
    eventually(lambda: set(received) >= set(new))


def test_a_commit_that_comes_too_late_is_recognised_in_kafka(connect, sandbox, create_again, unique_name):
    """The brokers have deleted the offsets of the former topic when a member commits one of them."""
    new = values(NEW)
    create_again(new)
    late = StoredOffset(OLD, our_metadata("1", "id-of-the-former-topic"))
    servers = partial(brokers_of, sandbox.bootstrap_servers)
    with closing(BrokerClient(servers, client_id="late", timeout_ms=10_000)) as client:
        coordinator = OffsetCoordinator(client, connect.group)

        def is_committed():
            try:
                return coordinator.commit({TopicPartition(unique_name, 0): late}).accepted
            except RetriableError:  # the topic of offsets is being created
                return False

        eventually(is_committed)
    brokers = {"bootstrap_servers": sandbox.bootstrap_servers, "zookeeper_connect": None}
    member = connect(**settings("kafka", **brokers))
    received = collect(member.create_message_streams({unique_name: 1})[unique_name])
    eventually(lambda: set(received) >= set(new))


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator"])
def test_a_member_that_was_away_reads_the_new_topic_from_its_start(connect, create_again, unique_name, protocol):
    create_again(values(OLD))
    with connect(**settings(protocol, auto_offset_reset="smallest")) as member:
        received = collect(member.create_message_streams({unique_name: 1})[unique_name])
        eventually(lambda: set(received) == set(values(OLD)))
        member.commit_offsets()
    new = values(NEW, start=OLD)
    create_again(new)
    member = connect(**settings(protocol))
    received = collect(member.create_message_streams({unique_name: 1})[unique_name])
    eventually(lambda: set(received) >= set(new))


def test_a_member_continues_where_a_tool_has_put_the_offset_in_the_new_topic(
    connect, sandbox, create_again, unique_name, tmp_path
):
    """Brokers describe the topic, so that nothing but the record shows when it was created."""
    described = settings("zookeeper", bootstrap_servers=sandbox.bootstrap_servers)
    create_again(values(OLD))
    with connect(**{**described, "auto_offset_reset": "smallest"}) as member:
        received = collect(member.create_message_streams({unique_name: 1})[unique_name])
        eventually(lambda: set(received) == set(values(OLD)))
        member.commit_offsets()
    new = values(NEW, start=OLD)
    create_again(new)
    servers = ["--zookeeper", sandbox.zookeeper_connect, "--bootstrap-server", sandbox.bootstrap_servers]
    words = ["offsets", "reset", *servers, "--group", connect.group, "--topic", unique_name, "--to-offset", "100"]
    done = CliRunner().invoke(command, [*words, "--snapshot", str(tmp_path / "snapshot"), "--execute"])
    assert done.exit_code == 0, (done.output, done.exception)
    member = connect(**described)
    received = collect(member.create_message_streams({unique_name: 1})[unique_name])
    eventually(lambda: set(received) >= set(new[100:]))
    assert set(received) == set(new[100:])


@pytest.mark.parametrize("noticed", [False, True])
def test_a_commit_by_request_skips_no_record_of_the_new_topic(connect, create_again, unique_name, noticed):
    """The records that the user commits are of the former topic; without ``noticed`` the member still owns it."""
    releases, may_release = threading.Event(), threading.Event()

    class Waiting(ConsumerRebalanceListener):
        def before_releasing_partitions(self, partitions):
            if partitions:
                releases.set()
                may_release.wait(60)

    create_again(values(OLD))
    settled = settings("zookeeper", auto_offset_reset="smallest", auto_commit_enable=False)
    with connect(**settled) as member:
        member.set_rebalance_listener(Waiting())
        stream = member.create_message_streams({unique_name: 1})[unique_name][0]
        assert [next(stream).value for _ in range(OLD)] == values(OLD)
        generation = member.describe().generation
        if noticed:
            may_release.set()
        new = values(NEW, start=OLD)
        create_again(new)
        assert releases.wait(60)
        if noticed:
            eventually(lambda: member.describe().generation > generation and member.describe().owned)
        member.commit_offsets({TopicPartition(unique_name, 0): OLD})
        may_release.set()
    member = connect(**settled)
    received = collect(member.create_message_streams({unique_name: 1})[unique_name])
    eventually(lambda: set(received) >= set(new))


def test_a_reader_that_joins_no_group_commits_nothing_of_the_former_topic(connect, create_again, unique_name):
    """It has read further than the next member, which begins with the first record of the new topic."""
    partition = TopicPartition(unique_name, 0)
    old, new = values(OLD), values(NEW, start=OLD)
    create_again(old)
    settled = settings("zookeeper", auto_offset_reset="smallest", auto_commit_enable=False)
    with connect(**settled) as reader:
        stream = reader.assign({partition: None})
        assert [next(stream).value for _ in range(OLD)] == old
        reader.commit_offsets()
        create_again(new)
        assert next(stream).value in new
        reader.commit_offsets()
    member = connect(**settled)
    received = collect(member.create_message_streams({unique_name: 1})[unique_name])
    eventually(lambda: set(received) >= set(new))


def test_readers_that_join_no_group_begin_with_the_new_topic(connect, sandbox, create_again, unique_name):
    create_again(values(OLD))
    with connect(**settings("zookeeper", auto_offset_reset="smallest")) as member:
        received = collect(member.create_message_streams({unique_name: 1})[unique_name])
        eventually(lambda: set(received) == set(values(OLD)))
        member.commit_offsets()
    new = values(NEW, start=OLD)
    create_again(new)
    words = ["--zookeeper", sandbox.zookeeper_connect, "--group", connect.group, "--json"]
    described = CliRunner().invoke(command, ["groups", "describe", *words])
    assert [one["committed"] for one in json.loads(described.stdout)["partitions"]] == [None], described.output
    assert f"earlier topics of that name, so they count as none: {unique_name}-0 ({OLD})" in described.stderr
    explained = CliRunner().invoke(command, ["groups", "explain", *words])
    assert "earlier-topic" in [one["kind"] for one in json.loads(explained.stdout)["findings"]]
    (task,) = plan_batch_read(
        parse_options({**sandbox.connection, "group.id": connect.group, "subscribe": unique_name, "numStreams": "1"})
    )
    assert [(piece.start, piece.until) for piece in task.ranges] == [(0, NEW)]
    received = collect([connect(**settings("zookeeper")).assign({TopicPartition(unique_name, 0): None})])
    eventually(lambda: set(received) >= set(new))
