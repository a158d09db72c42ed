"""LocalFetchControl: what it reports of the partitions that it fetches."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.fixtures.chunks import make_fetched_chunk, take
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import NotOwner, TopicAuthorizationFailed
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.wire.rules.leaderepochs import PositionEpochs

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_is_paused_is_a_value_that_later_pauses_do_not_change():
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    queue = ChunkQueue(max_bytes=1 << 20, max_chunks=2)
    control = LocalFetchControl("g_c", config, lambda: [], lambda topic, thread: queue)
    with closing(SimpleNamespace(close=control.stop)):
        thread = ConsumerThreadId("g_c", 0)
        control.start(FetchAssignment(1, {partition: AssignedPartition(thread, 0) for partition in (P0, P1)}))
        control.pause([P0])
        before = control.paused()
        control.pause([P1])
        assert before == frozenset({P0})
        assert control.paused() == {P0, P1}


@pytest.mark.parametrize(("moved", "expected"), [(False, PositionEpochs(3, 3)), (True, PositionEpochs())])
def test_epochs_of_what_was_fetched_count_only_as_long_as_nobody_else_has_moved_the_offset(moved, expected):
    """Another client has read on in a later epoch, or a topic that was created again."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    queue = ChunkQueue(max_bytes=1 << 20, max_chunks=2)
    control = LocalFetchControl("g_c", config, lambda: [], lambda topic, thread: queue)
    with closing(SimpleNamespace(close=control.stop)):
        thread = ConsumerThreadId("g_c", 0)
        control.start(FetchAssignment(1, {P0: AssignedPartition(thread, 800)}))
        control._infos[P0].epochs = PositionEpochs(3, 3)
        control.release([P0])
        control.start(FetchAssignment(1, {P0: AssignedPartition(thread, 500, moved=moved)}))
        assert control._infos[P0].epochs == expected


@pytest.mark.parametrize("ends", ["release", "stop"])
@pytest.mark.parametrize("with_it", [True, False], ids=["stays", "lost and back"])
def test_a_pause_between_the_release_and_the_next_start(ends, with_it):
    """A listener that runs before the release is finished may pause; what is lost is not paused when it comes back."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    queue = ChunkQueue(max_bytes=1 << 20, max_chunks=2)
    control = LocalFetchControl("g_c", config, lambda: [], lambda topic, thread: queue)
    thread = ConsumerThreadId("g_c", 0)

    def start(generation, *partitions):
        control.start(
            FetchAssignment(generation, {partition: AssignedPartition(thread, 0) for partition in partitions})
        )

    with closing(SimpleNamespace(close=control.stop)):
        start(1, P0, P1)
        control.release([P1]) if ends == "release" else control.stop()
        control.pause([P1])
        if not with_it:
            start(2, P0)
        start(3, P0, P1)
        fetched = [info.partition for info in queue.room.to_fetch(list(control._infos.values()))]
        assert (control.paused(), fetched) == ((frozenset([P1]), [P0]) if with_it else (frozenset(), [P0, P1]))
        control.resume([P1])
        assert {info.partition for info in queue.room.to_fetch(list(control._infos.values()))} == {P0, P1}


@pytest.fixture
def owner():
    """A control without fetchers, its queue, and a set of what it owns, to be changed."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    queue = ChunkQueue(max_bytes=1 << 20, max_chunks=2)
    owned = set()
    control = LocalFetchControl("g_c", config, lambda: [], lambda topic, thread: queue, owned=lambda: owned)
    yield control, queue, owned
    control.stop()


def assigned(*partitions, generation=1):
    thread = ConsumerThreadId("g_c", 0)
    return FetchAssignment(generation, {partition: AssignedPartition(thread, 0) for partition in partitions})


def test_what_is_owned_and_not_started_yet_can_be_paused_and_resumed(owner):
    control, queue, owned = owner
    owned.add(P0)
    with pytest.raises(NotOwner, match="t-1"):
        control.pause([P0, P1])
    owned.add(P1)
    control.pause([P0, P1])
    control.resume([P1])
    assert control.paused() == {P0}
    control.start(assigned(P0, P1))
    assert control.paused() == {P0}
    assert queue.room.to_fetch([control._infos[P0], control._infos[P1]]) == [control._infos[P1]]


def test_a_partition_that_is_owned_stays_paused_while_its_offset_cannot_be_read(owner):
    control, queue, owned = owner
    owned.update({P0, P1})
    control.pause([P0])
    control.start(assigned(P1))  # the znode of the other one is malformed
    assert control.paused() == {P0}
    control.start(assigned(P0, P1, generation=2))
    assert queue.room.to_fetch([control._infos[P0], control._infos[P1]]) == [control._infos[P1]]


def test_a_paused_partition_that_is_lost_before_it_is_started_is_not_paused_when_it_is_assigned_again(owner):
    control, _, owned = owner
    owned.add(P0)
    control.pause([P0])
    owned.clear()
    control.start(assigned(P1))
    owned.add(P0)
    control.start(assigned(P0, P1, generation=2))
    assert control.paused() == set()


def test_a_refused_partition_that_is_lost_does_not_keep_its_topic_from_recovering():
    """The stream raises the next refusal again, since the topic could be read in between."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    queue = ChunkQueue(max_bytes=1 << 20, max_chunks=2)
    control = LocalFetchControl("g_c", config, lambda: [], lambda topic, thread: queue)
    refused = AssignedPartition(ConsumerThreadId("g_c", 0), error=TopicAuthorizationFailed("no Describe", "t"))
    with closing(SimpleNamespace(close=control.stop)):
        control.start(FetchAssignment(1, {P0: refused, P1: refused}))
        with pytest.raises(TopicAuthorizationFailed):
            queue.request(0)
        control.start(FetchAssignment(2, {P0: refused}))
        assert queue.faults.allow("t", P0)


def test_only_the_stream_whose_batch_was_taken_away_is_told_so():
    """1. The user of stream A holds a batch; 2. its partition is lost, and comes back to stream B, whose user reads."""
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
    threads = [ConsumerThreadId("g_c", number) for number in range(2)]
    queues = {thread: ChunkQueue(max_bytes=1 << 20, max_chunks=2) for thread in threads}
    control = LocalFetchControl("g_c", config, lambda: [], lambda topic, thread: queues[thread])
    with closing(SimpleNamespace(close=control.stop)):
        for generation, thread in ((1, threads[0]), (3, threads[1])):
            control.start(FetchAssignment(generation, {P0: AssignedPartition(thread, 0)}))
            queues[thread].put(make_fetched_chunk(control._infos[P0], 0, 5))
            take(ChunkReader(queues[thread]), queues[thread])
            if generation == 1:
                control.start(FetchAssignment(2, {}))
        first, second = (control.partitions_of(queues[thread]) for thread in threads)
    assert (set(first.fetched), first.held) == (set(), P0)
    assert (set(second.fetched), second.held) == ({P0}, None)
