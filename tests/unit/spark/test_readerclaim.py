import threading

import pytest

from tests.fixtures.fork import idle_forked_child
from zkconsumer.errors import UsageError
from zkconsumer.spark.readerclaim import ReaderClaim, driver_directory
from zkconsumer.spark.rules.options import parse_options


def options(**more):
    given = {"zookeeper.connect": "h1:1,h2:2/c", "group.id": "g", "subscribe": "t", **more}
    return parse_options({name: value for name, value in given.items() if value is not None})


@pytest.fixture
def claim(tmp_path):
    """Claim the place of a reader; ``claim(patience_s=5, memberName="a")``."""
    made = []

    def make(patience_s=0, **more):
        made.append(ReaderClaim(options(**more), tmp_path, patience_s))
        return made[-1]

    yield make
    for each in made:
        each.release()


def test_a_second_reader_is_refused_with_both_ways_out(claim):
    claim()
    with pytest.raises(UsageError, match="another reader of group g runs") as caught:
        claim(subscribe="u")
    assert "each with a group.id of its own" in str(caught.value)
    assert "set another memberName for each" in str(caught.value)


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a", None), (None, "a")])
def test_both_readers_need_names_of_their_own(claim, first, second):
    claim(memberName=first)
    with pytest.raises(UsageError, match="another reader of group g"):
        claim(memberName=second)


def test_readers_with_names_of_their_own_share_a_group(claim):
    for name in ("a", "b", "c"):
        claim(memberName=name)


@pytest.mark.parametrize("other", [{"group.id": "h"}, {"zookeeper.connect": "h1:1,h2:2/d"}])
def test_readers_of_other_groups_do_not_count(claim, other):
    claim()
    claim(**other)


@pytest.mark.parametrize("connect", ["h2:2, h1:1/c", "h1:1,h2:2/c/", "H1:1,h2:2/c", "h2:2/c", "h3:3,h2:2/c"])
@pytest.mark.parametrize("names", [(None, None), ("a", "a"), ("a", None)])
def test_other_names_of_the_same_servers_are_the_same_group(claim, connect, names):
    claim(memberName=names[0])
    with pytest.raises(UsageError, match="another reader"):
        claim(memberName=names[1], **{"zookeeper.connect": connect})


def test_the_port_of_zookeeper_may_be_left_out(claim):
    claim(**{"zookeeper.connect": "h1"})
    with pytest.raises(UsageError, match="another reader"):
        claim(**{"zookeeper.connect": "h1:2181"})


def test_a_group_of_brokers_is_known_by_its_brokers(claim):
    brokers = {"zookeeper.connect": None, "group.protocol": "kafka", "bootstrap.servers": "h1:1"}
    claim()
    claim(**brokers)
    with pytest.raises(UsageError, match="another reader"):
        claim(**brokers)


def test_a_claim_ends_although_a_forked_child_lives(claim):
    first = claim()
    with idle_forked_child():
        first.release()
        claim()


def test_a_refused_reader_holds_nothing(claim):
    first = claim()
    with pytest.raises(UsageError, match="another reader"):
        claim(memberName="a")
    first.release()
    claim()


def test_a_reader_waits_for_one_that_ends(claim):
    first = claim()
    waiting = threading.Thread(target=claim, args=(60,))
    waiting.start()
    first.release()
    waiting.join()
    with pytest.raises(UsageError, match="another reader"):
        claim()


def test_without_a_driver_nothing_is_claimed(tmp_path):
    for _ in range(2):
        ReaderClaim(options(), None).release()
    assert driver_directory({}) is None
    assert driver_directory({"SPARK_LOCAL_DIRS": "/mnt/disk"}) is None, "what an administrator sets"
    directory = tmp_path / "blockmgr-1"
    assert driver_directory({"SPARK_LOCAL_DIRS": f"{directory},/mnt/blockmgr-2"}) is None
    directory.mkdir()
    assert driver_directory({"SPARK_LOCAL_DIRS": f"{directory},/mnt/blockmgr-2"}) == directory


def test_a_directory_without_write_permission_refuses_no_reader(tmp_path, caplog):
    for _ in range(2):
        ReaderClaim(options(), tmp_path / "missing")
    assert "cannot see whether other readers" in caplog.text
