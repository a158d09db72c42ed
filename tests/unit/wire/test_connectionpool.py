"""ConnectionPool: one idle connection to a broker, used by one client at a time."""

import threading

import pytest

from zkconsumer.process.deadline import NO_DEADLINE
from zkconsumer.wire.connectionpool import ConnectionPool

ONE, TWO = ("one", 9092), ("two", 9092)


class Connection:
    closed = False

    def close(self):
        self.closed = True


@pytest.fixture
def pool():
    made = ConnectionPool()
    made.enter()
    return made


def opened(pool, *, returns=True):
    connection = Connection()
    pool.opens(ONE, connection, returns=returns)
    return connection


def take(pool, address=ONE, *, returns=True):
    return pool.take(address, NO_DEADLINE, returns=returns)


def test_a_connection_that_was_given_back_is_taken_by_the_next_client(pool):
    connection = opened(pool)
    pool.give(ONE, connection)
    assert take(pool, TWO) is None
    assert take(pool) is connection
    assert not connection.closed


def test_a_connection_that_comes_back_soon_is_waited_for(pool):
    connection = opened(pool)
    giving = threading.Timer(0.01, pool.give, [ONE, connection])
    giving.start()
    assert take(pool) is connection
    giving.join()


def test_a_second_connection_lasts_as_long_as_the_first_one_waits(pool):
    waiting = opened(pool, returns=False)
    assert take(pool) is None, "at once: JoinGroup may take minutes"
    second = opened(pool)
    pool.give(ONE, second)
    pool.give(ONE, waiting)
    assert (second.closed, waiting.closed) == (False, True)


def test_a_connection_that_broke_is_not_given_again(pool):
    connection = opened(pool)
    pool.drop(ONE, connection)
    assert connection.closed
    assert not pool.has(ONE)
    assert take(pool) is None


def test_the_last_client_closes_what_is_left(pool):
    idle, used = opened(pool), opened(pool)
    pool.give(ONE, idle)
    pool.leave()
    assert idle.closed
    pool.give(ONE, used)
    assert used.closed
