"""``zkconsumer.read`` on a real broker: which records are read, as what, and what ends it early."""

import gc
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime

import duckdb
import polars
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from tests.fixtures.interrupts import Alarm, Interrupt
from tests.fixtures.sandbox import Topics, delete_records_before, produce_records, values
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, read
from zkconsumer.cli.main import command
from zkconsumer.cluster import brokercatalog
from zkconsumer.decode.schema import SCHEMA_WITH_HEADERS
from zkconsumer.errors import BrokerUnavailable, OffsetOutOfRange, UsageError

pytestmark = pytest.mark.integration

COUNT = 300
NOON_MS = 1_780_000_000_000


@pytest.fixture(params=["bootstrap_servers", "zookeeper_connect"])
def config(request, sandbox):
    return ConsumerConfig.without_group(**{request.param: getattr(sandbox, request.param)})


@pytest.fixture
def brokers(sandbox):
    return ConsumerConfig.without_group(bootstrap_servers=sandbox.bootstrap_servers)


@pytest.fixture
def filled(topic_factory, produce):
    """A topic of two partitions, whose record n has timestamp NOON_MS + n."""
    topic = topic_factory(partitions=2)
    records = [
        {"key": b"k", "value": value, "partition": n % 2, "timestamp": NOON_MS + n, "headers": [("h", b"x")]}
        for n, value in enumerate(values(COUNT))
    ]
    produce(topic, records, batch_size=2000)
    return topic


def numbers(reader):
    return sorted(int(value.as_py()) for value in reader.read_all()["value"])


def test_all_records_that_exist_at_the_call(config, filled, produce):
    reader = read(filled, config)
    produce(filled, [b"later"])
    table = reader.read_all()
    assert table.schema == SCHEMA_WITH_HEADERS
    assert sorted(int(value.as_py()) for value in table["value"]) == list(range(COUNT))
    for partition in (0, 1):
        rows = table.filter(pc.equal(table["partition"], partition)).to_pylist()
        assert [(row["offset"], int(row["value"])) for row in rows] == [
            (n, 2 * n + partition) for n in range(COUNT // 2)
        ]
        assert {(row["key"], row["headers"][0]["value"]) for row in rows} == {(b"k", b"x")}


def test_a_range_of_offsets_and_of_times(brokers, filled):
    assert numbers(read(filled, brokers, start={1: 10}, end={1: 20})) == [2 * n + 1 for n in range(10, 20)]
    assert numbers(read(filled, brokers, start={0: COUNT // 2})) == []
    first, last = (datetime.fromtimestamp((NOON_MS + n) / 1000, UTC) for n in (51, 60))
    assert numbers(read(filled, brokers, start=first, end=last)) == list(range(51, 60))
    assert numbers(read(filled, brokers, start="latest")) == []


def test_columns_in_any_order(brokers, filled):
    reader = read(filled, brokers, columns=["partition", "value"])
    assert reader.schema.names == ["partition", "value"]
    assert reader.read_all().num_rows == COUNT
    for wrong in ([], ["value", "value"], ["values"]):
        with pytest.raises(UsageError, match="columns must be some of key, value, topic"):
            read(filled, brokers, columns=wrong)


def test_what_does_not_exist_is_named_at_the_call(config, filled, monkeypatch):
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.5)
    with pytest.raises(UsageError, match="topic nowhere does not exist in the cluster of "):
        read("nowhere", config)
    with pytest.raises(UsageError, match="has 2 partitions, and not number 7"):
        read(filled, config, start={7: 0})
    with pytest.raises(OffsetOutOfRange, match=f"ends lie beyond .* {COUNT}, the log ends at {COUNT // 2}"):
        read(filled, config, end={0: COUNT})
    with pytest.raises(OffsetOutOfRange, match=r"the start is not in the log: .*-0: wanted 999"):
        read(filled, config, start={0: 999})
    with pytest.raises(BrokerUnavailable):
        read(filled, ConsumerConfig.without_group(bootstrap_servers="127.0.0.1:1"))


def test_retention_while_it_reads_is_an_error_that_names_what_is_missing(brokers, filled, topics):
    reader = read(filled, brokers, start={0: 0})
    delete_records_before(topics._admin(), filled, 0, 100)
    with pytest.raises(OffsetOutOfRange, match=rf"{filled}-0 has lost offsets 0 to 100: its log begins at 100"):
        reader.read_all()


def taken_by(library, reader):
    """What a library makes of a reader, as docs/streams.md shows."""
    if library == "polars":
        return polars.from_arrow(reader)
    if library == "duckdb":
        return duckdb.sql("SELECT count(*) FROM reader").fetchall()
    return reader.read_pandas()


@pytest.mark.parametrize("library", ["polars", "duckdb", "pandas"])
def test_retention_is_an_error_of_the_library_that_reads(brokers, filled, topics, library):
    reader = read(filled, brokers, start={0: 0}, columns=["value"])
    delete_records_before(topics._admin(), filled, 0, 100)
    with pytest.raises(Exception, match=rf"{filled}-0 has lost offsets 0 to 100: its log begins at 100"):
        taken_by(library, reader)


def test_a_reader_that_is_dropped_stops_fetching(sandbox, brokers, topic_factory):
    def fetchers():
        return [thread for thread in threading.enumerate() if thread.name.startswith("range-fetcher")]

    topic = topic_factory(partitions=1)
    produce_records(sandbox.bootstrap_servers, topic, [bytes(100_000)] * 400)
    reader = read(topic, brokers)
    assert reader.read_next_batch().num_rows
    assert fetchers()
    del reader
    eventually(lambda: not fetchers())


@pytest.mark.parametrize("library", ["polars", "duckdb", "pandas"])
def test_libraries_take_it_in_one_line(brokers, filled, library):
    reader = read(filled, brokers, columns=["partition", "value"])
    if library == "polars":
        assert polars.from_arrow(reader).shape == (COUNT, 2)
        assert polars.from_arrow(read(filled, brokers, start="latest", columns=["value"])).shape == (0, 1)
    elif library == "duckdb":
        query = "SELECT partition, count(*) FROM reader GROUP BY ALL ORDER BY 1"
        assert duckdb.sql(query).fetchall() == [(0, COUNT // 2), (1, COUNT // 2)]
    else:
        assert reader.read_pandas().shape == (COUNT, 2)


def test_the_command_writes_a_range(sandbox, filled, tmp_path):
    def consume(*options):
        words = ["consume", "--bootstrap-server", sandbox.bootstrap_servers, "--topic", filled, *options]
        done = CliRunner().invoke(command, words)
        return done.exit_code, str(done.exception or "")

    lines = tmp_path / "values"
    assert consume("--partition", "1", "--offset", "10", "--until", "20", "--output", str(lines)) == (0, "")
    assert lines.read_bytes().split() == [b"%d" % (2 * n + 1) for n in range(10, 20)]
    parts = tmp_path / "parts"
    noon = datetime.fromtimestamp((NOON_MS + 100) / 1000, UTC).isoformat()
    assert consume("--offset", noon, "--format", "parquet", "--output", str(parts), "--max-messages", "50") == (0, "")
    (part,) = parts.iterdir()
    rows = polars.read_parquet(part)
    assert rows.shape == (50, 8)
    assert rows["timestamp"].min() >= datetime.fromtimestamp((NOON_MS + 100) / 1000, UTC)
    parts = tmp_path / "range"
    of_range = ("--partition", "1", "--offset", "10", "--until", "20")
    assert consume(*of_range, "--format", "parquet", "--output", str(parts)) == (0, "")
    (part,) = parts.iterdir()
    assert [*map(int, polars.read_parquet(part)["value"])] == [2 * n + 1 for n in range(10, 20)]
    assert consume("--partition", "7", "--output", str(lines)) == (
        1,
        f"topic {filled} has 2 partitions, and not number 7",
    )


def test_a_signal_ends_the_command_after_a_whole_line(sandbox, topic_factory, produce):
    """The pipe is full when the signal comes: the batch that is being written is completed."""
    topic, until = topic_factory(1), 3900
    produce(topic, [b"%04d" % number * 1250 for number in range(4000)])
    words = ["consume", "--bootstrap-server", sandbox.bootstrap_servers, "--topic", topic, "--partition", "0"]
    words += ["--offset", "0", "--until", str(until)]
    with subprocess.Popen(
        [sys.executable, "-m", "zkconsumer", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        try:
            first = process.stdout.read(1)
            process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 1
    assert b"a signal has ended the command before the end of the range" in errors
    *lines, end = (first + rest).split(b"\n")
    assert end == b""
    assert 0 < len(lines) < until, "20 MB are more than a batch"
    assert all(line == b"%04d" % number * 1250 for number, line in enumerate(lines))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_ends_a_read_and_its_threads(brokers, topic_factory, produce, monkeypatch):
    """Ctrl-C comes wherever the read is, again and again; a socket that was just made is closed by its collection."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # one of pytest's, when interrupted, is an error
    topic = topic_factory(2)
    produce(topic, [b"x" * 1000] * 4000)
    weapon, struck = Alarm(), 0
    while struck < 5:
        reader, batches = read(topic, brokers.replace(fetch_message_max_bytes=20_000)), []
        with weapon.active():
            try:
                weapon.arm()
                batches.extend(reader)  # in C: a loop in Python could lose a batch that the reader has returned
                weapon.disarm()
            except Interrupt:
                struck += 1
                with suppress(Interrupt):  # it is raised again, unless it came before the reader took a batch
                    batches.extend(reader)
                    assert sum(batch.num_rows for batch in batches) == 4000
            else:
                assert sum(batch.num_rows for batch in batches) == 4000
        del reader
    eventually(lambda: not [one.name for one in threading.enumerate() if "read of topic" in one.name])
    gc.collect()


@pytest.mark.slow
def test_the_leader_is_killed_while_a_range_is_read(private_sandbox):
    box = private_sandbox(brokers=3)
    topics = Topics(box.bootstrap_servers)
    topic = topics.create("moves", 2, 3)
    produce_records(box.bootstrap_servers, topic, [b"%d" % number + b"." * 1000 for number in range(4000)])
    config = ConsumerConfig.without_group(bootstrap_servers=box.bootstrap_servers, fetch_message_max_bytes=20_000)
    seen, killed = [], []
    for batch in read(topic, config):
        seen += [int(value.rstrip(b".")) for value in batch["value"].to_pylist()]
        if len(seen) > 100 and not killed:
            killed.append(box.brokers[0].kill())
    assert killed
    assert sorted(seen) == [*range(4000)]
