"""Groups in ZooKeeper and at brokers, in one list."""

from dataclasses import replace

import pytest

from tests.fixtures.groups import group_znodes
from zkconsumer.errors import (
    BrokerUnavailable,
    GroupMissing,
    NoCommonVersion,
    ProtocolError,
    ZkConsumerError,
    ZooKeeperRefused,
)
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.brokergroups import ObservedBrokerGroup, describe_group
from zkconsumer.operate.groups.everydescription import EveryDescription
from zkconsumer.operate.groups.everygroup import EveryGroup, GroupInBoth
from zkconsumer.operate.groups.groupdescription import GroupDescription, PartitionDescription
from zkconsumer.operate.groups.groupdocuments import every_document
from zkconsumer.operate.groups.lagsamples import evaluate_observed
from zkconsumer.operate.groups.observedgroup import GroupsLook, unread_groups
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.groups.rules.lagstretches import LagSample, Stretches, follow
from zkconsumer.operate.offsets.brokeroffsets import Logs
from zkconsumer.wire.rules.describedgroup import DescribedGroup, DescribedMember
from zkconsumer.zookeeper.rules.znodes import MigrationMark

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SILENT, REFUSED = BrokerUnavailable("no broker answers"), ZkConsumerError("refused")
LIVE_ZNODES = group_znodes(members={"g_a": Subscription({"t": 1})}, topics={"t": 1})


def at_brokers(*assigned, name="g", offsets=(), topics=("t",), existing=None):
    """A group of one member that has these partitions; of none without them."""
    members = (DescribedMember("m", "c", None, frozenset(assigned), "/h", topics),) if assigned else ()
    described = DescribedGroup("classic", "Stable" if assigned else "Empty", "range", members)
    stored = {partition: StoredOffset(offset) for partition, offset in offsets}
    return ObservedBrokerGroup(name, described, None, stored, existing={"t": (0, 1)} if existing is None else existing)


def sample(partition_owner, *, is_live):
    return LagSample(0.0, 5, None, 0, 9, partition_owner, is_live)


class Source:
    """Groups that are there, with a sample of each of their partitions."""

    times = None
    unlisted = ()

    def __init__(self, groups=(), failures=None, *, unavailable=None):
        self.groups = {group.group: group for group in groups}
        self.failures = failures or {}
        self.unavailable = unavailable
        self.asked = []
        self.closed = False

    def begin_round(self):
        pass

    def names(self):
        if self.unavailable is not None:
            raise self.unavailable
        return sorted(self.groups)

    def look(self, groups, at):
        self.asked.append(list(groups))
        if isinstance(self.unavailable, (BrokerUnavailable, ZooKeeperRefused)):
            raise self.unavailable
        found = {name: self.groups[name] for name in groups if name in self.groups}
        samples = {
            name: {p: sample(group.owners.get(p), is_live=group.is_live(p)) for p in group.partitions}
            for name, group in found.items()
        }
        missing = {name: GroupMissing("no") for name in groups if name not in found}
        return GroupsLook(found, samples, {**missing, **self.failures}, ())

    def close(self):
        self.closed = True


def test_both_kinds_are_in_one_list_and_a_group_of_both_is_one():
    owned = group_znodes(members={"g_a": Subscription({"t": 1})}, topics={"t": 2}, owners={"t-0": "g_a-0"})
    zookeeper, brokers = Source([owned]), Source([at_brokers(T1), at_brokers(T0, name="h")])
    every = EveryGroup(zookeeper, brokers)
    assert every.names() == ["g", "h"]
    look = every.look(every.names(), 0.0)
    assert (list(look.groups), look.failures) == (["g", "h"], {})
    both = look.groups["g"]
    assert both.live == {"g_a", "m"}
    assert both.owners == {T0: "g_a-0", T1: "m"}
    assert [row.id for row in both.describe_members()] == ["g_a", "m"]
    assert {p: one.owner for p, one in look.samples["g"].items()} == {T0: "g_a-0", T1: "m"}
    assert (both.layout, both.in_brokers.state) == ("consumer", "Stable")
    assert both.in_two_homes == "it has members in ZooKeeper (g_a) and at brokers (m): both read every record"
    assert look.groups["h"].in_two_homes == replace(both, at_brokers=at_brokers()).in_two_homes == ""
    every.close()
    assert zookeeper.closed
    assert brokers.closed


@pytest.mark.parametrize(
    ("member", "at", "owner"),
    [("g_a", (T0,), "g_a-0"), ("g_b", (T0,), "m"), ("g_b", (T1,), "g_a-0")],
    ids=["live in both", "dead in ZooKeeper", "dead in ZooKeeper, none at brokers"],
)
def test_an_owner_at_brokers_is_shown_unless_one_in_zookeeper_lives(member, at, owner):
    znodes = group_znodes(members={member: Subscription({"t": 1})}, topics={"t": 2}, owners={"t-0": "g_a-0"})
    brokers, logs = at_brokers(*at), Logs({}, {})
    every = EveryGroup(Source([znodes]), Source([brokers]))
    look = every.look(["g"], 0.0)
    row = PartitionDescription("t", 0, "g_a-0", znodes.is_live(T0), 5, 9, 4)
    description = EveryDescription(GroupDescription("g", (), (row,)), describe_group(brokers, logs, ()))
    document = every_document(description)["partitions"][0]
    is_live = znodes.is_live(T0) or owner == "m"
    assert look.groups["g"].owners[T0] == look.samples["g"][T0].owner == document["owner"] == owner
    assert document["owner_live"] == is_live


@pytest.mark.parametrize(
    ("storage", "assigned", "counts"),
    [("auto", (), False), ("zookeeper", (), False), ("kafka", (), True), ("both", (), True), ("auto", (T0,), True)],
)
def test_a_partition_that_brokers_alone_have_counts_where_its_offset_does(storage, assigned, counts):
    """One that nobody consumes any more has a lag that grows, and would be reported as a consumer that has stopped."""
    znodes = group_znodes(members={"g_a": Subscription({"t": 1})}, topics={"t": 1}, owners={"t-0": "g_a-0"})
    brokers = at_brokers(*assigned, offsets=[(T0, 9), (T1, 10)])
    look = EveryGroup(Source([znodes]), Source([brokers]), storage=storage).look(["g"], 0.0)
    expected = [T0, T1] if counts else [T0]
    assert (sorted(look.samples["g"]), look.groups["g"].partitions) == (expected, expected)


@pytest.mark.parametrize(("target", "counts"), [("kafka:g", True), ("kafka:h", False)])
def test_a_partition_that_a_migrated_group_has_begun_at_brokers_counts(target, counts):
    """1. A group is migrated; 2. its new consumers subscribe to one more topic, and end: what they leave has lag."""
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark("migrated", target, 1))
    look = EveryGroup(Source([znodes]), Source([at_brokers(offsets=[(T0, 9), (T1, 4)])])).look(["g"], 0.0)
    expected = [T0, T1] if counts else [T0]
    assert (sorted(look.samples["g"]), look.groups["g"].partitions) == (expected, expected)


def test_brokers_are_asked_for_their_groups_only():
    """They answer for each group on its own, and a cluster may have thousands in ZooKeeper."""
    zookeeper, brokers = Source([group_znodes()]), Source([at_brokers(T0, name="h")])
    every = EveryGroup(zookeeper, brokers)
    every.look(every.names(), 0.0)
    every.look(["g", "h"], 1.0)
    assert brokers.asked == [["h"], ["h"]]
    EveryGroup(zookeeper, brokers).look(["g"], 0.0)
    assert brokers.asked[-1] == ["g"], "named without a list"


def test_brokers_that_list_nothing_are_a_problem():
    every = EveryGroup(Source([group_znodes()]), Source(unavailable=SILENT))
    assert every.names() == ["g"]
    assert every.unlisted == ("groups that brokers coordinate cannot be listed now: no broker answers",)
    assert every.look(["g"], 0.0).problems == every.unlisted


def test_a_zookeeper_that_refuses_the_login_does_not_hide_groups_of_brokers():
    refused = ZooKeeperRefused("the login failed")
    every = EveryGroup(Source(unavailable=refused), Source([at_brokers(T0)]))
    for _ in range(2):
        assert every.names() == ["g"]
        assert every.unlisted == ("groups in ZooKeeper cannot be listed now: the login failed",)
    named = EveryGroup(Source(unavailable=refused), Source([at_brokers(T0)])).look(["g"], 0.0)
    assert (list(named.groups), named.partly_read) == (["g"], {"g": refused})


def test_brokers_before_0_9_have_no_groups():
    old = NoCommonVersion("no common version")
    every = EveryGroup(Source([group_znodes()]), Source(failures={"g": old, "h": old}, unavailable=old))
    assert every.names() == ["g"]
    assert (every.look(["g"], 0.0).partly_read, every.unlisted) == ({}, ())
    look = EveryGroup(Source([group_znodes()]), Source(failures={"g": old, "h": old})).look(["g", "h"], 0.0)
    assert (list(look.groups), look.partly_read) == (["g"], {})
    assert "neither in ZooKeeper nor at the brokers" in str(look.failures["h"])


def test_brokers_that_load_their_groups_keep_those_of_the_last_answer():
    brokers = Source([at_brokers(T0, name="h")])
    every = EveryGroup(Source([group_znodes()]), brokers)
    every.look(every.names(), 0.0)
    brokers.unavailable = ProtocolError("does not list groups: COORDINATOR_LOAD_IN_PROGRESS")
    assert every.names() == ["g", "h"]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in every.unlisted[0]
    assert set(every.look(every.names(), 1.0).failures) == {"h"}


def test_a_malformed_answer_of_a_coordinator_does_not_show_that_the_group_is_missing():
    error = ProtocolError("malformed")
    look = EveryGroup(Source([group_znodes()]), Source(failures={"g": error, "h": error})).look(["g", "h"], 0.0)
    assert (look.failures, look.partly_read) == ({"h": error}, {"g": error})


@pytest.mark.parametrize("silent", ["zookeeper", "brokers"])
def test_a_home_that_becomes_silent_keeps_its_groups_unread(silent):
    zookeeper, brokers = Source([group_znodes()]), Source([at_brokers(T0, name="h"), at_brokers(name="g")])
    every = EveryGroup(zookeeper, brokers)
    every.look(every.names(), 0.0)
    home = zookeeper if silent == "zookeeper" else brokers
    home.unavailable, before = SILENT, len(home.asked)
    assert every.names() == ["g", "h"]
    look = every.look(every.names(), 1.0)
    assert len(home.asked) == before, "it did not list its groups, so it is not asked"
    assert "g" in look.groups
    assert look.partly_read == {"g": SILENT}
    assert ("h" in look.groups, set(look.failures)) == ((True, set()) if silent == "zookeeper" else (False, {"h"}))
    assert look.problems == every.unlisted
    home.unavailable = None
    home.groups.pop("g")
    assert every.look(every.names(), 2.0).partly_read == {}


@pytest.mark.parametrize(
    ("in_znodes", "of_brokers", "partly_read"),
    [
        (Source(unavailable=SILENT), Source([at_brokers(T0)]), {}),
        (Source(unavailable=SILENT), Source([at_brokers()]), {"g": SILENT}),
        (Source(failures={"g": REFUSED}), Source([at_brokers(T0)]), {"g": REFUSED}),
        (Source([LIVE_ZNODES]), Source(unavailable=SILENT), {"g": SILENT}),
    ],
    ids=["live at brokers", "no members at brokers", "ZooKeeper refuses", "live in ZooKeeper"],
)
def test_only_a_group_that_is_live_at_brokers_needs_no_answer_of_a_silent_zookeeper(in_znodes, of_brokers, partly_read):
    look = EveryGroup(in_znodes, of_brokers).look(["g"], 0.0)
    assert (list(look.groups), look.partly_read) == (["g"], partly_read)


def test_groups_of_two_silent_homes_cannot_be_listed():
    every = EveryGroup(Source(unavailable=SILENT), Source(unavailable=SILENT))
    with pytest.raises(BrokerUnavailable, match=r"in ZooKeeper cannot be listed now.*coordinate cannot be listed now"):
        every.names()


def test_why_a_group_cannot_be_read():
    every = EveryGroup(Source([group_znodes()]), Source(failures={"g": REFUSED, "h": REFUSED}))
    look = every.look(["g", "h", "i"], 0.0)
    assert look.partly_read == {"g": REFUSED}
    assert unread_groups(look.groups, {}, (), look.partly_read) == ("a part of group g cannot be read: refused",)
    assert look.failures["h"] is REFUSED
    assert "neither in ZooKeeper nor at the brokers" in str(look.failures["i"])


@pytest.mark.parametrize(
    ("members", "assigned", "target", "is_shown"),
    [
        ({}, (T0,), "kafka:g", False),
        ({}, (T0,), "", False),
        ({}, (T0,), "kafka:h", True),
        ({}, (), "kafka:g", False),
        ({}, (), "kafka:h", True),
        ({"g_a": Subscription({"t": 1})}, (T0,), "kafka:g", True),
    ],
)
def test_a_migrated_group_that_continues_at_brokers_needs_no_mark(members, assigned, target, is_shown):
    mark = MigrationMark("migrated", target, 1)
    znodes = replace(group_znodes(members=members, topics={"t": 2}, offsets={"t-0": 5}), mark=mark)
    both = GroupInBoth(znodes, at_brokers(*assigned))
    assert both.mark == (mark if is_shown else None)
    assert both.newest_commit_ms == (0 if is_shown else None), "not of offsets that it has left"


def test_a_migrated_group_that_brokers_have_lost_is_one_without_members():
    """1. A group is migrated, and its new consumers end; 2. its offsets expire, and no broker lists the group."""
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark("migrated", "kafka:g", 1))
    every = EveryGroup(Source([znodes]), Source([at_brokers(T0, name="h")]))
    look = every.look(every.names(), 0.0)
    series = {p: [follow(Stretches(), one)] for p, one in look.samples["g"].items()}
    status = evaluate_observed(look.groups["g"], series, 2)
    assert (status.status, status.is_problem, look.partly_read) == (LagStatus.NO_MEMBERS, True, {})
    assert "the brokers have no group g" in status.reason
    assert look.groups["g"].in_brokers is None


def test_offsets_that_zookeeper_has_of_a_lost_group_are_not_judged():
    """1. It is migrated at offset 5; 2. the new consumers commit 1000, and end; 3. their offsets expire."""
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark("migrated", "kafka:g", 1))
    lost = EveryGroup(Source([znodes]), Source()).look(["g"], 0.0).groups["g"]
    samples = [LagSample(at, offset, None, 100, 2000, None, False) for at, offset in ((0.0, 1000), (60.0, 5))]
    first = follow(Stretches(), samples[0])
    status = evaluate_observed(lost, {T0: [first, follow(first.stretches, samples[1])]}, 2)
    assert (status.status, "the brokers have no group g" in status.reason) == (LagStatus.NO_MEMBERS, True)
    assert status.partitions[T0].status is LagStatus.UNKNOWN


def test_a_mark_that_cannot_be_read_does_not_show_that_a_group_is_lost():
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark("migrated", "", 1))
    look = EveryGroup(Source([znodes]), Source()).look(["g"], 0.0)
    assert look.groups["g"].lost == ""


def test_whether_brokers_have_lost_a_migrated_group_needs_their_answer():
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark("migrated", "kafka:g", 1))
    silent = Source([at_brokers(T0, name="h")])
    every = EveryGroup(Source([znodes]), silent)
    every.names()
    silent.failures = {"g": SILENT}  # its coordinator is the broker that is away
    look = every.look(every.names(), 0.0)
    assert (look.partly_read, look.groups["g"].lost) == ({"g": SILENT}, "")
    silent.unavailable = SILENT
    assert every.look(every.names(), 1.0).partly_read == {"g": SILENT}
