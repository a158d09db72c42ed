"""Tiny contests on real servers: each kind of contestant reads what the benchmark wrote as log segments."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import zkconsumer
from benchmarks.asyncpeers import ASYNC_BATCHES, ASYNC_RECORDS, CONFLUENT_ASYNC
from benchmarks.brokergroup import BrokerGroupSizes, run_broker_group_contests
from benchmarks.contest import OURS
from benchmarks.coordinator import CoordinatorField, one_leaves
from benchmarks.fetch import BATCHES, DRAIN, JVM_FRESH, RECORDS, TUNED, FetchSizes, run_fetch_contests
from benchmarks.handover import HandoverSizes, run_handover_contest
from benchmarks.latency import LatencySizes, run_latency_contests
from benchmarks.members import JVM
from benchmarks.peers import AIOKAFKA, CONFLUENT
from benchmarks.start import StartSizes, run_start_contests
from tests.fixtures.members import Cluster
from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

CONTESTANTS = (BATCHES, RECORDS, JVM_FRESH, TUNED)


def test_each_contestant_reads_all_that_was_written(tmp_path):
    sizes = FetchSizes(
        rounds=1, seconds=100.0, names=["batches-75"], contestants=CONTESTANTS, warm_seconds=0.2, scale=0.005
    )
    reading, loop = run_fetch_contests(sizes, tmp_path, Progress(quiet=True))
    assert list(reading.summaries()) == list(CONTESTANTS)
    assert list(loop.summaries()) == [JVM_FRESH]
    assert max(reading.windows.values()) < sizes.seconds  # they came to the end of the topic


def test_consumers_in_an_event_loop_take_part(tmp_path):
    sizes = FetchSizes(rounds=1, seconds=100.0, names=["asyncio"], warm_seconds=0.2, scale=0.005)
    (reading,) = run_fetch_contests(sizes, tmp_path, Progress(quiet=True))
    assert {BATCHES, ASYNC_BATCHES, ASYNC_RECORDS, CONFLUENT_ASYNC} <= {*reading.summaries()}
    assert max(reading.windows.values()) < sizes.seconds


def test_readers_of_another_environment_take_part(tmp_path):
    python = environment_with_a_copy(tmp_path / "older" / "venv")
    sizes = FetchSizes(
        rounds=1,
        seconds=0.2,
        names=["batches-75"],
        contestants=(BATCHES, RECORDS),
        warm_seconds=0.2,
        scale=0.005,
        beside=[str(python)],
    )
    (reading,) = run_fetch_contests(sizes, tmp_path, Progress(quiet=True))
    assert list(reading.summaries()) == [BATCHES, RECORDS, f"{BATCHES} of older", f"{RECORDS} of older"]


def environment_with_a_copy(directory: Path) -> Path:
    """The interpreter of a new environment, which has a copy of the package, and no benchmarks."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    place = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(zkconsumer.__file__).parent, place / "zkconsumer", ignore=ignored)
    # A line of a .pth file adds a directory without the .pth files in it, such as those of a development install.
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return directory / "bin" / "python"


def test_contestants_without_tls_are_excluded_from_its_contest(tmp_path):
    sizes = FetchSizes(
        rounds=1, seconds=0.2, names=["tls"], contestants=(BATCHES, JVM_FRESH, DRAIN), warm_seconds=0.2, scale=0.005
    )
    (reading,) = run_fetch_contests(sizes, tmp_path, Progress(quiet=True))
    assert list(reading.summaries()) == [BATCHES, DRAIN]


def test_a_member_that_leaves_stops_no_other(sandbox, zookeeper, unique_name):
    """In processes of the benchmark, with followers that share sessions."""
    cluster = Cluster(sandbox, zookeeper, unique_name)
    session = ZkSession(cluster.connect, session_timeout_ms=30_000, connection_timeout_ms=20_000)
    session.open()
    try:
        field = CoordinatorField(sandbox.zookeeper.ask, session, sessions=2)
        seconds, requests, stopped = one_leaves(field, 12, 1, Progress(quiet=True))
    finally:
        session.close()
    assert stopped.measured[OURS] == [0]
    assert requests.measured[OURS][0] > 0
    assert seconds.measured[OURS][0] > 0


def test_each_contestant_hands_a_group_over_to_kafka(tmp_path):
    """A cut-over after which a partition does not continue at the next record ends the benchmark with an error."""
    (gap,) = run_handover_contest(HandoverSizes(rounds=1, partitions=2, warm=0), tmp_path, Progress(quiet=True))
    assert len(gap.measured) == 2
    assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in gap.measured.values())
    assert OURS in gap.measured


@pytest.mark.parametrize("kafka_version", [DEFAULT_KAFKA_VERSION, "0.10.2.2"])
def test_groups_of_brokers_settle_at_every_event(tmp_path, kafka_version):
    """A group that does not settle, or a member that fails, is noted and has no figures."""
    sizes = BrokerGroupSizes(
        rounds=1,
        members=(2,),
        partitions=6,
        contestants=(OURS, CONFLUENT),
        heartbeat_ms=500,
        processes=2,
        warm=0,
        steady_s=1.0,
        kafka_version=kafka_version,
    )
    contests = run_broker_group_contests(sizes, tmp_path, Progress(quiet=True))
    assert [note for contest in contests for note in contest.notes] == []
    figures = {contest.title.partition(": ")[2]: contest.measured for contest in contests}
    for title in (
        "all join: until all own",
        "all join: until all are read",
        "one more joins: until all own",
        "one more joins: partitions that stay, longest without a record",
        "one leaves: until all own",
        "no rebalance: longest without a record",
    ):
        assert list(figures[title]) == [OURS, CONFLUENT]
        assert all(figure > 0 for (figure,) in figures[title].values())


def test_each_contestant_reads_a_record_and_waits(tmp_path):
    sizes = StartSizes(rounds=1, contestants=(RECORDS, BATCHES, CONFLUENT))
    began, began_new, waiting = run_start_contests(sizes, tmp_path, Progress(quiet=True))
    for contest in (began, began_new, waiting):
        assert list(contest.summaries()) == [RECORDS, BATCHES, CONFLUENT]
    assert waiting.measured[RECORDS] < waiting.measured[BATCHES]  # it does not load pyarrow


def test_each_contestant_notes_what_is_produced(tmp_path):
    names = (RECORDS, BATCHES, JVM, CONFLUENT, AIOKAFKA)
    sizes = LatencySizes(rounds=1, seconds=0.5, rates=(0, 100), contestants=names, warm_s=0.2, warm_rounds=0)
    contests = {contest.title: contest for contest in run_latency_contests(sizes, tmp_path, Progress(quiet=True))}
    p50, p99, *cpu = (
        contests[title]
        for title in (
            "100 records/s: latency, p50",
            "100 records/s: latency, p99",
            "100 records/s: CPU",
            "Idle: CPU",
        )
    )
    assert list(p50.summaries()) == list(names)
    for name in names:
        assert 0 < p50.measured[name][0] <= p99.measured[name][0] < 10_000  # no other clock, and no other unit
        assert all(contest.measured[name][0] > 0 for contest in cpu)
