"""What each sample adds to the stretches before it; what follows for a status is in test_lagstatus.py."""

import pytest

from zkconsumer.operate.groups.rules.lagstretches import JUDGED_S, OWNERLESS_S, LagSample, Stretches, follow


def sample(at, committed, end, owner="a_h-1", *, mzxid=None):
    return LagSample(at, committed, mzxid, 0, end, owner, owner is not None)


def stretches(*samples):
    known = Stretches()
    for one in samples:
        known = follow(known, one).stretches
    return known


def test_lag_and_an_owner_begin_two_stretches_that_a_commit_ends():
    began = stretches(sample(0, 5, 9), sample(10, 5, 9))
    assert (began.unmoved.began, began.unmoved.samples, began.unfallen.began) == (0, 2, 0)
    ended = follow(began, sample(20, 7, 12)).stretches
    assert ended.unmoved.began == 20
    assert ended.unfallen.began == 0, "the lag has grown"


def test_a_short_time_without_an_owner_ends_no_stretch_and_counts_its_changes():
    known = stretches(
        sample(0, 5, 9, "a"), sample(10, 5, 9, None), sample(10 + OWNERLESS_S, 5, 9, None), sample(50, 5, 9, "b")
    )
    assert (known.unmoved.began, known.unmoved.owner_changes) == (0, 1)
    long = stretches(sample(0, 5, 9, "a"), sample(10, 5, 9, None), sample(11 + OWNERLESS_S, 5, 9, None))
    assert long.unmoved is None
    assert long.ownerless.began == 10


def test_records_without_a_commit_are_a_stretch_of_a_member_only():
    assert stretches(sample(0, None, 9), sample(10, None, 12)).uncommitted.last_lag == 12
    assert stretches(sample(0, None, 9, None)).uncommitted is None
    assert stretches(sample(0, None, 0)).uncommitted is None


@pytest.mark.parametrize(("samples", "now", "judges"), [(4, JUDGED_S, True), (3, JUDGED_S, False), (4, 64.9, False)])
def test_a_stretch_judges_with_a_window_of_samples_and_enough_time(samples, now, judges):
    known = stretches(*(sample(n, 5, 9) for n in range(samples)))
    assert known.unmoved.judges(now, 4) is judges
