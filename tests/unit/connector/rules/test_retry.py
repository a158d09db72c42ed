import pytest

from zkconsumer import Retry, UsageError


def pauses(retry):
    found, failures = [], 1
    while (pause := retry.pause_s(failures)) is not None:
        found.append(pause)
        failures += 1
    return found


def test_pauses_grow_to_a_limit():
    assert pauses(Retry(attempts=6, backoff_s=1, factor=3, limit_s=20)) == [1, 3, 9, 20, 20]
    assert pauses(Retry(attempts=1)) == []
    assert Retry(attempts=10**7).pause_s(10**6) == 30


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"backoff_s": -1}, {"factor": 0.5}, {"limit_s": -1}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="at least"):
        Retry(**wrong)
