"""The count that wakes kazoo's connection thread."""

import select
from contextlib import closing

import pytest

from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.zookeeper.requestcount import request_count_pair
from zkconsumer.zookeeper.session import ZkSession

MANY = 5000


def is_readable(end):
    return bool(select.select([end], [], [], 0)[0])


def test_bytes_that_are_not_read_are_counted():
    read, write = request_count_pair()
    with closing(read), closing(write):
        assert not is_readable(read)
        assert [write.send(b"\0") for _ in range(MANY)] == [1] * MANY
        for _ in range(MANY):
            assert is_readable(read)
            assert read.recv(1) == b"\0"
        assert not is_readable(read)


def test_a_closed_end_raises():
    read, write = request_count_pair()
    write.close()
    write.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        write.send(b"\0")
    read.close()


def test_reads_of_many_nodes_without_a_connection_end():
    """Their number is what a pair of sockets would not take."""
    session = ZkSession("127.0.0.1:1", session_timeout_ms=200, connection_timeout_ms=200)
    session._client.start_async()
    with closing(session), pytest.raises(ZooKeeperUnavailable):
        session.get_many(f"/{number}" for number in range(MANY))
