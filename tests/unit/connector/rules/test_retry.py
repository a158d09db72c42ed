import pytest

from zkconsumer import Retry, UsageError


def pauses(retry):
    found, failures = [], 1
    while (pause := retry.pause_s(failures, KeyError())) is not None:
        found.append(pause)
        failures += 1
    return found


def test_pauses_grow_to_a_limit():
    assert pauses(Retry(attempts=6, backoff_s=1, factor=3, limit_s=20)) == [1, 3, 9, 20, 20]
    assert pauses(Retry(attempts=1)) == []
    assert Retry(attempts=10**7).pause_s(10**6, KeyError()) == 30


@pytest.mark.parametrize("unless", [[ValueError], ValueError, (KeyboardInterrupt,), ("ValueError",)])
def test_what_is_no_type_of_exception_is_refused(unless):
    with pytest.raises(UsageError, match="types of exceptions"):
        Retry(unless=unless)


def test_what_another_attempt_does_not_cure_is_not_tried_again():
    retry = Retry(unless=(ValueError,))
    assert retry.pause_s(1, UnicodeDecodeError("utf-8", b"", 0, 1, "no text")) is None
    assert retry.pause_s(1, OSError("no connection")) == 0.5


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"backoff_s": -1}, {"factor": 0.5}, {"limit_s": -1}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="at least"):
        Retry(**wrong)
