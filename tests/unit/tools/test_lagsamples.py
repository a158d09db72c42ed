"""What a sampler keeps of groups."""

import pytest

from tests.fixtures.groups import znodes_of_a_group
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config import ConsumerConfig
from zkconsumer.core.lagstatus import LagStatus
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.tools.lagsamples import LagSampler

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P0 = TopicPartition("t", 0)


def test_a_sampler_keeps_as_many_samples_as_it_is_told():
    with (
        running_stub_broker() as stub,
        LagSampler(znodes_of_a_group(), CONFIG, window=2, bootstrap=[stub.broker]) as sampler,
    ):
        for at in range(5):
            sampler.sample(["g"], at)
        assert [sample.at for sample in sampler.samples("g")[P0]] == [3, 4]
    with LagSampler(znodes_of_a_group(), CONFIG, window=2, history=3) as sampler:
        for at in range(5):
            sampler.sample(["g"], at)
        assert [sample.at for sample in sampler.samples("g")[P0]] == [2, 3, 4]


def test_groups_that_are_not_sampled_are_forgotten():
    with LagSampler(znodes_of_a_group(), CONFIG, window=2) as sampler:
        sampler.sample(["g"], 0)
        sampler.sample([], 1)
        assert sampler.samples("g") == {}


def test_a_group_that_vanishes_is_a_problem_unless_it_is_required():
    with LagSampler(znodes_of_a_group(), CONFIG, window=2) as sampler:
        sampler.sample(["g", "h"], 0)
        assert list(sampler.znodes) == ["g"]
        assert sampler.problems[0].startswith("group h cannot be read: group h does not exist")
        with pytest.raises(ZkConsumerError, match="h does not exist"):
            sampler.sample(["h"], 1, required=True)


def test_without_brokers_lag_is_unknown():
    with LagSampler(znodes_of_a_group(), CONFIG, window=2) as sampler:
        sampler.sample(["g"], 0)
        assert sampler.evaluate("g").status is LagStatus.UNKNOWN
        assert "no broker is registered" in sampler.problems[0]
