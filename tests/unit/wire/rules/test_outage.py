from zkconsumer.wire.rules.outage import Outage


def test_equal_failures_are_logged_at_growing_intervals():
    outage = Outage()
    assert [second for second in range(100) if outage.is_news("away", second)] == [0, 5, 10, 20, 40, 80]
    outage.end(1000)
    assert [second for second in range(100) if outage.is_news("away", 1000 + second)] == [0, 5, 10, 20, 40, 80]


def test_a_new_reason_is_logged_once():
    outage = Outage()
    assert [outage.is_news(reason, 0.1) for reason in ("a", "b", "a", "b", "c")] == [True, True, False, False, True]


def test_an_outage_ends_and_the_next_one_is_logged():
    outage = Outage()
    assert outage.end(0.0) is None
    assert outage.is_news("away", 1.0)
    assert outage.end(4.0) == 3.0
    assert outage.end(5.0) is None
    assert outage.is_news("away", 6.0)
