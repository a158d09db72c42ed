"""The connections of a worker between tasks, to brokers that only accept them."""

import socket
from contextlib import ExitStack

import pytest

from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ThreadLimit
from zkconsumer.model import Broker
from zkconsumer.ranges import leaderconnections
from zkconsumer.ranges.leaderconnections import PooledConnection
from zkconsumer.spark import keptconnections
from zkconsumer.spark.keptconnections import KeptConnections


class Connection:
    """A connection to a broker that needs no broker."""

    def __init__(self, opened, broker):
        self.broker, self.closed = broker, False
        opened.append(self)

    def connect(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture
def opened(monkeypatch):
    """Every connection that was opened."""
    opened = []

    class Connections:
        @staticmethod
        def from_config(broker, config):
            return Connection(opened, broker)

    monkeypatch.setattr(leaderconnections, "BrokerConnection", Connections)
    return opened


def config_of(group):
    return ConsumerConfig(zookeeper_connect="unused:1", group_id=group)


def run_task(kept, *numbers, group="g"):
    """A task that reads from these brokers at the same time."""
    with kept.borrowed(config_of(group)) as lent:
        taken = [(broker, lent.take_connection(broker)) for broker in (Broker(n, "h", n) for n in numbers)]
        for broker, pooled in taken:
            lent.return_connection(broker, pooled)


def is_open(opened):
    return [connection.broker.id for connection in opened if not connection.closed]


def test_a_task_gets_the_connections_of_the_one_before(opened):
    kept = KeptConnections()
    for _ in range(3):
        run_task(kept, 1, 2)
    assert is_open(opened) == [1, 2]
    run_task(kept, 1, group="other")
    assert is_open(opened) == [1, 2, 1], "they belong to the options that they were opened with"
    assert kept.count() == 3


def test_idle_connections_are_closed_without_a_further_task(opened):
    kept = KeptConnections(idle_s=0.2)
    run_task(kept, 1, 2)
    run_task(kept, 3, group="other")
    assert kept.count() == 3
    eventually(lambda: is_open(opened) == [] and kept._closer is None)
    assert kept.count() == 0
    run_task(kept, 1)
    assert is_open(opened) == [1]
    eventually(lambda: is_open(opened) == [] and kept._closer is None)


def test_a_connection_that_tasks_do_not_need_any_more_is_closed_while_others_are_in_use(opened):
    kept = KeptConnections(idle_s=0.3)
    run_task(kept, 1, 2)

    def only_the_first_is_open():
        run_task(kept, 1)
        return is_open(opened) == [1]

    eventually(only_the_first_is_open)
    assert len(opened) == 2, "the other one was used all the time"


def test_what_a_task_has_borrowed_is_not_closed(opened):
    kept = KeptConnections(idle_s=0.05)
    run_task(kept, 1)
    with kept.borrowed(config_of("g")) as lent:
        pooled = lent.take_connection(Broker(1, "h", 1))
        eventually(lambda: kept._closer is None)
        assert not pooled.connection.closed
        lent.return_connection(Broker(1, "h", 1), pooled)


def test_the_number_of_connections_is_bounded(opened):
    kept = KeptConnections(most=4)
    for number in range(10):
        run_task(kept, number, 100 + number)
        assert len(is_open(opened)) <= 4
    run_task(kept, 1, 2, 3, group="other")
    assert len(is_open(opened)) == 4
    assert is_open(opened)[-3:] == [1, 2, 3], "those of the newest task stay"


def test_a_task_that_opens_connections_closes_those_of_other_options(opened):
    """Otherwise a worker has as many in use as it keeps."""
    kept = KeptConnections(most=4)
    run_task(kept, 1, 2, group="first")
    run_task(kept, 3, 4, group="second")
    with kept.borrowed(config_of("third")) as lent:
        taken = [lent.take_connection(Broker(5, "h", 5))]
        assert is_open(opened) == [2, 3, 4, 5]
        taken.append(lent.take_connection(Broker(6, "h", 6)))
        assert is_open(opened) == [3, 4, 5, 6], "those that were used longest ago are closed first"
        lent.return_connection(Broker(6, "h", 6), taken.pop())
        assert lent.take_connection(Broker(6, "h", 6)).reused
        assert is_open(opened) == [3, 4, 5, 6], "none was opened"
        for number in (7, 8, 9):
            lent.take_connection(Broker(number, "h", number))
        assert is_open(opened) == [5, 6, 7, 8, 9], "a task may need more at a time"


def test_a_task_of_many_leaders_closes_what_was_idle_for_the_longest_time(opened):
    with KeptConnections(most=4).borrowed(config_of("g")) as lent:
        for number in range(10):
            broker = Broker(number, "h", number)
            lent.return_connection(broker, lent.take_connection(broker))
            assert len(is_open(opened)) <= 4
        assert is_open(opened) == [6, 7, 8, 9]
        broken = lent.take_connection(Broker(6, "h", 6))
        lent.discard_connection(broken)
        assert (broken.connection.closed, is_open(opened)) == (True, [7, 8, 9])


def test_two_borrowers_with_the_same_options_share_nothing(opened):
    kept = KeptConnections()
    with ExitStack() as stack:
        lent = [stack.enter_context(kept.borrowed(config_of("g"))) for _ in range(2)]
        assert lent[0] is not lent[1]
        for one in lent:
            one.return_connection(Broker(1, "h", 1), one.take_connection(Broker(1, "h", 1)))
    assert len(opened) == 2
    assert len(is_open(opened)) == kept.count() == 1


def test_without_a_thread_the_next_task_tries_again(opened, monkeypatch):
    def refuse(_):
        raise ThreadLimit("no more")

    kept = KeptConnections(idle_s=0.1)
    with monkeypatch.context() as patched:
        patched.setattr(keptconnections, "start_thread", refuse)
        run_task(kept, 1)
    run_task(kept, 2)
    eventually(lambda: is_open(opened) == [])


def test_a_real_connection_is_closed_at_its_broker():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = Broker(0, "127.0.0.1", listener.getsockname()[1])
        kept = KeptConnections(idle_s=0.1)
        with kept.borrowed(config_of("g")) as lent:
            connection = leaderconnections.BrokerConnection.from_config(broker, lent.config)
            connection._transport.connect()
            lent._in_use += 1
            lent.return_connection(broker, PooledConnection(connection))
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(10)
            assert accepted.recv(1) == b""
    eventually(lambda: kept._closer is None)
