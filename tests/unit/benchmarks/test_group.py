from types import SimpleNamespace

from benchmarks import group
from benchmarks.contest import OURS


def test_memory_is_that_of_the_settling_members_processes():
    field = SimpleNamespace(sizes=group.GroupSizes())
    settling = group.GroupSettling(field, "in new processes", lambda field, kind: (1.0, 20, 3.0, 40))
    for peak_mib in (50.0, 70.0, 60.0):
        settling.measure(SimpleNamespace(name=OURS, peak_memory_mib=lambda peak_mib=peak_mib: peak_mib))
    assert [contest.measured[OURS][0] for contest in settling.contests] == [1.0, 20, 3.0, 40]
    assert {contest.memory[OURS] for contest in settling.contests} == {70.0}
