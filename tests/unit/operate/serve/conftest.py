"""Snapshots made of values."""

import pytest

from tests.fixtures.groups import followed, group_znodes
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.operate.serve.groupsnapshots import GroupSnapshot, GroupsSnapshot, LagRow, Rebalance

MEMBERS = {"g_c": Subscription.static({"t": 1})}


class Sampled:
    """What a recorder needs of a sampler; tests set ``observed`` and add samples."""

    def __init__(self):
        self.observed = {}
        self.unread = {}
        self.problems = ()
        self._samples = {}

    def sample(self, name, znodes, samples):
        self.observed[name] = znodes
        self._samples[name] = samples

    def samples(self, name):
        return self._samples[name]


def lag_sample(at=0.0, *, committed=5, log_end=8, log_start=0, owner="g_c-0", owner_live=True):
    return LagSample(at, committed, 1, log_start, log_end, owner, owner_live)


def group_snapshot(samples, *, window=2, znodes=None, history=(), rebalances=()):
    """Of samples by partition, such as ``{"t-0": [sample, ...]}``."""
    if znodes is None:
        topics = {name.rpartition("-")[0] for name in samples}
        counts = {topic: sum(n.startswith(f"{topic}-") for n in samples) for topic in topics}
        znodes = group_znodes(members=MEMBERS, topics=counts)
    by_partition = {
        TopicPartition(n.rpartition("-")[0], int(n.rpartition("-")[2])): followed(each) for n, each in samples.items()
    }
    return GroupSnapshot(znodes, by_partition, window, tuple(history), tuple(rebalances))


def snapshot(*groups, at=100.0, problems=()):
    return GroupsSnapshot(at, 1_700_000_100_000, 0.5, 10.0, {one.observed.group: one for one in groups}, problems)


@pytest.fixture
def one_group():
    """A snapshot of a group with lag 3 in one partition and an unknown lag in the other."""
    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    from array import array

    return snapshot(
        group_snapshot(
            {
                "t-0": [lag_sample(30.0), lag_sample(100.0)],
                "t-1": [lag_sample(100.0, committed=None, owner=None, owner_live=False)],
            },
            znodes=group_znodes(members=MEMBERS, topics={"t": 2}, owners={"t-0": "g_c-0"}, offsets={"t-0": 5}),
            history=[LagRow(90_000, (p0,), array("q", [3])), LagRow(100_000, (p0, p1), array("q", [3, -1]))],
            rebalances=[Rebalance(100_000, 1, ("g_c",), ())],
        )
    )
