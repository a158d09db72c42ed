"""Which trials are missing."""

from collections import Counter
from itertools import pairwise

from tests.chaos.campaign import PROTOCOLS, missing, required
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
    assert [trials["DONE", protocol] for protocol in PROTOCOLS] == [10] * 4
    assert {row for row, _ in trials} == set(EVERY_ROW)


def test_what_is_done_is_not_repeated_and_each_kind_has_five_before_one_has_more():
    every = list(missing(set()))
    assert len(every) == sum(wanted.trials for wanted in required())
    first = [seed for _, seed in every[: sum(min(5, wanted.trials) for wanted in required())]]
    assert set(first) == {1, 2, 3, 4, 5}
    assert every[len(first)][1] == 6
    done = {(wanted.row, wanted.members, seed) for wanted, seed in every[5:]}
    assert list(missing(done)) == every[:5]


def test_trials_with_the_same_servers_follow_each_other():
    first = [wanted.servers for wanted, seed in missing(set()) if seed <= 5]
    assert len(set(first)) == 1 + sum(before != after for before, after in pairwise(first))
