"""Sinks after failures: nothing more may be reported as durable."""

import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from zkconsumer.cli.sinks import ParquetSink, open_sink
from zkconsumer.decode.arrow import records_of
from zkconsumer.decode.records import Records
from zkconsumer.decode.schema import SCHEMA_WITH_HEADERS


def batch(*values):
    count = len(values)
    columns = [[None] * count, list(values), ["t"] * count, [0] * count, list(range(count)), [0] * count, [0] * count]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA_WITH_HEADERS, strict=False)]
    arrays.append(pa.nulls(count, SCHEMA_WITH_HEADERS.field("headers").type))
    return records_of(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS))


def test_parquet_stays_broken_after_a_part_could_not_be_finished(tmp_path):
    directory = tmp_path / "parts"
    sink = ParquetSink(directory)
    sink.write(batch(b"a"))
    (part,) = directory.iterdir()
    part.unlink()  # finishing it will fail
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            sink.flush()
    with pytest.raises(FileNotFoundError):
        sink.write(batch(b"b"))
    with pytest.raises(FileNotFoundError):
        sink.close()
    assert list(directory.iterdir()) == []


def test_lines_can_be_read_when_write_returns_and_a_cut_line_is_ended(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"whole\ncut")
    sink = open_sink("value", path)
    sink.write(batch(b"a", None))
    assert path.read_bytes() == b"whole\ncut\na\nnull\n"
    sink.close()


@pytest.mark.parametrize("has_path", [True, False])
def test_lines_go_into_a_pipe_that_is_the_output(tmp_path, has_path):
    """A FIFO, or the pipe that /dev/stdout leads to."""
    reader, writer = os.pipe()
    path = Path(f"/proc/self/fd/{writer}")
    if has_path:
        os.mkfifo(path := tmp_path / "pipe")
        os.close(reader)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_sink("value", path)
    sink.write(batch(b"one", b"two"))
    sink.flush()
    assert os.read(reader, 100) == b"one\ntwo\n"
    sink.close()
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_a_pipe_without_a_reader_breaks_every_write_but_no_flush(monkeypatch, tmp_path):
    reader, writer = os.pipe()
    fifo = os.fdopen(writer, "wb")
    monkeypatch.setattr("sys.stdout", fifo)
    sink = open_sink("value", None)
    sink.write(batch(b"a"))
    os.close(reader)
    for _ in range(2):
        with pytest.raises(BrokenPipeError):
            sink.write(batch(b"b"))
    sink.flush()
    sink.close()
    fifo.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes pipes smaller")
@pytest.mark.parametrize("takes", [True, False], ids=["taken", "left"])
def test_a_sink_that_waits_knows_what_the_reader_took(monkeypatch, takes):
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as pipe, ThreadPoolExecutor() as threads:
        monkeypatch.setattr("sys.stdout", pipe)
        sink = open_sink("value", None, waits_for_reader=True)
        write = threads.submit(sink.write, batch(b"a"))
        select.select([reader], [], [])
        if takes:
            assert os.read(reader, 100) == b"a\n"
        os.close(reader)
        assert (write.exception() is None) == takes


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes pipes smaller")
def test_threads_know_which_of_their_lines_the_reader_has_taken(monkeypatch):
    """A thread must not find the pipe full of another one's line and believe that its own is still in it."""
    for lines in range(1, 21):
        assert written_by_four_threads(monkeypatch, lines) == lines


def written_by_four_threads(monkeypatch, lines):
    """How many writes succeed if the reader takes so many lines."""
    reader, writer = os.pipe()
    written = []

    def write_all(sink):
        with suppress(BrokenPipeError):
            while True:
                sink.write(batch(b"a"))
                written.append(1)

    with os.fdopen(writer, "wb") as pipe, ThreadPoolExecutor(4) as threads:
        monkeypatch.setattr("sys.stdout", pipe)
        sink = open_sink("value", None, waits_for_reader=True)
        for _ in range(4):
            threads.submit(write_all, sink)
        for _ in range(lines):
            assert os.read(reader, 2) == b"a\n"
        os.close(reader)
    return len(written)


def test_parquet_leaves_no_temporary_file_after_a_failure(tmp_path):
    directory = tmp_path / "parts"
    sink = ParquetSink(directory)
    sink.write(batch(b"a"))
    other = Records("t", 0, ("value",), batch(b"b").buffers, 0, 1)  # other columns
    with pytest.raises(ValueError, match="schema"):
        sink.write(other)
    assert list(directory.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
from tests.unit.cli.test_sinks import batch
from zkconsumer.cli.sinks import ParquetSink

sink = ParquetSink(Path(sys.argv[1]))
sink.write(batch(b"a"))
print("written", flush=True)
sys.stdin.read()
sink.close()
"""


def test_parquet_removes_unfinished_parts_of_killed_writers_only(tmp_path):
    directory = tmp_path / "parts"
    command = [sys.executable, "-c", WRITER, str(directory)]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with writers[0] as killed, writers[1] as living:
        for writer in writers:
            assert writer.stdout.readline() == "written\n"
        killed.kill()
        killed.wait()
        assert len(list(directory.glob(".part-*.parquet.tmp"))) == 2
        sink = ParquetSink(directory)
        sink.write(batch(b"b"))
        assert len(list(directory.glob(".part-*.parquet.tmp"))) == 2
        sink.close()
        living.communicate("")
        assert living.returncode == 0
    assert len(list(directory.iterdir())) == len(list(directory.glob("part-*.parquet"))) == 2
