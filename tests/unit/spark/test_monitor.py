import errno
import json
import socket
import threading
from types import SimpleNamespace

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark import acknowledge
from zkconsumer.spark.acknowledge import AcknowledgementServer
from zkconsumer.spark.monitor import QueryMonitor, lag_after, planned_offset
from zkconsumer.spark.rules.offsetsjson import Report, encode_offset, encode_report
from zkconsumer.spark.rules.sourceoffset import SourceOffset

A, B = (TopicPartition("t", n) for n in range(2))
AVAILABLE = {A: Span(60, 100), B: Span(5, 5)}
REPORT = encode_report(Report("g", AVAILABLE, None, AVAILABLE.keys(), 1))


@pytest.mark.parametrize(
    ("planned", "lag"),
    [
        ({A: Span(60, 90)}, {A: 10, B: 0}),
        ({A: Span(0, 60), B: Span(0, 5)}, {A: 40, B: 0}),
        ({TopicPartition("gone", 0): Span(0, 9)}, {A: 40, B: 0}),
    ],
)
def test_lag_counts_the_offsets_after_the_batch(planned, lag):
    end = json.dumps(encode_offset(SourceOffset("g", 1, {}, planned)))
    assert lag_after(AVAILABLE, planned_offset(end)) == lag


def progress(number, acknowledge, report=REPORT):
    """The event of Spark after a batch of this plan."""
    end = json.dumps(encode_offset(SourceOffset("g", number, {}, {A: Span(60, 90)})))
    source = SimpleNamespace(
        latestOffset=json.dumps(report | {"acknowledge": acknowledge}), endOffset=end, numInputRows=30
    )
    return SimpleNamespace(progress=SimpleNamespace(id="q", name=None, batchId=1, sources=[source]))


def test_batches_after_one_whose_commit_took_long_are_acknowledged(monkeypatch):
    received, slow = [], threading.Event()

    def acknowledged(number, parallelism):
        received.append((number, parallelism))
        return number == 1

    monkeypatch.setattr(acknowledge, "_TIMEOUT_S", 0.05)
    server = AcknowledgementServer(acknowledged, lambda: slow.wait(30), lambda: REPORT)
    monitor = QueryMonitor(lambda: 8)
    try:
        monitor.onQueryProgress(progress(1, server.path))
        slow.set()
        monitor.onQueryProgress(progress(2, server.path))
    finally:
        server.close()
    assert received == [(1, 8), (2, 8)]


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "too many open files"), BrokenPipeError(), ConnectionResetError()]
)
def test_batches_after_an_acknowledgement_that_failed_are_acknowledged(monkeypatch, error):
    faults, received = [error], []

    def acknowledged(_path, number, _parallelism):
        if faults:
            raise faults.pop()
        received.append(number)

    monkeypatch.setattr("zkconsumer.spark.monitor.acknowledge", acknowledged)
    monitor = QueryMonitor()
    for number in (1, 2):
        monitor.onQueryProgress(progress(number, "path"))
    assert received == [2]


def test_what_a_query_owns_is_asked_of_its_source_when_it_is_shown():
    reports = [None, encode_report(Report("g", {B: Span(4, 4)}, None, {B}, 2)), REPORT]
    server, monitor = AcknowledgementServer(lambda *_: False, lambda: None, lambda: reports[0]), QueryMonitor()
    try:
        monitor.onQueryProgress(progress(1, server.path))
        for lag, owned, rebalances in (({A: 10, B: 0}, {A, B}, 1), ({B: 0}, {B}, 2), ({A: 10, B: 0}, {A, B}, 1)):
            (state,) = monitor.snapshot()
            assert (state.lag, state.owned, state.rebalances) == (lag, owned, rebalances)
            reports.pop(0)
    finally:
        server.close()
    (state,) = monitor.snapshot()
    assert state.owned == {A, B}, "a source that does not answer any more"


def test_the_state_of_a_query_has_all_its_readers_of_one_group():
    """1. Two readers with a memberName each; 2. a partition moves from one to the other."""
    reports = [
        encode_report(Report("g", {A: Span(60, 100)}, None, {A}, 1)),
        encode_report(Report("g", {B: Span(2, 5)}, None, {B}, 2)),
    ]
    servers = [AcknowledgementServer(lambda *_: False, lambda: None, lambda n=n: reports[n]) for n in range(2)]
    monitor = QueryMonitor()
    try:
        for number in (1, 2):
            events = [progress(number, server.path, report) for server, report in zip(servers, reports, strict=True)]
            events[0].progress.sources += events[1].progress.sources
            monitor.onQueryProgress(events[0])
        (state,) = monitor.snapshot()
        assert (state.query, state.group, state.batch, state.rows) == ("q", "g", 1, 120)
        assert (state.lag, state.owned, state.rebalances) == ({A: 10, B: 3}, {A, B}, 2)
        reports[:] = [
            encode_report(Report("g", {}, None, set(), 3)),
            encode_report(Report("g", {B: Span(2, 5)}, None, {A, B}, 3)),
        ]
        (state,) = monitor.snapshot()
        assert (state.lag, state.owned, state.rebalances) == ({B: 3}, {A, B}, 3)
    finally:
        for server in servers:
            server.close()
    monitor.onQueryTerminated(SimpleNamespace(id="q"))
    assert monitor.snapshot() == []


def test_a_source_that_is_gone_costs_its_acknowledgements_only(tmp_path):
    path = str(tmp_path / "gone")
    monitor = QueryMonitor()
    monitor.onQueryProgress(progress(1, path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        monitor.onQueryProgress(progress(2, path))
        with pytest.raises(BlockingIOError):  # it was tried once
            listener.accept()
    assert [state.rows for state in monitor.snapshot()] == [60]


@pytest.mark.parametrize("end", [None, "12", '{"v":9,"topics":{}}'])
def test_without_an_end_offset_lag_counts_from_the_positions(end):
    assert lag_after(AVAILABLE, planned_offset(end)) == {A: 40, B: 0}
