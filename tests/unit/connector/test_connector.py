import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_info
from tests.fixtures.waiting import eventually
from zkconsumer import AsyncRebalanceListener, ConsumerConfig, ConsumerConnector
from zkconsumer.connector import connector as connector_module
from zkconsumer.errors import ConfigError, UsageError
from zkconsumer.group.member import GroupMember
from zkconsumer.model import ConsumerThreadId


def test_an_option_of_queries_is_refused():
    with pytest.raises(ConfigError, match="for Spark queries only"):
        ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g", group_share=False))


def test_a_second_thread_cannot_replace_the_queues_of_the_first(monkeypatch):
    """Its streams would read queues that no partition fills."""
    monkeypatch.setattr(GroupMember, "open", lambda self: None)
    connector = ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g", auto_commit_enable=False))
    joining, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(connector, "_join", lambda _: joining.set() or go_on.wait(30))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(connector.create_message_streams, {"t": 1})
        assert joining.wait(30)
        with pytest.raises(UsageError, match="is creating streams"):
            connector.create_message_streams({"t": 1})
        go_on.set()
        (stream,) = first.result(30)["t"]
    assert connector._queue_for("t", ConsumerThreadId("g_c", 0)) is stream._queue


def test_a_shutdown_before_the_decoding_threads_are_there_leaves_none(monkeypatch):
    """1. A thread creates streams; 2. another one shuts down, and finds no pool to close; 3. the first continues."""
    monkeypatch.setattr(GroupMember, "open", lambda self: None)
    connector = ConsumerConnector(
        ConsumerConfig(zookeeper_connect="h:1", group_id="g", consumer_id="early", decode_threads=2)
    )
    start_pool = connector._start_pool

    def start_late(streams):
        connector.shutdown()
        start_pool(streams)

    monkeypatch.setattr(connector, "_start_pool", start_late)
    with pytest.raises(UsageError, match="only once"):
        connector.create_message_streams({"t": 1})
    eventually(lambda: not [thread for thread in threading.enumerate() if "early" in thread.name])


def test_an_interrupt_after_the_join_leaves_the_group(monkeypatch):
    """The caller has no streams, so no thread would read its partitions."""
    monkeypatch.setattr(GroupMember, "open", lambda self: None)
    connector = ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g"))
    done = []

    def interrupted(seconds, action):
        raise KeyboardInterrupt

    monkeypatch.setattr(connector._member, "join", lambda subscription: done.append("joined"))
    monkeypatch.setattr(connector._member, "repeat", interrupted)
    monkeypatch.setattr(connector._member, "leave", lambda: done.append("left"))
    with pytest.raises(KeyboardInterrupt):
        connector.create_message_streams({"t": 1})
    assert done == ["joined", "left"]


def test_streams_that_were_ended_are_not_idle(monkeypatch):
    """No thread reads what is left in them, while the program finishes the records that it holds."""
    monkeypatch.setattr(GroupMember, "open", lambda self: None)
    connector = ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g", max_stream_idle_ms=1))
    looks = []
    monkeypatch.setattr(connector._member, "join", lambda subscription: None)
    monkeypatch.setattr(connector._member, "repeat", lambda seconds, look: looks.append(look))
    monkeypatch.setattr(connector._member, "may_deliver", lambda: True)
    left = []
    monkeypatch.setattr(connector._member, "leave", lambda: left.append(True))
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    info = make_info(stream._queue, 0)
    assert stream._queue.put(make_fetched_chunk(info, 0, 3))
    connector.end_streams()
    for _ in range(3):
        looks[0]()
        time.sleep(0.01)
    assert left == []


def test_streams_that_are_ended_before_they_are_there_are_closed(monkeypatch):
    """A signal handler calls it while the consumer joins, or before."""
    monkeypatch.setattr(GroupMember, "open", lambda self: None)
    connector = ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g"))
    monkeypatch.setattr(connector._member, "join", lambda subscription: None)
    monkeypatch.setattr(connector._member, "repeat", lambda seconds, look: None)
    connector.end_streams()
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    assert list(stream) == []


class Flush:
    async def __call__(self):
        raise AssertionError("nothing awaits it")


def test_a_flush_or_a_listener_that_nothing_would_await_is_refused(monkeypatch):
    """The commit would cover what was not flushed."""
    made = {}
    monkeypatch.setattr(GroupMember, "open", lambda self: None)
    assemble = connector_module.assemble_member

    def assemble_noting(*arguments, **parts):
        made.update(parts)
        return assemble(*arguments, **parts)

    monkeypatch.setattr(connector_module, "assemble_member", assemble_noting)
    connector = ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g"), before_commit=Flush())
    with pytest.raises(UsageError, match="AsyncConsumerConnector"):
        made["before_commit"]()
    with pytest.raises(UsageError, match="AsyncConsumerConnector"):
        connector.set_rebalance_listener(AsyncRebalanceListener())
