"""When a member is in the middle of its work."""

from demo.midwork import MidWork
from demo.timeline import Sample


def sample(owners: str, committed: int, end: int = 100) -> Sample:
    """A sample of a topic whose partitions all have the same offsets."""
    count = len(owners)
    return Sample(0, frozenset(owners), tuple(owners), (committed,) * count, (end,) * count)


def test_in_the_middle_between_two_commits() -> None:
    judge = MidWork("a", 10)
    assert not judge(sample("ab", 20), 500), "nothing committed since it claimed its partitions"
    assert not judge(sample("ab", 20), 900), "written, but not committed"
    assert not judge(sample("ab", 25), 900), "too few"
    assert not judge(sample("ab", 30), 900), "nothing written since the last commit"
    assert judge(sample("ab", 30), 901)


def test_new_partitions_restart_the_count() -> None:
    judge = MidWork("a", 10)
    assert not judge(sample("ab", 20), 500)
    assert not judge(sample("aab", 30), 900)
    assert not judge(sample("aab", 30), 901)
    assert not judge(sample("aab", 36), 950)
    assert judge(sample("aab", 36), 951)


def test_not_without_partitions_or_remaining_records() -> None:
    judge = MidWork("a", 0)
    assert not judge(sample("bb", 20), 500)
    assert not judge(sample("bb", 20), 501)
    assert not judge(sample("ab", 100), 501)
    assert not judge(sample("ab", 100), 502), "nothing left to consume"
