"""Streams that are not read: the member leaves its group, or a warning names them."""

import pytest

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.idlewatch import IdleWatch
from zkconsumer.fetch.rules.idlestreams import Reading
from zkconsumer.model import TopicPartition

UNREAD = frozenset({TopicPartition("t", 0)})


class Queue:
    """A queue whose reader the test plays."""

    def __init__(self):
        self.taken, self.unread = 0, UNREAD

    def reading(self):
        return Reading((self.taken, 0), self.unread)


class Watched:
    """One stream that is looked at every ten seconds, for five minutes at most."""

    def __init__(self, *, leaves):
        self.queue, self.now, self.errors = Queue(), 0.0, []
        give_up = self.errors.append if leaves else None
        self.watch = IdleWatch("g", "g_c", 300_000, {"g_c-0": self.queue}, give_up, lambda: self.now)

    def wait(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 10.0
            self.watch.look()


def test_a_member_leaves_when_a_stream_was_not_read_for_so_long():
    watched = Watched(leaves=True)
    watched.wait(300)
    assert watched.errors == []
    watched.wait(10)
    (error,) = watched.errors
    assert "stream g_c-0 has not been read for 300.0 s although data of t-0 is available" in str(error)


def test_without_a_limit_a_warning_names_the_stream_and_the_time(caplog):
    watched = Watched(leaves=False)
    watched.wait(3000)
    times = [message.partition(" been read for ")[2].split(" ")[0] for message in caplog.messages]
    assert times == ["300.0", "600.0", "1200.0", "2400.0"]
    assert "stream g_c-0" in caplog.messages[0]
    watched.queue.taken += 1
    watched.wait(310)
    assert len(caplog.messages) == 5, "the time begins again"


@pytest.mark.parametrize("leaves", [True, False])
def test_waiting_for_records_is_not_idling(leaves, caplog):
    watched = Watched(leaves=leaves)
    watched.queue.unread = frozenset()
    watched.wait(3000)
    assert (watched.errors, caplog.messages) == ([], [])


@pytest.mark.parametrize(
    ("protocol", "given", "limit_ms"),
    [
        ("zookeeper", {}, -1),
        ("coordinator", {"max_poll_interval_ms": 5}, -1),
        ("kafka", {}, 300_000),
        ("consumer", {"max_poll_interval_ms": 60_000}, 60_000),
        ("kafka", {"max_stream_idle_ms": 0}, 0),
        ("kafka", {"max_stream_idle_ms": 7}, 7),
        ("zookeeper", {"max_stream_idle_ms": 7}, 7),
    ],
)
def test_groups_of_brokers_have_the_limit_of_kafka(protocol, given, limit_ms):
    config = ConsumerConfig(
        zookeeper_connect="z:1" if protocol in ("zookeeper", "coordinator") else None,
        bootstrap_servers="b:1",
        group_id="g",
        group_protocol=protocol,
        **given,
    )
    assert config.max_stream_idle_ms == limit_ms
