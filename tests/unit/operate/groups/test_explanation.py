"""Each finding of an explanation, from facts written by hand."""

import shlex
from dataclasses import replace

import pytest

from tests.fixtures.groups import group_znodes
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import Broker, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.explanation import explain_group
from zkconsumer.operate.groups.rules.clusterznodes import LeaderAndIsr
from zkconsumer.operate.groups.rules.lagstatus import evaluate_group
from zkconsumer.zookeeper.rules.znodes import MigrationMark

P0 = TopicPartition("t", 0)
ALL = [TopicPartition(topic, number) for topic in "tu" for number in range(4)]
ONE = Subscription({"t": 1})
STATES = {TopicPartition("t", n): LeaderAndIsr(1, 3, (1,)) for n in range(4)}
REPLICAS = {TopicPartition("t", n): (1,) for n in range(4)}
CLIENT = "/config/clients/g"
HEALTHY = ClusterFacts(states=STATES, replicas=REPLICAS)


def facts(**changes):
    return ClusterFacts(**{"states": STATES, "replicas": REPLICAS, **changes})


def healthy(**changes):
    return group_znodes(**{"members": {"g_a": ONE}, "topics": {"t": 1}, "owners": {"t-0": "g_a-0"}, **changes})


def kinds(znodes, around=HEALTHY):
    return [finding.kind for finding in explain_group(znodes, around)]


def test_a_healthy_group_has_no_findings():
    assert kinds(healthy()) == []


def test_a_group_without_members():
    assert kinds(group_znodes(topics={"t": 1}, offsets={"t-0": 1})) == ["no-member"]


@pytest.mark.parametrize(
    ("state", "members", "found"),
    [
        ("migrated", {}, ["migrated"]),
        ("migrated", {"g_a": ONE}, ["migrated", "gave-up", "no-owner", "offset-outside-log"]),
        ("migrating", {}, ["migrated", "offset-outside-log"]),
        ("undoing", {}, ["migrated", "offset-outside-log"]),
    ],
)
def test_no_member_is_to_be_started_in_a_group_with_the_mark_of_a_migration(state, members, found):
    znodes = replace(group_znodes(topics={"t": 1}, members=members), mark=MigrationMark(state, "kafka:g", 1))
    assert kinds(znodes, facts(committed={P0: 4}, log_starts={P0: 5}, log_ends={P0: 9})) == found


def test_an_unreadable_registration():
    assert kinds(healthy(unreadable={"g_x": "not JSON"})) == ["unreadable-registration"]


def test_more_threads_than_partitions():
    (finding,) = explain_group(healthy(members={"g_a": ONE, "g_b": ONE}), HEALTHY)
    assert (finding.kind, finding.subject) == ("more-threads-than-partitions", "g_b")
    assert "t has 1 and 2 threads" in finding.evidence


def test_members_with_a_topic_that_is_not_described_are_not_too_many():
    """Each may have a partition of it; that of another topic is missed all the same."""
    members = dict.fromkeys(["g_a", "g_b"], Subscription({"t": 1, "secret": 1}))
    unknown = frozenset({"secret"})
    assert kinds(replace(healthy(members=members), undescribed=unknown)) == ["undescribed-topic"]
    lacking = replace(healthy(members=members, topics={"t": 2}), undescribed=unknown)
    assert kinds(lacking) == ["gave-up", "no-owner", "undescribed-topic"]
    assert kinds(lacking, facts(has_brokers=False)) == ["gave-up", "no-owner", "no-broker"], "it says so of all topics"


def test_a_member_that_gave_up():
    znodes = healthy(members={"g_a": ONE, "g_b": ONE}, topics={"t": 2})
    gave_up, ownerless = explain_group(znodes, HEALTHY)
    assert (gave_up.kind, gave_up.subject, ownerless.kind, ownerless.subject) == ("gave-up", "g_b", "no-owner", "t 1")
    assert "t 1, of which 0 have another owner and 1 have none" in gave_up.evidence


def test_a_zkconsumer_member_that_owns_nothing_has_not_given_up():
    znodes = healthy(members={"g_a": ONE, "g_b": ONE}, topics={"t": 2}, our_clients={"g_b": "range"})
    owns_nothing, ownerless = explain_group(znodes, HEALTHY)
    assert (owns_nothing.kind, owns_nothing.subject) == ("owns-nothing", "g_b")
    assert "claims them again" in owns_nothing.evidence
    assert "do not restart it" in owns_nothing.to_do
    assert "restart" not in ownerless.to_do
    assert owns_nothing.next_command == ownerless.next_command == "zkconsumer groups verify --group g"


def test_who_should_own_a_partition_without_owner_is_named():
    """A JVM member that owns one of its two partitions is restarted, if no rebalance is under way."""
    (finding,) = explain_group(healthy(topics={"t": 2}), HEALTHY)
    assert (finding.kind, finding.subject) == ("no-owner", "t 1")
    assert "by its share g_a should own them; a JVM member stops trying" in finding.evidence
    assert "restart g_a" in finding.to_do
    assert "STOP in `zkconsumer groups status`" in finding.to_do


@pytest.mark.parametrize("subscription", [Subscription({"gone": 1}), Subscription.by_filter(Whitelist("gone.*"), 1)])
def test_a_member_without_a_topic(subscription):
    found = explain_group(healthy(members={"g_a": ONE, "g_b": subscription}), HEALTHY)
    assert (found[0].kind, found[0].subject) == ("idle-member", "g_b")


def test_zkconsumer_members_with_different_strategies():
    members = {"g_a": ONE, "g_b": ONE}
    znodes = healthy(
        members=members,
        topics={"t": 2},
        owners={"t-0": "g_a-0", "t-1": "g_b-0"},
        our_clients={"g_a": "range", "g_b": "roundrobin"},
    )
    assert kinds(znodes) == ["different-strategies"]


def test_jvm_members_with_different_strategies_are_known_by_what_they_own():
    both = Subscription({"t": 1, "u": 1})
    # By range g_a owns the first two partitions of each topic; by round-robin members own them in turn.
    by_range, in_turn = {"t-0": "g_a-0", "t-1": "g_a-0"}, {"u-1": "g_b-0", "u-3": "g_b-0"}
    around = facts(states=dict.fromkeys(ALL, LeaderAndIsr(1, 3, (1,))))
    znodes = healthy(members={"g_a": both, "g_b": both}, topics={"t": 4, "u": 4}, owners=by_range | in_turn)
    assert kinds(znodes, around) == ["different-strategies", "no-owner"]
    fitting = {"u-2": "g_b-0", "u-3": "g_b-0"}
    znodes = healthy(members={"g_a": both, "g_b": both}, topics={"t": 4, "u": 4}, owners=by_range | fitting)
    assert kinds(znodes, around) == ["no-owner"]


def test_a_dead_owner():
    (finding,) = explain_group(healthy(owners={"t-0": "g_a-0", "u-0": "g_x-0"}), HEALTHY)
    assert (finding.kind, finding.subject) == ("dead-owner", "u-0")


def test_an_owner_znode_that_no_session_ends_is_to_be_deleted():
    znodes = healthy(members={"g_a": ONE, "g_b": ONE}, topics={"t": 2}, owners={"t-0": "g_a-0", "t-1": "tool"})
    finding, gave_up = explain_group(replace(znodes, lasting_owners=frozenset({TopicPartition("t", 1)})), HEALTHY)
    assert (finding.kind, finding.subject, gave_up.kind) == ("dead-owner", "t-1", "gave-up"), "the cause is first"
    assert "the owner znode is persistent" in finding.evidence
    assert "delete /consumers/g/owners/t/1 " in finding.to_do
    assert "session timeout" not in finding.to_do


def test_an_owner_that_is_no_thread_of_a_live_member():
    """As verify reports it: no thread of the member consumes the partition."""
    (finding,) = explain_group(healthy(owners={"t-0": "g_a-7"}), HEALTHY)
    assert (finding.kind, finding.subject) == ("strange-owner", "t-0")


@pytest.mark.parametrize(("offset", "where"), [(4, "earliest"), (10, "latest")])
def test_an_offset_outside_the_log(offset, where):
    around = facts(committed={P0: offset}, log_starts={P0: 5}, log_ends={P0: 9})
    (finding,) = explain_group(healthy(), around)
    assert finding.kind == "offset-outside-log"
    command = f"zkconsumer offsets reset --group g --topic t:0 --to-{where}"
    assert finding.to_do.startswith("stop all members")
    assert finding.next_command == command


@pytest.mark.parametrize(
    ("committed", "log_ends", "lag"),
    [
        ({P0: 4}, {P0: 9}, "known lag 5"),
        ({P0: 9}, {P0: 9}, "known lag 0"),
        ({P0: 4}, {}, "lag unknown"),
        ({}, {P0: 9}, "lag unknown"),
    ],
)
def test_a_group_without_members_shows_its_lag_and_is_a_problem_if_it_has_any(committed, log_ends, lag):
    (finding,) = explain_group(group_znodes(topics={"t": 1}), facts(committed=committed, log_ends=log_ends))
    assert (finding.kind, finding.evidence) == ("no-member", f"no consumer is registered; {lag}")
    assert finding.is_problem == (lag == "known lag 5")


def test_a_group_without_members_shows_when_it_last_committed():
    (finding,) = explain_group(group_znodes(topics={"t": 1}, offsets={"t-0": 4}), facts())
    assert finding.evidence.endswith("; its newest commit to ZooKeeper was at 1970-01-01T00:00:00Z")


def test_a_group_without_partitions_has_the_lag_that_its_status_shows():
    (finding,) = explain_group(group_znodes(), facts())
    status = evaluate_group({}, 2, members=0)
    assert (finding.evidence, status.reason) == (
        "no consumer is registered; known lag 0",
        "no member is registered; known lag 0",
    )


def test_partitions_of_a_topic_with_one_remedy_have_one_command():
    partitions = [TopicPartition("t", n) for n in range(3)]
    around = facts(
        committed=dict(zip(partitions, (4, 10, 3), strict=True)),
        log_starts=dict.fromkeys(partitions, 5),
        log_ends=dict.fromkeys(partitions, 9),
    )
    znodes = healthy(topics={"t": 3}, owners={"t-0": "g_a-0", "t-1": "g_a-0", "t-2": "g_a-0"})
    named = {f.subject: f.next_command.split(" --topic ")[-1] or f.to_do for f in explain_group(znodes, around)}
    assert named == {"t-0": "t:0,2 --to-earliest", "t-1": "t:1 --to-latest", "t-2": "as for t-0"}


@pytest.mark.parametrize(
    ("in_zookeeper", "created", "why", "where"),
    [
        (10, 2, "the topic was created again after that commit, unless ZooKeeper was filled by copying", "earliest"),
        (10, 0, "by an unclean leader election, or the offset was set by hand; the leader epoch is 3", "latest"),
        (None, 2, "by an unclean leader election, or the topic was created again", "latest"),  # Kafka's counts
        (10, None, "by an unclean leader election, or the topic was created again", "latest"),  # brokers describe it
    ],
)
def test_why_an_offset_lies_after_the_log_end(in_zookeeper, created, why, where):
    """To the log end only where that skips no record of a topic that was created again."""
    group = healthy(offsets={"t-0": 10})
    nodes = {} if in_zookeeper is None else group.offsets
    origins = {"t": TopicOrigin(TopicIdentity(None, created))}
    around = facts(committed={P0: 10}, log_ends={P0: 9}, origins=origins, offset_nodes=nodes)
    (finding,) = explain_group(group, around)
    assert why in finding.evidence
    assert finding.next_command.endswith(f" --to-{where}")
    is_unknown = "if the topic was created again, use --to-earliest instead" in finding.to_do
    assert is_unknown == ("or the topic was created again" in why)


def test_no_broker_is_registered_and_none_was_named():
    found = explain_group(healthy(), facts(has_brokers=False, controller=False, problems=("offsets are unknown",)))
    assert [(finding.kind, finding.subject) for finding in found] == [
        ("no-broker", "/brokers/ids"),
        ("unreadable", "g"),
    ]
    assert "start the brokers" in found[1].to_do, "no ACL is in the way"


def test_an_unknown_topic():
    assert kinds(healthy(members={"g_a": Subscription({"t": 1, "gone": 1})})) == ["unknown-topic"]


def test_brokers_and_the_controller():
    around = facts(unreachable={Broker(1, "h", 9): "refused"}, controller=False)
    assert kinds(healthy(), around) == ["broker-unreachable", "no-controller"]


@pytest.mark.parametrize(
    ("bootstrap_servers", "subject"), [("", "/controller"), ("b1:9092,b2:9092", "metadata of b1:9092,b2:9092")]
)
def test_a_missing_controller_is_named_where_it_was_looked_for(bootstrap_servers, subject):
    (finding,) = explain_group(healthy(), facts(controller=False, bootstrap_servers=bootstrap_servers))
    assert finding.subject == subject
    assert ("znode" in f"{finding.evidence} {finding.to_do}") == (subject == "/controller")


@pytest.mark.parametrize(
    ("state", "replicas", "kind"),
    [
        (LeaderAndIsr(-1, 3, (1,)), (1, 2), "no-leader"),
        (None, (1, 2), "no-leader"),
        (LeaderAndIsr(1, 3, (1,)), (1, 2), "short-isr"),
    ],
)
def test_leaders_and_replicas(state, replicas, kind):
    around = facts(states={} if state is None else {P0: state}, replicas={P0: replicas})
    assert kinds(healthy(), around) == [kind]
    (finding,) = explain_group(healthy(), replace(around, bootstrap_servers="b1:9092"))
    assert finding.to_do == "run kafka-topics.sh --describe --topic t --bootstrap-server b1:9092"


def test_a_replica_without_a_registered_broker_is_named_and_the_command_has_a_broker_that_answers():
    around = facts(states={P0: LeaderAndIsr(1, 3, (1,))}, replicas={P0: (1, 2, 3)}, answering=(Broker(1, "b1", 9092),))
    (finding,) = explain_group(healthy(), around)
    assert finding.evidence.endswith("in sync 1, not registered 2,3 (down, or hanging)")
    assert finding.to_do == "run kafka-topics.sh --describe --topic t --bootstrap-server b1:9092"


@pytest.mark.parametrize(
    ("epochs", "before", "found"),
    [
        ((3, 3, 3), (3, 3, 3), []),
        ((12, 3, 4), (12, 3, 4), []),
        ((14, 3, 4), (14, 3, 4), ["t-0"]),
        ((3, 4, 3), (3, 3, 3), ["t-1"]),
        ((40,), (40,), []),  # nothing to compare it with
    ],
)
def test_jumps_of_the_leader_epoch(epochs, before, found):
    now, then = (
        {TopicPartition("t", number): LeaderAndIsr(1, epoch, (1,)) for number, epoch in enumerate(each)}
        for each in (epochs, before)
    )
    findings = explain_group(healthy(), facts(states=now, states_before=then))
    assert [(one.kind, one.subject) for one in findings] == [("leader-epoch", subject) for subject in found]


def test_a_znode_that_another_principal_created():
    anyone, admin = ((31, "world", "anyone"),), ((31, "sasl", "admin"), (1, "world", "anyone"))
    nodes = {"/o/0": anyone, "/o/1": admin}
    (finding,) = explain_group(healthy(), facts(access={"offset": nodes, "parent of offsets": {"/o": anyone}}))
    assert (finding.kind, finding.subject) == ("access", "/o/1")
    assert finding.evidence.startswith("only sasl:admin may write it, not world:anyone")
    (finding,) = explain_group(healthy(), facts(access={"offset": {"/o/1": admin}}, members_as={"sasl:kafka"}))
    assert "not sasl:kafka" in finding.evidence
    assert kinds(healthy(), facts(access={"offset": nodes}, members_as={"sasl:admin"})) == []
    assert kinds(healthy(), facts(access={"parent of offsets": {"/o": admin}})) == []


def test_what_cannot_be_read():
    assert kinds(healthy(problems=("no permission",)), facts(problems=("no quota",))) == ["unreadable"] * 2


def test_clocks_sessions_and_quotas():
    around = facts(
        clock_ahead_s={"g_a": 90.0, "g_b": 5.0, "g_c": -40.0}, expiries={"u": 2.0, "v": 0.0}, quotas={CLIENT: 9.0}
    )
    assert kinds(healthy(), around) == ["clock", "clock", "session-expiries", "quota"]
    assert kinds(healthy(), facts(quotas={"/config/clients/other": 1.0})) == []
    assert kinds(healthy(), facts(quotas={"/config/clients/<default>": 1.0})) == ["quota"]


def test_the_quota_of_the_user_counts_before_that_of_the_client():
    user, pair = "/config/users/al%20ice", "/config/users/al%20ice/clients/g"
    for existing, applies in (
        ((CLIENT, user, pair), [pair]),
        ((CLIENT, user), [user]),
        ((CLIENT, "/config/users/other"), [CLIENT]),
        ((CLIENT, "/config/users/<default>/clients/<default>"), ["/config/users/<default>/clients/<default>"]),
    ):
        around = facts(quotas=dict.fromkeys(existing, 1.0), user="al ice")
        assert [one.subject for one in explain_group(healthy(), around)] == applies
    unknown = facts(quotas=dict.fromkeys((CLIENT, user), 1.0))
    assert [one.subject for one in explain_group(healthy(), unknown)] == [CLIENT, user]


def test_a_quota_that_brokers_report_is_named_without_a_znode():
    quotas = {"/config/users/al%20ice/clients/<default>": 1.0}
    around = facts(quotas=quotas, user="al ice", brokers_report_quotas=True)
    assert [one.subject for one in explain_group(healthy(), around)] == ["user al ice, client-id <default>"]


def test_commands_can_be_pasted_into_a_shell():
    around = facts(committed={P0: 10}, log_ends={P0: 9})
    znodes = healthy()
    object.__setattr__(znodes, "group", "a b;c")
    (finding,) = explain_group(znodes, around)
    assert shlex.split(finding.next_command)[-5:-3] == ["--group", "a b;c"]
