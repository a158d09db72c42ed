"""What is read of a group's znodes, and what is made of those that cannot be read."""

import json
from contextlib import closing

import pytest

from tests.fixtures.groups import JoinSession, group_znodes, with_brokers, znodes_of_a_group
from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.members import JVM
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.assembly import clusterchoice
from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, GroupMissing, ZkConsumerError
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.offsets.rules.topicorigins import TopicRecord
from zkconsumer.operate.groups.brokergroups import BrokerGroups
from zkconsumer.operate.groups.clusterfacts import read_cluster_facts
from zkconsumer.operate.groups.everydescription import EveryDescription
from zkconsumer.operate.groups.explanation import explain_group
from zkconsumer.operate.groups.groupdescription import describe_groups
from zkconsumer.operate.groups.grouplist import find_chroots, list_groups, matching_groups
from zkconsumer.operate.groups.groupznodes import read_group, read_groups
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups
from zkconsumer.operate.offsets.groupstores import Cluster, partitions_to_hold
from zkconsumer.wire.errorcodes import ErrorCode

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def znodes():
    return znodes_of_a_group()


def read(session, group="g"):
    return read_group(session, GroupReader(session), group)


def test_a_group_is_read(znodes):
    found = read(znodes)
    assert (found.partitions, found.owners, found.live) == ((P0, P1), {P0: "g_a-0", P1: "g_a-0"}, {"g_a"})
    assert [stored.offset for stored in found.offsets.values()] == [5, 5]
    assert found.is_live(P0)
    assert found.problems == ()


def test_many_groups_are_read_as_each_alone(znodes):
    with_brokers(znodes, Broker(1, "127.0.0.1", 1))
    filtered = json.dumps({**JVM, "pattern": "white_list", "subscription": {"u.*": 1}}).encode()
    znodes.write("/brokers/topics/u", b'{"version":1,"partitions":{"0":[1]}}')
    znodes.write("/consumers/filtered/ids/filtered_a", filtered)
    znodes.write("/consumers/offsets/offsets/gone/3", b"7")
    znodes.write("/consumers/offsets/offsets/gone/0-3", b"7")
    znodes.write("/consumers/empty", b"")
    names = ["g", "filtered", "offsets", "empty"]
    found = read_groups(znodes, GroupReader(znodes), names)
    assert found.failures == {}
    assert found.groups == {name: read(znodes, name) for name in names}
    assert found.groups["filtered"].partitions == (TopicPartition("u", 0),)
    assert found.groups["offsets"].foreign_offsets == {"gone": ("0-3",)}


@pytest.mark.parametrize("parent", ["ids", "owners", "offsets", "zkconsumer/members"])
def test_a_group_that_may_not_be_read_costs_only_itself(znodes, parent):
    znodes.write("/consumers/h/offsets/t/0", b"1")
    znodes.refused.add(f"/consumers/h/{parent}")
    found = read_groups(znodes, GroupReader(znodes), ["h", "..", "missing", "g"])
    assert list(found.groups) == ["g"]
    assert f"/consumers/h/{parent}" in str(found.failures["h"])
    assert "does not exist" in str(found.failures["missing"])
    assert "cannot be the name" in str(found.failures[".."])
    assert isinstance(found.failures[".."], GroupMissing), "brokers may have it"


def test_a_member_whose_registration_cannot_be_read_is_a_member(znodes):
    znodes.write("/consumers/g/ids/g_b", b"not JSON")
    (found,) = describe_groups(znodes, CONFIG, ["g"])
    with closing(ZooKeeperGroups(lambda: znodes, CONFIG)) as source:
        (listed,), _, _ = list_groups(source, ["g"])
    assert [(one.id, one.partitions, one.threads, one.pattern) for one in found.members] == [
        ("g_a", 2, {"t": 1}, "static"),
        ("g_b", 0, None, None),
    ]
    assert listed.members == len(found.members)
    assert [one.id for one in EveryDescription(found, None).unhealthy().in_znodes.members] == ["g_b"]


def test_an_owner_that_is_not_registered_is_not_live(znodes):
    znodes.write("/consumers/g/owners/t/1", b"g_x-0")
    found = read(znodes)
    assert (found.is_live(P0), found.is_live(P1)) == (True, False)
    assert found.lasting_owners == {P0, P1}
    path = "/consumers/g/owners/t/1"
    znodes.nodes[path] = znodes.nodes[path]._replace(owner_session=7)
    assert read(znodes).lasting_owners == {P0}


def test_what_cannot_be_read_costs_one_partition(znodes):
    znodes.write("/consumers/g/owners/t/0", b"\xff")
    znodes.write("/consumers/g/offsets/t/0", b"many")
    znodes.refused |= {"/consumers/g/owners/t/1", "/consumers/g/offsets/t/1"}
    found = read(znodes)
    assert (found.owners, found.offsets, set(found.unreadable)) == ({}, {}, {P0, P1})
    assert len(found.problems) == 4


def test_children_that_may_not_be_listed_are_a_problem(znodes):
    znodes.refused.add("/consumers/g/offsets/t")
    found = read(znodes)
    assert found.partitions == (P0, P1)
    assert found.problems == ("children of /consumers/g/offsets/t: not allowed",)


def test_topics_that_lead_to_other_znodes_are_ignored(znodes):
    znodes.write(
        "/consumers/g/ids/g_b", json.dumps({**JVM, "subscription": {"..": 1, "a/b": 1, "": 1, "\ud800": 1}}).encode()
    )
    assert read(znodes).partitions == (P0, P1)
    assert not [path for path in znodes.read if ".." in path or "a/b" in path or "\ud800" in path or path.endswith("/")]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../brokers"])
def test_an_impossible_name_of_a_group_is_refused(znodes, name):
    with pytest.raises(ZkConsumerError, match="cannot be the name of a group"):
        read(znodes, name)


def test_a_missing_group_is_an_error(znodes):
    with pytest.raises(ZkConsumerError, match="group h does not exist in ZooKeeper"):
        read(znodes, "h")


def test_the_layout_of_a_group(znodes):
    assert read(znodes).layout == "consumer"
    znodes.write("/consumers/simple/offsets/t/0", b"1")
    znodes.write("/consumers/old/offsets/t/0-3", b"1")
    znodes.write("/consumers/none", b"")
    assert [read(znodes, name).layout for name in ("simple", "old", "none")] == ["offsets", "kafka-0.7", "empty"]
    assert matching_groups(znodes) == ["g", "none", "old", "simple"]
    assert matching_groups(znodes, "[go].*") == ["g", "old"]


def test_chroots_are_found():
    root = JoinSession()
    for path in ("/consumers", "/a/b/consumers/g", "/c/brokers/ids", "/zookeeper/consumers", "/d/e/f/g/h/consumers"):
        root.write(path, b"")
    root.refused.add("/secret")
    root.write("/secret", b"")
    assert list(find_chroots(root)) == ["", "/c", "/a/b"]


def test_groups_are_described_with_what_brokers_report(znodes):
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end = 9, 5
        (found,) = describe_groups(with_brokers(znodes, stub.broker), CONFIG, ["g"], with_log_starts=True)
        with closing(ZooKeeperGroups(lambda: with_brokers(znodes, stub.broker), CONFIG)) as source:
            (listed,), _, problems = list_groups(source, ["g"])
    assert [(p.committed, p.log_start, p.log_end, p.lag) for p in found.partitions] == [(5, 0, 9, 4), (5, 0, 5, 0)]
    assert (listed.lag, listed.members, listed.status, problems) == (4, 1, LagStatus.UNKNOWN, ())


def test_a_group_that_cannot_be_read_is_skipped_where_that_is_asked_for(znodes):
    failures = {}
    found = describe_groups(znodes, CONFIG, ["g", "h"], failures=failures)
    assert [one.group for one in found] == ["g"]
    assert str(failures["h"]).startswith("group h does not exist")
    with pytest.raises(ZkConsumerError, match="h does not exist"):
        describe_groups(znodes, CONFIG, ["g", "h"])


def test_partitions_of_a_deleted_topic_are_shown_without_asking_brokers(znodes):
    znodes.write("/consumers/g/offsets/gone/0", b"7")
    (found,) = describe_groups(with_brokers(znodes, Broker(1, "127.0.0.1", 1)), CONFIG, ["g"])
    assert [(p.topic, p.committed, p.lag) for p in found.partitions if p.topic == "gone"] == [("gone", 7, None)]
    assert "log ends of gone are unknown: no such topic" in found.problems


@pytest.fixture
def without_brokers(znodes):
    """The same group in a ZooKeeper that knows no brokers."""
    znodes.delete("/brokers")
    znodes.delete("/controller")
    return znodes


@pytest.fixture
def stub():
    with running_stub_broker() as broker:
        broker.versions[MetadataRequest.API_KEY] = 6
        broker.log(P0).end, broker.log(P1).end = 9, 5
        yield broker


def asking(servers):
    return CONFIG.replace(bootstrap_servers=servers)


def read_facts(session, config):
    group_reader = open_group_reader(session, config, without_brokers=True)
    group = read_group(session, group_reader, "g")
    return group, read_cluster_facts(session, config, group_reader, group)


def test_a_description_asks_brokers_for_topics_once(without_brokers, stub):
    describe_groups(without_brokers, asking(f"127.0.0.1:{stub.port}"), ["g"])
    of_offsets, leaders_of = None, frozenset({"t"})  # brokers before 2.8 would create the topic of offsets
    assert stub.described == [None, of_offsets, leaders_of]


def test_an_explanation_asks_brokers_for_topics_once(without_brokers, stub):
    _, facts = read_facts(without_brokers, asking(f"127.0.0.1:{stub.port}"))
    of_offsets, (before, leaders_of, after) = None, (frozenset({"t"}),) * 3
    assert stub.described == [None, of_offsets, before, leaders_of, after]
    assert facts.problems == ()


def test_brokers_that_do_not_answer_are_asked_once(without_brokers, stub):
    stub.hangs_up = True
    group_reader = open_group_reader(without_brokers, asking(f"127.0.0.1:{stub.port}"), without_brokers=True)
    assert read_group(without_brokers, group_reader, "g").partitions == (P0, P1)
    stub.hangs_up = False
    assert group_reader.live_brokers() == ()
    assert stub.described == []


def test_samples_log_once_that_no_broker_answers(without_brokers, stub, monkeypatch, caplog):
    monkeypatch.setattr(clusterchoice, "monotonic", lambda: 0.0)
    stub.hangs_up = True
    with closing(
        LagSampler(ZooKeeperGroups(lambda: without_brokers, asking(f"127.0.0.1:{stub.port}")), window=2)
    ) as sampler:
        for at in (0.0, 1.0, 2.0):
            sampler.sample(["g"], at)
    (record,) = (one for one in caplog.records if one.name == clusterchoice.__name__)
    assert record.getMessage().startswith("no broker answers, so topics and partitions are read from ZooKeeper")


def test_samples_of_the_lag_see_new_partitions(without_brokers, stub):
    with closing(
        LagSampler(ZooKeeperGroups(lambda: without_brokers, asking(f"127.0.0.1:{stub.port}")), window=2)
    ) as sampler:
        sampler.sample(["g"], at=0.0)
        stub.log(TopicPartition("t", 2)).end = 1
        sampler.sample(["g"], at=1.0)
        assert sampler.observed["g"].existing == {"t": (0, 1, 2)}


def test_topics_are_read_from_brokers(without_brokers, stub):
    without_brokers.delete("/consumers/g/owners")
    without_brokers.delete("/consumers/g/offsets")
    (found,) = describe_groups(without_brokers, asking(f"127.0.0.1:{stub.port}"), ["g"])
    assert [(p.topic, p.partition, p.log_end) for p in found.partitions] == [("t", 0, 9), ("t", 1, 5)]
    assert (found.members[0].threads, found.problems) == ({"t": 1}, ())


def test_a_group_is_described_although_no_broker_answers(without_brokers, stub):
    stub.hangs_up = True
    config = asking(f"127.0.0.1:{stub.port}")
    (found,) = describe_groups(without_brokers, config, ["g"])
    assert [(p.partition, p.committed, p.log_end) for p in found.partitions] == [(0, 5, None), (1, 5, None)]
    assert any(problem.startswith("log ends are unknown: none of 1 brokers") for problem in found.problems)
    with pytest.raises(BrokerUnavailable):
        open_group_reader(without_brokers, config).topics()


def test_topics_are_not_taken_to_be_absent_while_nothing_is_known_of_them(without_brokers, stub):
    """Of Kafka 4, whose topics are not in ZooKeeper."""
    stub.hangs_up = True
    config = asking(f"127.0.0.1:{stub.port}")
    without_brokers.delete("/consumers/g/owners")
    group, facts = read_facts(without_brokers, config)
    assert (group.subscribed, group.absent) == ({"t"}, frozenset())
    kinds = {finding.kind for finding in explain_group(group, facts)}
    assert kinds == {"undescribed-topic", "broker-unreachable", "unreadable"}
    assert not [problem for problem in facts.problems if "no broker is registered" in problem]
    (found,) = describe_groups(without_brokers, config, ["g"])
    assert not [problem for problem in found.problems if "no such topic" in problem]


def test_silent_brokers_may_have_topics_that_zookeeper_does_not_have(znodes, stub):
    """1. Brokers are moved to KRaft, and are named; 2. they are silent; 3. ZooKeeper's last broker is still there."""
    stub.hangs_up = True
    znodes.write("/consumers/g/offsets/newer/0", b"7")
    group, _ = read_facts(with_brokers(znodes, stub.broker), asking(f"127.0.0.1:{stub.port}"))
    assert (group.undescribed, group.absent) == ({"newer"}, frozenset())


def test_facts_are_read_from_brokers(without_brokers, stub):
    stub.leaderless.add(P1)
    config = asking(f"127.0.0.1:{stub.port}")
    group, facts = read_facts(without_brokers, config)
    assert (facts.controller, facts.unreachable) == (True, {})
    assert facts.replicas == {P0: (0,), P1: (0,)}
    assert [facts.states[p].leader for p in (P0, P1)] == [0, -1]
    assert facts.states_before == facts.states
    assert [finding.kind for finding in explain_group(group, facts)] == ["no-leader"]


def test_a_log_that_a_leader_refuses_to_describe_is_a_finding(znodes):
    group = read(znodes)
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end = 9, 9
        stub.offset_errors[P1] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        facts = read_cluster_facts(with_brokers(znodes, stub.broker), CONFIG, GroupReader(znodes), group)
    findings = [(found.kind, found.evidence) for found in explain_group(group, facts)]
    assert findings == [
        ("unreadable", f"log {which} of t-1 are unknown: TOPIC_AUTHORIZATION_FAILED (29)")
        for which in ("ends", "starts")
    ]


def test_logs_that_are_unknown_without_a_broker_are_no_finding_of_their_own(znodes):
    group = read(znodes)
    facts = read_cluster_facts(znodes, CONFIG, GroupReader(znodes), group)
    assert facts.log_ends == {}
    assert [problem for problem in facts.problems if "log ends" in problem] == []


def test_the_znode_of_a_topic_that_brokers_describe_does_not_show_when_it_was_created(znodes, stub):
    """1. The brokers leave ZooKeeper, and the znode stays; 2. the topic is created again, and its log is short."""
    stub.log(P0).end = 3
    group, facts = read_facts(znodes, asking(f"127.0.0.1:{stub.port}"))
    (finding,) = (found for found in explain_group(group, facts) if found.kind == "offset-outside-log")
    assert "if the topic was created again, use --to-earliest" in finding.to_do


@pytest.mark.parametrize("storage", ["auto", "zookeeper"])
def test_an_offset_that_kafka_does_not_report_is_not_taken_from_zookeeper(znodes, stub, storage):
    """That one may be years old."""
    znodes.write("/brokers/topics/__consumer_offsets", b'{"version":1,"partitions":{"0":[0]}}')
    stub.coordinator, stub.committed[P1] = stub.broker, 3
    stub.committed_errors = {P0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    reason = "the offset of t-0 in Kafka cannot be read: TOPIC_AUTHORIZATION_FAILED (29)"
    (described,) = describe_groups(with_brokers(znodes, stub.broker), CONFIG, ["g"], storage=storage)
    facts = read_cluster_facts(
        with_brokers(znodes, stub.broker), CONFIG, GroupReader(znodes), read(znodes), storage=storage
    )
    if storage == "zookeeper":
        assert [row.committed for row in described.partitions] == [5, 5]
        assert facts.committed == {P0: 5, P1: 5}
        assert reason not in (*described.problems, *facts.problems)
    else:
        assert [(row.committed, row.lag, row.is_readable) for row in described.partitions] == [
            (None, None, False),
            (3, 2, True),
        ]
        assert facts.committed == {P1: 3}
        assert reason in described.problems
        assert reason in facts.problems


@pytest.mark.parametrize("storage", ["auto", "kafka"])
def test_who_may_not_describe_the_topic_of_offsets_sees_offsets_in_kafka(without_brokers, stub, storage):
    """Brokers check the permissions on the group; without the topic, the question would create it."""
    stub.committed[P1] = 3

    def describe():
        (described,) = describe_groups(without_brokers, asking(f"127.0.0.1:{stub.port}"), ["g"], storage=storage)
        return [row.in_kafka for row in described.partitions]

    assert (describe(), stub.searches) == ([None, None], 0)
    stub.coordinator, stub.topic_errors[OFFSETS_TOPIC] = stub.broker, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert describe() == [None, 3]
    _, facts = read_facts(without_brokers, asking(f"127.0.0.1:{stub.port}"))
    assert facts.committed[P1] == 3


@pytest.mark.parametrize("storage", ["auto", "kafka"])
def test_offsets_in_kafka_are_unknown_where_zookeeper_has_no_broker(without_brokers, storage):
    """1. The group stores its offsets in Kafka 4; 2. without ``bootstrap.servers`` ZooKeeper alone can be asked."""
    without_brokers.delete("/consumers/g/owners")
    (described,) = describe_groups(without_brokers, CONFIG, ["g"], storage=storage)
    assert [row.is_unread for row in described.partitions] == [True, True]
    assert described.problems[0].startswith("offsets in Kafka are unknown, those shown of g are ZooKeeper's")
    with closing(LagSampler(ZooKeeperGroups(lambda: without_brokers, CONFIG, storage=storage), window=2)) as sampler:
        sampler.sample(["g"], at=0.0)
        assert sampler.missing() == ("a part of group g cannot be read: an offset or a log end of a partition",)


def test_a_question_about_groups_of_brokers_creates_no_topic(stub):
    with BrokerGroups(asking(f"127.0.0.1:{stub.port}")) as brokers:
        found, failures = brokers.read(["g"])
    assert (found, type(failures["g"]), stub.searches) == ({}, GroupMissing, 0)


def test_partitions_that_only_brokers_know_are_held(without_brokers, stub):
    without_brokers.delete("/consumers/g/owners/t/1")
    without_brokers.delete("/consumers/g/offsets/t/1")
    for config, held in ((asking(f"127.0.0.1:{stub.port}"), {P0, P1}), (CONFIG, {P0})):
        with closing(Cluster.of(without_brokers, config)) as cluster:
            assert partitions_to_hold(without_brokers, cluster, "g") == held


def test_an_offset_is_not_judged_while_the_coordinator_is_silent(znodes):
    """Kafka may have a newer one; a reset of the one in ZooKeeper would be wrong."""
    znodes.write("/brokers/topics/__consumer_offsets", b'{"version":1,"partitions":{"0":[1]}}')
    group = read(znodes)
    with running_stub_broker() as stub:
        stub.log(P0).end = 1
        facts = read_cluster_facts(with_brokers(znodes, stub.broker), CONFIG, GroupReader(znodes), group)
        assert facts.committed == {}
        assert any("offsets in Kafka are unknown" in problem for problem in facts.problems)


def test_an_offset_of_an_earlier_topic_counts_as_none(znodes):
    """1. Members commit 5 of each partition; 2. the topic is created again; 3. a member commits 3 of partition 1."""
    parent = "/consumers/g/zkconsumer/topics"
    znodes.write(parent, b"")
    znodes.write(f"{parent}/t", TopicRecord("old", znodes.nodes[parent].czxid).encode())
    topic = znodes.nodes["/brokers/topics/t"].data
    znodes.delete("/brokers/topics/t")
    znodes.write("/brokers/topics/t", topic[:-1] + b',"topic_id":"new"}')
    znodes.write("/consumers/g/offsets/t/1", b"3")
    counting = {P0: None, P1: 3}
    with (
        running_stub_broker() as stub,
        closing(ZooKeeperGroups(lambda: with_brokers(znodes, stub.broker), CONFIG)) as all,
    ):
        stub.log(P0).end = stub.log(P1).end = 9
        look = all.look(["g"], 0.0)
        (described,) = describe_groups(with_brokers(znodes, stub.broker), CONFIG, ["g"])
        group = look.groups["g"]
        facts = read_cluster_facts(with_brokers(znodes, stub.broker), CONFIG, GroupReader(znodes), group)
    assert {p: group.in_zookeeper(p) for p in (P0, P1)} == counting
    assert {p: sample.committed for p, sample in look.samples["g"].items()} == counting
    assert [(one.committed, one.in_zookeeper, one.lag) for one in described.partitions] == [(None,) * 3, (3, 3, 6)]
    why = "offsets of group g were stored for earlier topics of that name, so they count as none: t-0 (5)"
    assert why in look.problems
    assert why in described.problems
    found = explain_group(group, facts)
    assert [finding.subject for finding in found if finding.kind == "earlier-topic"] == ["t-0"]


def test_records_of_topics_that_may_not_be_read_are_a_problem(znodes):
    znodes.refused.add("/consumers/g/zkconsumer/topics/t")
    found = read(znodes)
    assert (found.in_zookeeper(P0), len(found.problems)) == (5, 1)


def test_facts_around_a_group_are_read(znodes):
    znodes.write("/config/clients/g", b'{"version":1,"config":{"consumer_byte_rate":"1024"}}')
    znodes.write("/config/clients/x", b"not JSON")
    group = read(znodes)
    with running_stub_broker() as stub:
        stub.log(P0).end, stub.log(P1).end = 9, 4
        facts = read_cluster_facts(with_brokers(znodes, stub.broker), CONFIG, GroupReader(znodes), group)
    assert (facts.controller, facts.unreachable, facts.quotas) == (True, {}, {"/config/clients/g": 1024.0})
    assert (facts.replicas[P0], facts.states[P0].leader, facts.log_ends) == ((1,), 1, {P0: 9, P1: 4})
    assert facts.origins["t"].identity.czxid == znodes.nodes["/brokers/topics/t"].czxid
    assert facts.user == "ANONYMOUS"
    assert {kind: len(nodes) for kind, nodes in facts.access.items()} == {
        "offset": 2,
        "parent of offsets": 1,
        "parent of owners": 1,
    }
    assert [finding.kind for finding in explain_group(group, facts)] == ["offset-outside-log", "unreadable", "quota"]


def test_the_host_of_a_member_is_in_the_id_that_its_client_made():
    ids = ("g_h-1.example-1700000000000-0a1b2c3d", "g_mine", "g_mine-1700000000000-x")
    members = group_znodes(members=dict.fromkeys(ids, Subscription({"t": 1}))).describe_members()
    assert [one.host for one in members] == ["h-1.example", None, None]
