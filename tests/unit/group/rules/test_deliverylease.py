from zkconsumer.group.rules.deliverylease import silence_report_is_due


def test_a_silence_is_reported_at_once_and_then_at_growing_intervals():
    reports = []
    for second in range(5, 100):
        if silence_report_is_due(second, reports[-1] if reports else 0):
            reports.append(second)
    assert reports == [5, 10, 20, 40, 80]
