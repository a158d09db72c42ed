"""Coordinators of groups, as their znodes show them."""

from tests.fixtures.groups import JoinSession
from zkconsumer.group.coordinator.rules.coordinatorznodes import Command, CommandNode
from zkconsumer.operate.groups.groupcoordinators import read_coordinators
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths

COMMANDS = CoordinatorPaths("g").commands


def test_the_command_of_the_newest_registration_counts_also_if_it_cannot_be_decoded():
    """As for the leader, which writes it again."""
    znodes, newest = JoinSession(), f"{COMMANDS}/g_a@00000000000000ff.1"
    znodes.write(f"{COMMANDS}/g_a@00000000000000ff.2", CommandNode.encode(Command({}, 3, 7)))
    znodes.write(newest, CommandNode.encode(Command({}, 3, 8)))
    assert read_coordinators(znodes, ["g"])["g"].commands == {"g_a": Command({}, 3, 8)}
    znodes.write(newest, b"{")
    found = read_coordinators(znodes, ["g"])["g"]
    assert (found.commands, [newest in problem for problem in found.problems]) == ({"g_a": None}, [True])
