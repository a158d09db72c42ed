"""Changes to what kazoo logs."""

import logging

import pytest
from kazoo.protocol.serialization import SASL, Auth, Connect

from zkconsumer.zookeeper.kazooadapter import NegotiationLog

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
