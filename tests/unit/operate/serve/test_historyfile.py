"""The history of groups in a file: what a restart finds again, and how the file is kept small and whole."""

import sqlite3

import pytest

from tests.fixtures.groups import followed, group_znodes
from tests.unit.operate.serve.conftest import Sampled, lag_sample
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.lagstatus import LagStatus, evaluate_group
from zkconsumer.operate.groups.rules.lagstretches import follow
from zkconsumer.operate.serve import historyfile
from zkconsumer.operate.serve.groupsnapshots import LagRecorder
from zkconsumer.operate.serve.historyfile import HistoryFile

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


class Process:
    """A ``serve`` that samples every 10 s; its clock begins at 50."""

    def __init__(self, path, began_ms=START_MS, kept_ms=HOUR_MS):
        self.file = HistoryFile(path, kept_ms)
        self._began_ms = began_ms
        self._sampled = Sampled()
        self._recorder = LagRecorder(4, 360, 10.0)
        self._series = {}
        self._taken = 0
        self.earlier = self.file.earlier(50.0, began_ms, 4)

    def sample(self, *numbers, group="g", owner="g_c-0", znodes=None):
        """A sample of a group with (committed, log end) of each partition of topic t."""
        at = 50.0 + 10 * self._taken
        znodes = znodes or group_znodes(topics={"t": len(numbers)})
        for number, (committed, end) in enumerate(numbers):
            sample = lag_sample(at, committed=committed, log_end=end, owner=owner, owner_live=owner is not None)
            self._series.setdefault((group, number), []).append(sample)
        samples = {
            TopicPartition("t", number): followed(self._series[group, number])[-4:] for number in range(len(numbers))
        }
        self._sampled.sample(group, znodes, samples)
        at_ms = self._began_ms + 10_000 * self._taken
        snapshot = self._recorder.record(self._sampled, at=at, at_ms=at_ms, seconds=0.1)
        self._taken += 1
        self.file.append(snapshot)
        return snapshot

    def end(self):
        self.file.close()


def test_a_restart_finds_rows_and_rebalances(path):
    first = Process(path)
    first.sample((5, 9), (None, 7))
    owned = group_znodes(topics={"t": 2}, owners={"t-0": "g_c-0"})
    first.sample((7, 9), (2, 7), znodes=owned)
    first.end()
    second = Process(path, START_MS + 60_000)
    group = second.earlier["g"]
    assert [(row.at_ms - START_MS, [row.lag(n) for n in (0, 1)]) for row in group.recorded.rows] == [
        (0, [4, None]),
        (10_000, [2, 5]),
    ]
    assert group.recorded.rows[0].partitions is group.recorded.rows[1].partitions
    assert [(one.at_ms - START_MS, one.partitions) for one in group.recorded.rebalances] == [(10_000, 1)]
    second.end()


def test_samples_have_the_times_of_the_new_clock(path):
    first = Process(path)
    first.sample((5, 9))
    first.end()
    second = Process(path, START_MS + 60_000)
    assert [(s.at, s.committed, s.log_end) for s in second.earlier["g"].samples[P0]] == [(pytest.approx(-10.0), 5, 9)]
    second.end()


@pytest.mark.parametrize(("owner", "status"), [("g_c-0", LagStatus.STALL), (None, LagStatus.STOP)])
def test_what_lasted_before_a_restart_is_judged_after_it(path, owner, status):
    first = Process(path)
    for _ in range(20):
        first.sample((5, 9), owner=owner)
    first.end()
    second = Process(path, START_MS + 300_000)
    series = second.earlier["g"].samples[P0]
    newest = lag_sample(50.0, committed=5, log_end=9, owner=owner, owner_live=owner is not None)
    samples = [*series, follow(series[-1].stretches, newest)]
    assert evaluate_group({P0: samples}, 4, members=1).status is status
    assert evaluate_group({P0: samples}, 4, members=1).reason.endswith(" 300 s")
    second.end()


def test_that_nothing_was_committed_before_a_restart_is_judged_after_it(path):
    first = Process(path)
    for number in range(20):
        first.sample((None, 9 + number))
    first.end()
    second = Process(path, START_MS + 300_000)
    series = second.earlier["g"].samples[P0]
    newest = lag_sample(50.0, committed=None, log_end=40)
    evaluated = evaluate_group({P0: [*series, follow(series[-1].stretches, newest)]}, 4, members=1)
    assert (evaluated.status, "for 300 s, in which 31 records" in evaluated.reason) == (LagStatus.STALL, True)
    second.end()


def test_a_partition_is_judged_by_its_own_samples_after_a_restart(path):
    """One that is new, or whose lag was unknown, has not been seen for as long as its group."""
    first = Process(path)
    for _ in range(20):
        first.sample((5, 9), (5, None))
    first.sample((5, 9), (5, 9), (5, 9))
    first.end()
    second = Process(path, START_MS + 210_000)
    partitions = {}
    for partition, series in second.earlier["g"].samples.items():
        newest = lag_sample(50.0, committed=6, log_end=10)
        partitions[partition] = [*series, follow(series[-1].stretches, newest)]
    statuses = [one.status for one in evaluate_group(partitions, 4, members=1).partitions.values()]
    assert statuses == [LagStatus.OK, LagStatus.UNKNOWN, LagStatus.UNKNOWN]
    second.end()


@pytest.mark.parametrize("silent", [1, 6])
@pytest.mark.parametrize(("owner", "status"), [("g_c-0", LagStatus.STALL), (None, LagStatus.STOP)])
def test_what_lasted_before_a_restart_is_judged_though_a_broker_was_silent(path, owner, status, silent):
    """Its last samples, or all that are kept, have no log end, as they would have without a restart."""
    first = Process(path)
    for _ in range(20):
        first.sample((5, 9), owner=owner)
    for _ in range(silent):
        first.sample((5, None), owner=owner)
    first.end()
    second = Process(path, START_MS + 300_000)
    series = second.earlier["g"].samples[P0]
    newest = lag_sample(50.0, committed=5, log_end=9, owner=owner, owner_live=owner is not None)
    evaluated = evaluate_group({P0: [*series, follow(series[-1].stretches, newest)]}, 4, members=1)
    assert (evaluated.status, evaluated.reason.endswith(" 300 s")) == (status, True)
    second.end()


def test_what_is_older_than_the_history_is_deleted(path):
    first = Process(path, kept_ms=25_000)
    for number in range(6):
        first.sample((number, 9))
    first.end()
    second = Process(path, START_MS + 60_000, kept_ms=25_000)
    assert [row.at_ms - START_MS for row in second.earlier["g"].recorded.rows] == [40_000, 50_000]
    second.end()
    second = Process(path, START_MS + 120_000, kept_ms=25_000)
    assert second.earlier == {}
    second.sample((6, 9))
    second.end()
    third = Process(path, START_MS + 130_000)
    assert [row.lag(0) for row in third.earlier["g"].recorded.rows] == [3]
    third.end()


def test_partitions_that_were_added_begin_with_their_first_sample(path):
    first = Process(path)
    first.sample((5, 9))
    first.sample((5, 9), (1, 2))
    first.end()
    second = Process(path, START_MS + 20_000)
    group = second.earlier["g"]
    assert [row.partitions for row in group.recorded.rows] == [(P0,), (P0, P1)]
    assert {p: len(series) for p, series in group.samples.items()} == {P0: 2, P1: 1}
    second.end()


def test_a_name_that_is_no_text_comes_back(path):
    first = Process(path)
    first.sample((5, 9), group="g\udc80")
    first.end()
    second = Process(path, START_MS + 20_000)
    assert list(second.earlier) == ["g\udc80"]
    second.end()


def test_a_second_process_is_refused(path):
    first = Process(path)
    first.sample((5, 9))
    with pytest.raises(ZkConsumerError, match="in use by another process, such as another `serve`"):
        Process(path)
    first.end()


@pytest.mark.parametrize("content", [b"no database at all, but some text" * 40, b""])
def test_another_file_is_refused_and_an_empty_one_is_used(path, content):
    path.write_bytes(content)
    if content:
        with pytest.raises(ZkConsumerError, match=r"history .* cannot be used: file is not a database"):
            HistoryFile(path, HOUR_MS)
        assert path.read_bytes() == content
    else:
        HistoryFile(path, HOUR_MS).close()


def test_a_file_that_cannot_be_created_is_an_error(tmp_path):
    with pytest.raises(ZkConsumerError, match="unable to open database file; check that its directory exists"):
        HistoryFile(tmp_path / "missing" / "history", HOUR_MS)


def test_another_database_is_refused(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(ZkConsumerError, match="it is not the history of this release"):
        HistoryFile(path, HOUR_MS)


def test_a_snapshot_that_cannot_be_written_leaves_the_former_ones(path):
    first = Process(path)
    first.sample((5, 9))
    first.file._database.execute("PRAGMA max_page_count = 1")  # a full disk
    with pytest.raises(ZkConsumerError, match="cannot be written: database or disk is full"):
        first.sample(*[(5, 9)] * 20_000, group="large")
    first.file._database.execute("PRAGMA max_page_count = 100000")
    first.sample((6, 9))
    first.end()
    second = Process(path, START_MS + 60_000)
    assert [row.lag(0) for row in second.earlier["g"].recorded.rows] == [4, 3]
    second.end()


def test_a_recorder_continues_what_a_former_process_recorded(path):
    first = Process(path)
    for number in range(3):
        first.sample((number, 9))
    first.end()
    second = Process(path, START_MS + 60_000)
    earlier = {name: group.recorded for name, group in second.earlier.items()}
    second._recorder = LagRecorder(4, 3, 10.0, earlier)
    rows = second.sample((8, 9)).groups["g"].history
    assert [(row.at_ms - START_MS, row.lag(0)) for row in rows] == [(10_000, 8), (20_000, 7), (60_000, 1)]
    second.end()


def test_a_group_of_which_nothing_is_left_leaves_the_file(path, monkeypatch):
    monkeypatch.setattr(historyfile, "_APPENDED_BETWEEN", 4)
    process = Process(path, kept_ms=15_000)
    process.sample((5, 9), group="gone")
    del process._sampled.observed["gone"]
    for count in (1, 2, 1, 2, 1):
        process.sample(*[(5, 9)] * count)
    process.end()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT name FROM groups").fetchall() == [(b"g",)]
        assert database.execute("SELECT count(*) FROM partitions").fetchone() == (2,), "equal sets share a row"
        assert database.execute("SELECT count(*) FROM samples").fetchone() == (2,)
    database.close()


def test_what_was_recorded_before_the_clock_was_set_back_does_not_count(path):
    """1. The clock is ten minutes ahead; 2. it is set back, and the process restarts: no progress begins in the future.

    Otherwise nothing would have lasted for long until the clock has caught up.
    """
    first = Process(path, START_MS + 600_000)
    for _ in range(20):
        first.sample((5, 9))
    first.end()
    second = Process(path, START_MS)
    assert second.earlier == {}
    for _ in range(20):
        second.sample((5, 9))
    second.end()
    third = Process(path, START_MS + 300_000)
    series = third.earlier["g"].samples[P0]
    newest = lag_sample(50.0, committed=5, log_end=9, owner="g_c-0", owner_live=True)
    evaluated = evaluate_group({P0: [*series, follow(series[-1].stretches, newest)]}, 4, members=1)
    assert (evaluated.status, evaluated.reason.endswith(" 300 s")) == (LagStatus.STALL, True)
    third.end()


def test_a_clock_that_is_set_back_while_samples_are_taken_leaves_one_order(path):
    process = Process(path, START_MS + 600_000)
    owned = group_znodes(topics={"t": 1}, owners={"t-0": "g_c-0"})
    for number in range(3):
        process.sample((number, 9), znodes=owned if number == 2 else None)
    process._began_ms = START_MS
    process.sample((7, 9))
    process.end()
    again = Process(path, START_MS + 700_000)
    recorded = again.earlier["g"].recorded
    assert [(row.at_ms - START_MS, row.lag(0)) for row in recorded.rows] == [(30_000, 2)]
    assert [one.at_ms - START_MS for one in recorded.rebalances] == [30_000]
    again.end()


def test_a_full_disk_does_not_hide_what_was_recorded(small_disk, caplog):
    path = small_disk.path / "history"
    first = Process(path, kept_ms=25_000)
    first.sample((5, 9), group="gone")
    del first._sampled.observed["gone"]
    for number in range(6):
        first.sample((number, 9))
    first.end()
    small_disk.fill()
    second = Process(path, START_MS + 70_000, kept_ms=25_000)
    assert list(second.earlier) == ["g"]
    assert [row.at_ms - START_MS for row in second.earlier["g"].recorded.rows] == [50_000, 60_000]
    assert "history" in caplog.text
    assert "cannot be written" in caplog.text
    small_disk.free()
    second.sample((6, 9))
    second.end()
    third = Process(path, START_MS + 80_000)
    assert [row.lag(0) for row in third.earlier["g"].recorded.rows] == [5, 4, 3]
    third.end()
