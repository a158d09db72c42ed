"""Which trials are missing."""

from collections import Counter

from tests.chaos.campaign import missing, required
from tests.chaos.everyrow import EVERY_ROW


def test_a_hundred_trials_for_zookeeper_and_thirty_for_each_other_protocol():
    trials = Counter()
    for wanted in required():
        trials[wanted.row, wanted.protocol] += wanted.trials
    for row in ("R1", "R2", "R3", "R4", "R7-clean", "R7-hard", "R8"):
        assert trials[row, "zookeeper"] == 100
        assert [trials[row, protocol] for protocol in ("coordinator", "kafka", "consumer")] == [30] * 3
    assert trials["MIX", "zookeeper"] == 20
    assert trials["R6", "zookeeper"] == 40
    assert trials["R5-ensemble", "zookeeper"] == 30
    assert {row for row, _ in trials} == set(EVERY_ROW)


def test_what_is_done_is_not_repeated_and_each_kind_comes_once_before_the_second():
    every = list(missing(set()))
    assert len(every) == sum(wanted.trials for wanted in required())
    kinds = len(required())
    assert [seed for _, seed in every[:kinds]] == [1] * kinds
    assert {seed for _, seed in every[kinds : 2 * kinds]} == {2}
    done = {(wanted.row, wanted.members, seed) for wanted, seed in every[5:]}
    assert list(missing(done)) == every[:5]
