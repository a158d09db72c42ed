"""Which registrations a leader reads again."""

from collections.abc import Iterable

import pytest

from zkconsumer.group.zookeeper.registrationreads import RegistrationReads
from zkconsumer.zookeeper.reads import Reads, Znode

IDS, SESSIONS = "/consumers/g/ids", "/consumers/g/zkconsumer/members"


class Session:
    """Notes what is read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def read_many(self, paths: Iterable[str]) -> Reads:
        wanted = list(paths)
        self.read += wanted
        return Reads({path: Znode(b"", 1, 0, 0, 1, 1) for path in wanted}, {})


class Leader:
    """Lists members and reads their registrations."""

    def __init__(self) -> None:
        self._session = Session()
        self._reads = RegistrationReads(self._session)  # type: ignore[arg-type]  # reads only this way

    def look(self, members: str, cversion: int, in_second_session: str = "") -> str:
        """The members, one letter each, whose registrations are read."""
        self._session.read.clear()
        sessions = [f"{SESSIONS}/{one}@{2 if one in in_second_session else 1}" for one in members]
        self._reads.read([f"{IDS}/{one}" for one in members], cversion, sessions, [])
        return "".join(sorted(path[-1] for path in self._session.read if path.startswith(IDS)))


@pytest.fixture
def leader():
    made = Leader()
    assert made.look("abc", 3) == "abc"
    return made


def test_members_that_come_and_go_do_not_concern_the_others(leader):
    assert leader.look("abc", 3) == ""
    assert leader.look("abcd", 4) == "d"
    assert leader.look("acd", 5) == ""
    assert leader.look("ade", 7) == "e"


@pytest.mark.parametrize(
    ("members", "cversion", "read"),
    [("abc", 5, "abc"), ("abcd", 6, "abcd"), ("ac", 6, "ac"), ("abd", 7, "abd"), ("abc", 0, "abc")],
    ids=["replaced", "and one comes", "and one leaves", "and one for another", "group created again"],
)
def test_a_replaced_registration_is_read_whatever_came_and_went_meanwhile(leader, members, cversion, read):
    assert leader.look(members, cversion) == read
    assert leader.look(members, cversion) == ""


def test_one_that_registers_in_another_session_does_not_concern_the_others(leader):
    assert leader.look("abc", 5, "b") == "b"
    assert leader.look("abc", 7, "b") == "abc"  # one of them subscribes to other topics
    assert leader.look("abc", 11, "bc") == "abc"  # one registers in another session, and one subscribes
