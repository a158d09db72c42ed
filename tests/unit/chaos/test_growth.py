"""Growth of what a process uses."""

import os

import pytest

from tests.chaos.growth import Usage, growth_per_hour, read_usage


def samples(memory, log=lambda n: 100 * n, count=100, every=36.0):
    return [Usage(every * n, round(memory(n)), 7, 9, 0, round(log(n))) for n in range(count)]


def test_nothing_grows_where_nothing_changes():
    assert growth_per_hour(samples(lambda _: 1000)) == dict.fromkeys(
        ("memory", "threads", "descriptors", "watches", "log"), 0.0
    )


def test_memory_that_grows_evenly_and_a_log_that_grows_faster_and_faster():
    growth = growth_per_hour(samples(lambda n: 1_000_000 + 1000 * n, lambda n: n * n))
    assert growth["memory"] == pytest.approx(0.1 / 1.0625, rel=0.02)
    assert growth["log"] > 0.5
    assert growth["threads"] == 0.0


def test_the_warm_up_is_left_out():
    assert growth_per_hour(samples(lambda n: 1000 * min(n, 20)))["memory"] == 0.0


def test_too_few_samples_show_nothing():
    assert growth_per_hour([])["memory"] == 0.0
    assert growth_per_hour(samples(lambda n: n, count=2))["memory"] == 0.0


def test_the_usage_of_a_process(tmp_path):
    log = tmp_path / "log"
    usage = read_usage(os.getpid(), log, 3, 1.5)
    assert usage.memory > 2**20
    assert usage.threads >= 1
    assert usage.descriptors >= 3
    assert (usage.at, usage.watches, usage.log) == (1.5, 3, 0)
    log.write_text("12345", encoding="utf-8")
    assert read_usage(os.getpid(), log, 0, 0.0).log == 5
    assert read_usage(2**22 + 1, log, 0, 0.0) is None


def test_what_a_fault_takes_away_for_a_moment_is_no_growth():
    watches = [Usage(36.0 * n, 1, 7, 9, 6 if n in (30, 31, 40) else 18, 100 if n < 70 else 5000) for n in range(100)]
    assert growth_per_hour(watches) == dict.fromkeys(("memory", "threads", "descriptors", "watches", "log"), 0.0)
