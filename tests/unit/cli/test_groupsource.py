"""LateSession: when a ZooKeeper that is down, or refuses the login, is tried again."""

import math
from contextlib import closing

import pytest

from zkconsumer.cli.groupsource import LateSession
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.zookeeper.session import ZkSession


@pytest.mark.parametrize("error", [ZooKeeperUnavailable("no server answers"), ZooKeeperRefused("the login failed")])
@pytest.mark.parametrize(("interval", "attempts"), [(math.inf, 1), (10.0, 3)], ids=["read once", "sampled"])
def test_a_command_that_reads_once_waits_once(monkeypatch, interval, attempts, error):
    tried = []

    def open_session(session):
        tried.append(session)
        raise error

    monkeypatch.setattr(ZkSession, "open", open_session)
    with closing(LateSession(ConsumerConfig(zookeeper_connect="unused:1", group_id="tool"), interval)) as late:
        for _ in range(3):
            with pytest.raises(type(error)):
                late()
    assert len(tried) == attempts
