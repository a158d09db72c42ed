"""When a ZooKeeper that is down, or refuses the login, is tried again; the groups of both homes in one sample."""

import math
from contextlib import closing, contextmanager, suppress

import pytest

from tests.fixtures.batches import build
from tests.fixtures.groups import znodes_of_a_group
from tests.fixtures.scriptedserver import SilentServer, running
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.cli import groupsource
from zkconsumer.cli.connection import ToolConnection
from zkconsumer.cli.groupsource import LateSession, open_groups
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.sandbox.producer import Record
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


@pytest.mark.parametrize("brokers", [None, "unused:2"], ids=["ZooKeeper alone", "both homes"])
def test_a_session_that_has_stopped_connecting_is_revived_by_the_next_sample(monkeypatch, brokers):
    revived = []

    def revive(session):
        revived.append(session)
        raise ZooKeeperUnavailable("connecting")

    monkeypatch.setattr(ZkSession, "open", lambda _session: None)
    monkeypatch.setattr(ZkSession, "revive", revive)
    with open_groups(ToolConnection("unused:1", None, (), bootstrap_servers=brokers), interval=10.0) as opened:
        before = len(revived)
        with suppress(ZooKeeperUnavailable, BrokerUnavailable):
            opened.source.names()
        assert len(revived) > before


class InMemory:
    """Znodes in place of a session."""

    def __init__(self, *_):
        self._znodes = znodes_of_a_group()

    def __call__(self):
        return self._znodes

    def close(self):
        pass


@contextmanager
def sampling(monkeypatch, port):
    """A sampler of groups in both homes, which has 1 s for each broker."""
    monkeypatch.setattr(groupsource, "LateSession", InMemory)
    named = ToolConnection("h:1", None, (), bootstrap_servers=f"127.0.0.1:{port}")
    with open_groups(named, interval=0.1) as opened, closing(LagSampler(opened.source, window=2)) as sampler:
        yield sampler


@pytest.mark.slow
def test_a_silent_broker_is_asked_once_in_a_sample_of_both_homes(monkeypatch):
    with running(SilentServer) as silent, sampling(monkeypatch, silent.port) as sampler:
        for number in (1, 2):
            sampler.sample(sampler.groups(), number)
            assert silent.asked == number
            assert [(one.kind, one.answers) for one in sampler.servers()] == [("zookeeper", True), ("broker", False)]
        sampler.sample(["g"], 3)
        assert silent.asked == 3
    assert list(sampler.observed) == ["g"]


def test_lag_of_groups_in_zookeeper_has_an_age_beside_groups_of_brokers(monkeypatch):
    partition = TopicPartition("t", 0)
    with running_stub_broker() as stub, sampling(monkeypatch, stub.port) as sampler:
        stub.log(partition).batches, stub.log(partition).end = {0: build([Record(b"v", None, 1000, ())] * 9)}, 9
        stub.log(TopicPartition("t", 1)).end = 5
        sampler.sample(sampler.groups(), 0)
        assert sampler.evaluate("g").partitions[partition].lag_s > 1e9
