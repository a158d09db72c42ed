"""What a sampler keeps of groups."""

import threading
from contextlib import closing

import pytest

from tests.fixtures.groups import with_brokers, znodes_of_a_group
from tests.fixtures.scriptedserver import SilentServer, running
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.operate.groups.lagsamples import LagSampler, SampleSeries
from zkconsumer.operate.groups.rules.lagstatus import LagStatus, evaluate_partition
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups
from zkconsumer.wire.errorcodes import ErrorCode

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNREAD = "a part of group g cannot be read: an offset or a log end of a partition"
GROUPS = ["g", *(f"g{number}" for number in range(20))]


def test_a_sampler_keeps_as_many_samples_as_it_is_told():
    with (
        running_stub_broker() as stub,
        closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(znodes_of_a_group(), stub.broker), CONFIG), window=2)
        ) as sampler,
    ):
        for at in range(5):
            sampler.sample(["g"], at)
        assert [sample.at for sample in sampler.samples("g")[P0]] == [3, 4]
    with closing(LagSampler(ZooKeeperGroups(znodes_of_a_group, CONFIG), window=2, history=3)) as sampler:
        for at in range(5):
            sampler.sample(["g"], at)
        assert [sample.at for sample in sampler.samples("g")[P0]] == [2, 3, 4]


def test_a_record_is_dated_as_soon_as_no_sample_shows_when_it_was_written():
    """The lag in time of a consumer that is stuck, at the sample that pushes the oldest one out."""
    series, ages = SampleSeries(window=3, kept=3), []
    for number in range(6):
        sample = LagSample(number * 10.0, 5, 1, 0, 10 + number, "g_a-0", True)
        series.append({"g": {P0: sample}}, lambda asked: dict.fromkeys(asked, 0), 100_000.0)
        ages.append(evaluate_partition(series.of("g")[P0], 3).lag_s)
    assert None not in ages


def test_groups_that_are_not_sampled_are_forgotten():
    with closing(LagSampler(ZooKeeperGroups(znodes_of_a_group, CONFIG), window=2)) as sampler:
        sampler.sample(["g"], 0)
        sampler.sample([], 1)
        assert sampler.samples("g") == {}


def test_a_group_that_vanishes_is_a_problem_and_an_error_if_all_that_are_named_do():
    with closing(LagSampler(ZooKeeperGroups(znodes_of_a_group, CONFIG), window=2)) as sampler:
        sampler.sample(["g", "h"], 0)
        assert list(sampler.observed) == ["g"]
        assert sampler.problems[0].startswith("group h cannot be read: group h does not exist")
        assert sampler.missing() == (UNREAD,)  # no broker is registered; h is no more
        sampler.sample(["h"], 1)
        with pytest.raises(ZkConsumerError, match="h does not exist"):
            sampler.missing(["h"])


@pytest.mark.parametrize(("is_created_again", "status"), [(False, LagStatus.REWIND), (True, LagStatus.UNKNOWN)])
def test_no_member_has_gone_back_in_a_topic_that_was_created_again(is_created_again, status):
    with running_stub_broker() as stub:
        znodes = with_brokers(znodes_of_a_group(), stub.broker)
        stub.log(P0).end = stub.log(P1).end = 9
        with closing(LagSampler(ZooKeeperGroups(lambda: znodes, CONFIG), window=5)) as sampler:
            sampler.sample(["g"], 0)
            if is_created_again:
                topic = znodes.nodes.pop("/brokers/topics/t")
                sampler.sample(["g"], 1)
                znodes.write("/brokers/topics/t", topic.data)
            znodes.write("/consumers/g/offsets/t/0", b"2")
            sampler.sample(["g"], 2)
            found = sampler.evaluate("g").partitions[P0]
    assert (found.status, found.consumed_per_s) == (status, None)


def test_without_brokers_lag_is_unknown():
    with closing(LagSampler(ZooKeeperGroups(znodes_of_a_group, CONFIG), window=2)) as sampler:
        sampler.sample(["g"], 0)
        assert sampler.evaluate("g").status is LagStatus.UNKNOWN
        assert "no broker is registered" in sampler.problems[0]
        assert sampler.missing(["g"]) == (UNREAD,)


def test_a_group_that_cannot_be_judged_is_missing_until_it_can(many_groups):
    """``groups status`` ends with 0 only if it has judged: here by offsets in Kafka, of which it knows nothing yet."""
    many_groups.delete("/consumers/g/offsets/t/0")
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end = 9, 9
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG, interval=0.1), window=2)
        ) as sampler:
            missing = []
            for at, coordinator in enumerate((None, None, stub.broker, None)):
                stub.coordinator = coordinator
                sampler.sample(["g"], at)
                missing.append(sampler.missing(["g"]))
    assert missing == [(UNREAD,), (UNREAD,), (), ()]


def test_a_group_with_an_offset_that_cannot_be_decoded_is_missing(many_groups):
    many_groups.write("/consumers/g/offsets/t/0", b"?")
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end, stub.coordinator = 9, 9, stub.broker
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG), window=2)
        ) as sampler:
            sampler.sample(["g"], 0)
            assert sampler.missing(["g"]) == (UNREAD,)


@pytest.fixture
def many_groups():
    """Znodes of groups that have committed 5 of both partitions of a topic; there may be offsets in Kafka."""
    znodes = znodes_of_a_group()
    znodes.write("/brokers/topics/__consumer_offsets", b'{"version":1,"partitions":{"0":[0]}}')
    for group in GROUPS[1:]:
        for number in (0, 1):
            znodes.write(f"/consumers/{group}/offsets/t/{number}", b"5")
    return znodes


def test_a_silent_broker_is_asked_once_per_sample(many_groups):
    with running(SilentServer) as silent, running_stub_broker() as stub:
        other = Broker(1, "127.0.0.1", silent.broker.port)
        stub.log(P0).end, stub.log(P1).end = 9, 9
        stub.elsewhere[P1] = other
        stub.coordinator = other
        brokers = [stub.broker, other]
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, *brokers), CONFIG, interval=0.1), window=2)
        ) as sampler:
            for number in (1, 2):
                sampler.sample(GROUPS, number)
                assert silent.asked == number
        assert set(sampler.observed) == set(GROUPS)
        for group in GROUPS:
            lags = {partition: series[-1].lag for partition, series in sampler.samples(group).items()}
            assert lags == {P0: 4, P1: None}
    ends, starts, in_kafka = sorted(sampler.problems, key=lambda one: ("log" not in one, one))
    assert ends.startswith("log ends of t-1 are unknown: ")
    assert starts.startswith("log starts of t-1 are unknown: ")
    assert f"{other.host}:{other.port}" in ends
    assert "g, g0, g1, g2, g3 and 16 more" in in_kafka


def test_groups_without_a_coordinator_wait_together(many_groups):
    with running_stub_broker() as stub:
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG), window=2)
        ) as sampler:
            sampler.sample(GROUPS, 0)
        assert stub.searches == 5 * len(GROUPS)
    (problem,) = (one for one in sampler.problems if "in Kafka" in one)
    assert "the group has no coordinator at the moment" in problem


def test_a_leader_that_stops_answering_is_asked_once_in_a_sample():
    asked, frozen = [], threading.Event()
    with running_stub_broker() as stub, running_stub_broker() as leader:
        stub.log(P0).end, stub.log(P1).end, leader.log(P1).end = 9, 9, 9
        stub.elsewhere[P1] = Broker(1, leader.broker.host, leader.broker.port)
        with closing(
            LagSampler(
                ZooKeeperGroups(lambda: with_brokers(znodes_of_a_group(), stub.broker), CONFIG, interval=0.1), window=2
            )
        ) as sampler:
            sampler.sample(["g"], 0)
            leader.asked = lambda partitions: asked.append(partitions) or frozen.wait()
            sampler.sample(["g"], 1)
        frozen.set()
    assert asked == [{P1}]
    assert {partition: [one.lag for one in series] for partition, series in sampler.samples("g").items()} == {
        P0: [4, 4],
        P1: [4, None],
    }


def test_a_group_without_members_is_unknown_while_its_leader_is_silent(many_groups):
    frozen = threading.Event()
    many_groups.write("/consumers/deleted/offsets/nowhere/0", b"5")  # no such topic, so there is nothing to know
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end, stub.coordinator = 3, 9, stub.broker
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG, interval=0.1), window=2)
        ) as sampler:
            found = []
            for at in (0, 1):
                sampler.sample(["g0", "deleted"], at)
                found.append([sampler.evaluate(group).status for group in ("g0", "deleted")])
                stub.asked = lambda _: frozen.wait()
        frozen.set()
    assert found == [[LagStatus.RANGE, LagStatus.NO_MEMBERS], [LagStatus.UNKNOWN, LagStatus.NO_MEMBERS]]


def test_an_offset_in_kafka_is_unknown_while_its_coordinator_is_away(many_groups):
    """That of ZooKeeper, 5, would look as if the offset had gone back."""
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end = 9, 9
        stub.committed[P0] = 8
        stub.coordinator = stub.broker
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG, interval=0.1), window=2)
        ) as sampler:
            sampler.sample(["g"], 0)
            stub.coordinator = None
            sampler.sample(["g"], 1)
            assert sampler.evaluate("g").status is LagStatus.UNKNOWN
    committed = {p: [one.committed for one in series] for p, series in sampler.samples("g").items()}
    assert committed == {P0: [8, None], P1: [5, 5]}


@pytest.mark.parametrize(("storage", "is_znode"), [("auto", False), ("zookeeper", True), ("both", True)])
def test_of_equal_offsets_the_sample_has_the_write_of_the_one_that_counts(many_groups, storage, is_znode):
    with running_stub_broker() as stub:
        stub.committed[P0] = 5
        stub.coordinator = stub.broker
        with closing(
            LagSampler(
                ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG, storage=storage), window=2
            )
        ) as sampler:
            sampler.sample(["g"], 0)
        (sample,) = sampler.samples("g")[P0]
    assert (sample.committed, sample.mzxid is not None) == (5, is_znode)


def test_an_offset_in_kafka_that_one_answer_refuses_is_unknown(many_groups):
    with running_stub_broker() as stub:
        stub.committed[P0] = 8
        stub.coordinator = stub.broker
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG), window=2)
        ) as sampler:
            sampler.sample(["g"], 0)
            stub.committed_errors = dict.fromkeys((P0, P1), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            sampler.sample(["g"], 1)
            sampler.sample(["g"], 2)
            assert any("the offset of t-0 in Kafka cannot be read" in problem for problem in sampler.problems)
            stub.committed_errors = {}
            sampler.sample(["g"], 3)
        committed = {p: [one.committed for one in series] for p, series in sampler.samples("g").items()}
    assert committed == {P0: [None, 8], P1: [None, 5]}


def test_an_offset_that_was_refused_stays_unknown_while_the_coordinator_is_away(many_groups):
    with running_stub_broker() as stub:
        stub.coordinator = stub.broker
        stub.committed_errors = {P0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        with closing(
            LagSampler(ZooKeeperGroups(lambda: with_brokers(many_groups, stub.broker), CONFIG, interval=0.1), window=3)
        ) as sampler:
            sampler.sample(["g"], 0)
            stub.coordinator = None
            sampler.sample(["g"], 1)
        committed = {p: [one.committed for one in series] for p, series in sampler.samples("g").items()}
    assert committed == {P0: [None, None], P1: [5, 5]}


def test_an_offset_in_kafka_counts_while_no_broker_is_registered(many_groups):
    """The coordinator that is known still answers; that of ZooKeeper, 5, would look as if the offset had gone back."""
    with running_stub_broker() as stub:
        stub.coordinator, stub.committed[P0] = stub.broker, 8
        with_brokers(many_groups, stub.broker)
        with closing(LagSampler(ZooKeeperGroups(lambda: many_groups, CONFIG), window=2)) as sampler:
            sampler.sample(["g"], 0)
            many_groups.delete(f"/brokers/ids/{stub.broker.id}")
            sampler.sample(["g"], 1)
    assert [sample.committed for sample in sampler.samples("g")[P0]] == [8, 8]
