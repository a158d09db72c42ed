from zkconsumer.group.rules.leasetimes import lease_deadline, probe_interval


def test_a_lease_lapses_before_the_session_and_after_several_probes():
    assert lease_deadline(100.0, 6.0) == 104.8
    assert probe_interval(6.0) == 1.0
