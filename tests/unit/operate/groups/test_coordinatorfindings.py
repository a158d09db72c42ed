"""What is found about a group's coordinator, from facts written by hand; and what is not found because of one."""

from tests.fixtures.groups import group_znodes
from zkconsumer.group.coordinator.rules.coordinatorznodes import Command, Status
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.operate.groups.clusterfacts import ClusterFacts
from zkconsumer.operate.groups.explanation import explain_group
from zkconsumer.operate.groups.groupcoordinators import GroupCoordinator
from zkconsumer.operate.groups.rules.clusterznodes import LeaderAndIsr

ONE = Subscription({"t": 1})
P = [TopicPartition("t", number) for number in range(4)]
FACTS = ClusterFacts(states={p: LeaderAndIsr(1, 3, (1,)) for p in P}, replicas=dict.fromkeys(P, (1,)))


def command(name, *partitions):
    return Command(dict.fromkeys(partitions, ConsumerThreadId(name, 0)), 3, 7)


def coordinator(**values):
    given = {
        "leader": "g_a",
        "epoch": 3,
        "status": Status(3, 7, 1),
        "commands": {"g_a": command("g_a", P[1]), "g_b": command("g_b", P[0])},
    }
    return GroupCoordinator(**{**given, **values})


def found(made=None, **values):
    given = {
        "members": {"g_a": ONE, "g_b": ONE},
        "topics": {"t": 2},
        "owners": {"t-0": "g_b-0", "t-1": "g_a-0"},
        "our_clients": {"g_a": "range", "g_b": "range"},
    }
    znodes = group_znodes(**{**given, **values}, coordinator=coordinator() if made is None else made)
    return [(one.kind, one.subject) for one in explain_group(znodes, FACTS)]


def test_a_group_that_was_assigned_otherwise_than_by_range_is_healthy():
    assert found() == []


def test_a_member_without_a_share_has_not_given_up():
    """By range the first member would have one of the partitions: it is the coordinator that decides."""
    commands = {"g_a": command("g_a"), "g_b": command("g_b", P[0]), "g_c": command("g_c", P[1])}
    kinds = found(
        coordinator(commands=commands),
        members=dict.fromkeys(commands, ONE),
        our_clients=dict.fromkeys(commands, "range"),
        owners={"t-0": "g_b-0", "t-1": "g_c-0"},
    )
    assert kinds == [("more-threads-than-partitions", "g_a")]


def test_a_group_without_a_leader():
    assert found(coordinator(leader=None, epoch=None)) == [("no-coordinator", "g")]


def test_a_coordinator_that_commands_no_member():
    assert found(coordinator(status=Status(3, 7, 1, refused="g_z assigns by range"))) == [
        ("coordinator-refuses", "g_a")
    ]


def test_the_status_of_a_former_epoch_is_ignored():
    assert found(coordinator(status=Status(2, 7, 1, frozenset(P), "g_z assigns by range"))) == []


def test_a_member_that_does_not_release():
    commands = {"g_a": command("g_a"), "g_b": command("g_b", P[0])}
    made = coordinator(status=Status(3, 7, 1, frozenset({P[1]})), commands=commands)
    assert ("slow-release", "g_a") in found(made)


def test_a_member_that_was_not_commanded():
    made = coordinator(commands={"g_a": command("g_a", P[1], P[0]), "g_b": None})
    assert ("not-commanded", "g_b") in found(made, owners={"t-0": "g_a-0", "t-1": "g_a-0"})


def test_a_member_that_is_refused():
    commands = {"g_a": command("g_a", P[1], P[0]), "g_b": Command({}, 3, 7, "it hangs", 6000)}
    made = coordinator(commands=commands)
    assert ("member-refused", "g_b") in found(made, owners={"t-0": "g_a-0", "t-1": "g_a-0"})


def test_a_member_that_does_not_obey():
    assert found(owners={"t-1": "g_a-0"}) == [("command-not-obeyed", "g_b"), ("no-owner", "t 0")]


def test_members_without_commands_are_judged_as_before():
    """The coordinator assigns as they do, so what each should own is known."""
    made = coordinator(commands={"g_a": command("g_a", P[0])})
    kinds = found(made, owners={"t-0": "g_a-0"}, our_clients={"g_a": "range"})
    assert ("gave-up", "g_b") in kinds
