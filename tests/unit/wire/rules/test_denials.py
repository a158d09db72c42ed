from zkconsumer.wire.rules.denials import PATIENCE, Denials, pause_s

ERROR = RuntimeError("denied")


def test_pauses_double_up_to_five_seconds():
    assert [pause_s(refusals, 0.2) for refusals in (1, 2, 3, 5, 6, 1000)] == [0.2, 0.4, 0.8, 3.2, 5.0, 5.0]
    assert pause_s(3, 30.0) == 30.0, "a longer backoff stays"


def test_a_subject_is_raised_once_for_all_its_parts():
    denials = Denials()
    assert [denials.deny("t", part, ERROR) for part in (0, 1, 0)] == [True, False, False]
    assert [denials.take(), denials.take()] == [ERROR, None]
    assert not denials.deny("t", 2, ERROR)
    assert denials.take() is None


def test_a_subject_is_raised_again_only_after_all_its_parts_were_served():
    denials = Denials()
    for part in (0, 1):
        denials.deny("t", part, ERROR)
    denials.take()
    assert not denials.allow("t", 0)
    assert not denials.deny("t", 0, ERROR)
    assert [denials.allow("t", part) for part in (0, 1)] == [False, True]
    assert denials.deny("t", 0, ERROR)


def test_a_subject_that_recovers_before_it_is_raised_is_not_raised():
    denials = Denials()
    denials.deny("t", 0, ERROR)
    assert denials.allow("t", 0)
    assert denials.take() is None


def test_subjects_are_raised_one_by_one():
    denials = Denials()
    others = {topic: RuntimeError(topic) for topic in "ab"}
    for topic, error in others.items():
        denials.deny(topic, 0, error)
    assert [denials.take() for _ in range(3)] == [*others.values(), None]


def test_a_rebalance_forgets_what_was_not_raised_and_nothing_else():
    denials = Denials()
    denials.deny("raised", 0, ERROR)
    denials.take()
    denials.deny("waiting", 0, ERROR)
    denials.forget_parts()
    assert denials.take() is None
    assert not denials.deny("raised", 1, ERROR)
    assert denials.deny("waiting", 0, ERROR)


def test_a_stream_forgets_a_part_that_it_loses():
    denials = Denials()
    denials.deny("t", 0, ERROR)
    denials.deny("t", 1, ERROR)
    denials.forget_part("other", 0)
    denials.forget_part("t", 0)
    assert denials.take() is ERROR, "another part is refused still"
    denials.forget_part("t", 1)
    assert not denials.deny("t", 0, ERROR), "it was raised"
    assert denials.allow("t", 0), "nothing of the forgotten parts is left"


def test_an_error_that_waits_for_a_lost_part_is_dropped():
    denials = Denials()
    denials.deny("t", 0, ERROR)
    denials.forget_part("t", 0)
    assert denials.take() is None
    assert denials.deny("t", 0, ERROR)


def test_after_a_rebalance_former_refusals_do_not_count():
    denials = Denials()
    denials.deny("t", 0, ERROR)
    denials.take()
    denials.forget_parts()
    assert denials.allow("t", 1)


def test_a_stream_raises_at_the_fourth_refusal():
    assert PATIENCE == 4


def test_a_subject_that_was_never_refused_does_not_recover():
    assert not Denials().allow("t", 0)
