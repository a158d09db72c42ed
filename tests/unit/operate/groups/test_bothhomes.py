"""A group that is looked for in ZooKeeper and at brokers, of which one does not answer, or refuses."""

import pytest

from zkconsumer.errors import (
    BrokerUnavailable,
    ChrootMissing,
    GroupMissing,
    NoCommonVersion,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.operate.groups.bothhomes import Explained, Looks, look_in_both

NO_ZOOKEEPER, NO_BROKER, REFUSED = (
    ZooKeeperUnavailable("no server"),
    BrokerUnavailable("no broker"),
    ZooKeeperRefused("no ACL"),
)
MISSING = GroupMissing("no such group")
ELSEWHERE = "whether it has members {}, too, is unknown: {}"


def looked(in_znodes, at_brokers):
    """What is found, and what is warned of, where each home has these members, or an error."""
    warned = []

    def look(answer):
        if isinstance(answer, Exception):
            raise answer
        return Explained(frozenset(answer), [f"found {answer}"])

    looks = Looks(
        lambda: look(in_znodes), lambda: look(at_brokers), lambda _: Explained(frozenset(), ["coordinator"]),
        str, warned.append, str,
    )  # fmt: skip
    return look_in_both("g", looks), warned


@pytest.mark.parametrize(
    ("in_znodes", "at_brokers", "found", "warned"),
    [
        (NO_ZOOKEEPER, "b", ["found b"], [ELSEWHERE.format("in ZooKeeper", "no server")]),
        (NO_ZOOKEEPER, "", ["found ", ELSEWHERE.format("in ZooKeeper", "no server")], []),
        (REFUSED, "b", ["found b", ELSEWHERE.format("in ZooKeeper", "no ACL")], []),
        ("z", NO_BROKER, ["found z", ELSEWHERE.format("at brokers", "no broker")], []),
        ("z", NoCommonVersion("old"), ["found z"], []),
        (MISSING, NO_BROKER, ["coordinator"], []),
    ],
)
def test_a_group_is_shown_with_what_is_unknown_of_the_other_home(in_znodes, at_brokers, found, warned):
    assert looked(in_znodes, at_brokers) == (found, warned)


def test_without_a_way_to_warn_what_is_unknown_is_a_finding():
    def silent():
        raise NO_ZOOKEEPER

    looks = Looks(silent, lambda: Explained(frozenset("b"), ["found b"]), None, str, None, str)
    assert look_in_both("g", looks) == ["found b", ELSEWHERE.format("in ZooKeeper", "no server")]


@pytest.mark.parametrize(
    ("in_znodes", "at_brokers", "raised"),
    [
        (NO_ZOOKEEPER, MISSING, "no server"),
        (NO_ZOOKEEPER, NO_BROKER, "no server"),
        (REFUSED, MISSING, "no ACL"),
        (ChrootMissing("no chroot"), "b", "no chroot"),
        (MISSING, NoCommonVersion("old"), "exists neither in ZooKeeper nor at the brokers"),
    ],
)
def test_why_a_group_is_found_nowhere(in_znodes, at_brokers, raised):
    with pytest.raises(Exception, match=raised):
        looked(in_znodes, at_brokers)
