"""What the thread that samples groups logs."""

from contextlib import closing

from tests.fixtures.groups import znodes_of_a_group
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.serve.groupsnapshots import LagRecorder
from zkconsumer.operate.serve.sampling import GroupSampling

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")


def test_what_a_sample_cannot_read_is_logged_once(caplog):
    with closing(LagSampler(znodes_of_a_group(), CONFIG, window=2)) as sampler:
        sampling = GroupSampling(sampler, LagRecorder(2, 9, 0.01), 0.01)
        sampling.start()
        eventually(lambda: sampling.newest and len(sampling.newest.groups["g"].history) > 2)
        assert sampling.stop(60)
    (record,) = (one for one in caplog.records if one.name == "zkconsumer.operate.serve.sampling")
    assert record.getMessage().startswith("a sample is incomplete: log ends are unknown: no broker is registered")
