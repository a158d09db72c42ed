from zkconsumer.group.rules.deliverylease import lease_deadline, probe_interval, silence_report_is_due


def test_a_lease_lapses_before_the_session_and_after_several_probes():
    assert lease_deadline(100.0, 6.0) == 104.8
    assert probe_interval(6.0) == 1.0


def test_a_silence_is_reported_at_once_and_then_at_growing_intervals():
    reports = []
    for second in range(5, 100):
        if silence_report_is_due(second, reports[-1] if reports else 0):
            reports.append(second)
    assert reports == [5, 10, 20, 40, 80]
