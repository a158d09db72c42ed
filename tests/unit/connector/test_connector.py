import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector
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
    assert connector._queue_for("t", ConsumerThreadId("g_c", 0)) is stream.queue
