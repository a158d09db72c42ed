from types import SimpleNamespace

from zkconsumer.bench import group
from zkconsumer.bench.contest import OURS


def test_memory_of_members_that_settle_is_that_of_the_processes_they_settle_in(monkeypatch):
    monkeypatch.setattr(group, "_settle_once", lambda field, kind: (1.0, 20, 3.0, 40))
    settling = group._Settling(SimpleNamespace(sizes=group.GroupSizes()), "in new processes")
    for peak_mib in (50.0, 70.0, 60.0):
        settling.measure(SimpleNamespace(name=OURS, peak_memory_mib=lambda peak_mib=peak_mib: peak_mib))
    assert [contest.measured[OURS][0] for contest in settling.contests] == [1.0, 20, 3.0, 40]
    assert {contest.memory[OURS] for contest in settling.contests} == {70.0}
