"""What the thread that samples groups logs."""

from contextlib import closing

from tests.fixtures.groups import znodes_of_a_group
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZkConsumerError, ZooKeeperUnavailable
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups
from zkconsumer.operate.serve.groupsnapshots import LagRecorder
from zkconsumer.operate.serve.sampling import GroupSampling

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")


def test_what_a_sample_cannot_read_is_logged_once(caplog):
    with closing(LagSampler(ZooKeeperGroups(znodes_of_a_group, CONFIG), window=2)) as sampler:
        sampling = GroupSampling(sampler, LagRecorder(2, 9, 0.01), 0.01)
        sampling.start()
        eventually(lambda: sampling.newest and len(sampling.newest.groups["g"].history) > 2)
        assert sampling.stop(60)
    (record,) = (one for one in caplog.records if one.name == "zkconsumer.operate.serve.sampling")
    assert record.getMessage().startswith("a sample is incomplete: log ends are unknown: no broker is registered")


def test_a_sample_that_fails_shows_which_server_is_silent():
    is_silent = True

    def open_session():
        if is_silent:
            raise ZooKeeperUnavailable("no server answers")
        return znodes_of_a_group()

    def zookeeper():
        return [(one.address, one.answers, one.reason) for one in sampling.servers if one.kind == "zookeeper"]

    with closing(LagSampler(ZooKeeperGroups(open_session, CONFIG), window=2)) as sampler:
        sampling = GroupSampling(sampler, LagRecorder(2, 9, 0.01), 0.01)
        sampling.start()
        eventually(lambda: zookeeper() == [("localhost:1", False, "no server answers")])
        is_silent = False
        eventually(lambda: zookeeper() == [("localhost:1", True, "")])
        assert sampling.stop(60)


class FullDisk:
    """A history file that cannot be written until its disk has space again."""

    def __init__(self):
        self.is_full = True
        self.appended = []

    def append(self, snapshot):
        if self.is_full:
            raise ZkConsumerError("history h cannot be written: database or disk is full; check its disk")
        self.appended.append(snapshot)


def test_sampling_goes_on_while_the_history_cannot_be_written(caplog):
    file = FullDisk()
    with closing(LagSampler(ZooKeeperGroups(znodes_of_a_group, CONFIG), window=2)) as sampler:
        sampling = GroupSampling(sampler, LagRecorder(2, 9, 0.01), 0.01, file=file)
        sampling.start()
        eventually(lambda: sampling.newest and len(sampling.newest.groups["g"].history) > 2)
        file.is_full = False
        eventually(lambda: file.appended)
        assert sampling.stop(60)
    logged = [one.getMessage() for one in caplog.records if "history" in one.getMessage()]
    assert logged == [
        "history h cannot be written: database or disk is full; check its disk",
        "the history is written again; a restart misses what was sampled in between",
    ]
