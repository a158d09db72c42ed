"""Changes to what kazoo logs, and to how its threads start."""

import logging
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import SASL, Auth, Connect

from tests.fixtures.threads import threads_refused
from zkconsumer.errors import ThreadLimit
from zkconsumer.zookeeper.kazooadapter import NegotiationLog, PollingHandler, start_client

SECRET = "S3CRET"


@pytest.mark.parametrize(
    "argument",
    [
        Auth(0, "digest", f"user:{SECRET}"),
        SASL(SECRET.encode()),
        Connect(0, 0, 0, 0, SECRET.encode(), False),
        b"S3CRET",
    ],
    ids=lambda argument: type(argument).__name__,
)
@pytest.mark.parametrize("level", [5, logging.DEBUG, logging.ERROR])
def test_no_level_of_kazoos_log_shows_a_secret(caplog, argument, level):
    caplog.set_level(1)
    NegotiationLog(1.0).log(level, "Sending request(xid=%s): %s", 1, argument)
    assert "hidden" in caplog.text
    assert SECRET not in caplog.text


def test_other_arguments_of_kazoos_log_are_kept(caplog):
    caplog.set_level(1)
    NegotiationLog(1.0).debug("Sending request(xid=%s): %s", 1, "Exists(path='/a')")
    assert "Sending request(xid=1): Exists(path='/a')" in caplog.text


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_kazoo_s_threads_end_if_one_of_them_cannot_start(refused):
    """It needs two for callbacks and one for its connection; the next try starts all three."""
    client = KazooClient("127.0.0.1:1", handler=PollingHandler())
    before, left = set(threading.enumerate()), [refused]

    def is_next(name):
        left[0] -= 1
        return left[0] == 0

    with threads_refused(is_next), pytest.raises(ThreadLimit):
        start_client(client)
    assert set(threading.enumerate()) == before
    start_client(client)
    assert len(set(threading.enumerate()) - before) == 3
    client.stop()
    client.close()
    assert set(threading.enumerate()) == before
