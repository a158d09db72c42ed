"""The sinks of ``zkconsumer consume``: lines of values or JSON, or Parquet parts.

A sink's ``write`` is called by the threads that read the streams, ``flush`` by the thread that commits, right before it
commits: records that were written before ``flush`` returned survive a crash (architecture.md#user-code).
"""

from __future__ import annotations

import base64
import fcntl
import io
import json
import logging
import os
import select
import stat
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from zkconsumer.decode.messages import records
from zkconsumer.decode.records import Records
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import Message
from zkconsumer.operate.offsets.wholefiles import sync
from zkconsumer.process.stalefiles import Claim, remove_abandoned_files

_log = logging.getLogger(__name__)


class RecordSink(Protocol):
    """Takes the records of batches."""

    def write(self, batch: Records) -> None:
        """Take a batch; it may still be lost in a crash when this returns."""

    def flush(self) -> None:
        """Make all records durable that were written before this call."""

    def close(self) -> None:
        """Flush, and close what the sink opened."""


def open_sink(kind: str, output: Path | None, *, waits_for_reader: bool = False) -> RecordSink:
    """A sink for one of the formats ``value``, ``json`` and ``parquet``.

    Args:
        kind: the format.
        output: a file (``value``, ``json``) or directory (``parquet``); None writes to standard output.
        waits_for_reader: see :class:`LineSink`.

    Raises:
        ZkConsumerError: the output cannot be opened.
    """
    if kind == "parquet":
        assert output is not None  # checked by the command
        return ParquetSink(output)
    lines = json_lines if kind == "json" else value_lines
    if output is None:
        try:
            descriptor = sys.stdout.fileno()
        except (AttributeError, OSError) as error:
            raise ZkConsumerError("standard output is closed; open it, or write to a file (--output)") from error
        standard_output = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
        return LineSink(standard_output, lines, waits_for_reader=waits_for_reader)
    try:
        return LineSink(_open_to_append(output), lines, waits_for_reader=waits_for_reader)
    except OSError as error:
        raise ZkConsumerError(f"cannot write to {output}: {error.strerror or error}") from error


def _open_to_append(path: Path) -> BinaryIO:
    """Open for appending; complete a line that a crash has cut, so that the next record is on its own line."""
    is_new = not path.exists()
    if not is_new and not path.is_file():  # a pipe or a device has no lines to look for
        return path.open("wb")
    stream = path.open("a+b")
    if is_new:
        sync(path.absolute().parent)  # a file that no directory lists is lost, whatever is known to be in it
    if stream.seek(0, os.SEEK_END) > 0:
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) != b"\n":
            stream.write(b"\n")
    return stream


class LineSink:
    """Writes one line per record to a file or pipe.

    The stream's own lock makes each ``write`` atomic, and each batch is one ``write``. Where writes wait
    for the reader, one thread writes and waits at a time. Otherwise: 1. the reader reads what thread A has written; 2.
    thread B writes before A has seen that the pipe is empty; 3. the reader closes the pipe, and A reports its lines,
    which were read, as not written.

    Args:
        stream: file or pipe to write to.
        lines: returns the lines of a batch.
        waits_for_reader: where ``stream`` is a pipe, each ``write`` returns when the reader has taken the lines out of
            it. Where the system cannot make the pipe small enough (other than Linux) it returns as without this.
    """

    def __init__(self, stream: BinaryIO, lines: Callable[[Records], bytes], *, waits_for_reader: bool = False) -> None:
        self._stream = stream
        self._lines = lines
        mode = os.fstat(stream.fileno()).st_mode
        self._is_file = stat.S_ISREG(mode)
        self._is_broken = False
        self._waits_for_reader = waits_for_reader and stat.S_ISFIFO(mode)
        self._turn: AbstractContextManager[Any] = threading.Lock() if self._waits_for_reader else nullcontext()
        if self._waits_for_reader:
            _make_small(stream)

    def write(self, batch: Records) -> None:
        """See :class:`RecordSink`. Readers of the file or pipe see the lines when this returns.

        Raises:
            BrokenPipeError: the reader has closed the pipe; records of earlier calls are not affected.
            OSError: the file cannot be written.
        """
        with self._turn:
            self._write(batch)

    def _write(self, batch: Records) -> None:
        try:
            self._stream.write(self._lines(batch))
            self._stream.flush()
        except BrokenPipeError:
            # The stream keeps what it could not write and would fail at every flush from now on, also at those that
            # commit earlier batches. So the rest is discarded, which must not be mistaken for success: the flag is set
            # before the pipe is replaced, and every write checks it afterwards.
            self._is_broken = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if self._is_broken or not self._is_taken():
            raise BrokenPipeError

    def _is_taken(self) -> bool:
        """Wait until the reader has taken all lines; False if it closed the pipe before."""
        if not self._waits_for_reader:
            return True
        emptied = select.poll()
        emptied.register(self._stream.fileno(), select.POLLOUT)
        ((_, events),) = emptied.poll()
        return bool(events & select.POLLOUT)

    def flush(self) -> None:
        """See :class:`RecordSink`. Never waits for a pipe's reader: ``write`` has flushed already."""
        if self._is_file:
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """See :class:`RecordSink`."""
        self.flush()
        self._stream.close()  # of standard output, the descriptor stays open


def _make_small(pipe: BinaryIO) -> None:
    """Limit a pipe to one page; then it accepts more only when it is empty, and polling reports that."""
    with suppress(OSError, AttributeError):  # other than Linux; or it holds more already
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, 1)


class ParquetSink:
    """Writes parts into a directory; a part appears under its final name only when it is complete and on disk.

    One thread owns the open part; ``write`` and ``flush`` post to it and wait. Unfinished parts of writers that were
    killed are removed at the start: their offsets were not committed, so their records are read again.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ZkConsumerError(f"cannot write to directory {directory}: {error.strerror}") from error
        self._directory = directory
        _remove_unfinished_parts(directory)
        self._writer: Any = None
        self._claim: Claim | None = None
        self._temporary = Path()
        self._failure: Exception | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parquet-sink")

    def write(self, batch: Records) -> None:
        """See :class:`RecordSink`."""
        self._thread.submit(self._guarded, partial(self._append, batch)).result()

    def flush(self) -> None:
        """See :class:`RecordSink`."""
        self._thread.submit(self._guarded, self._finish_part).result()

    def close(self) -> None:
        """See :class:`RecordSink`."""
        try:
            self.flush()
        finally:
            self._thread.shutdown()

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do the action unless an earlier one failed: a part that could not be finished stays unfinished."""
        if self._failure is not None:
            raise self._failure
        try:
            action()
        except Exception as error:
            self._failure = error
            self._discard_part()
            raise

    def _discard_part(self) -> None:
        """Remove the unfinished part: on a full disk its space is needed, and its offsets are not committed."""
        with suppress(Exception):  # it writes the footer, and fails where the disk is full
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):  # no part, or no directory any more; the first failure is reported
            self._temporary.unlink()
        self._release_part()

    def _append(self, records: Records) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from zkconsumer.decode.arrow import batch_of

        batch = batch_of(records)

        if self._writer is None:
            self._temporary = self._directory / f".part-{uuid.uuid4().hex}.parquet.tmp"
            self._claim = Claim(self._temporary)
            self._writer = pq.ParquetWriter(self._temporary, batch.schema)
        self._writer.write_table(pa.Table.from_batches([batch]))

    def _finish_part(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        sync(self._temporary)
        final = self._temporary.with_name(self._temporary.name.removeprefix(".").removesuffix(".tmp"))
        self._temporary.rename(final)
        self._release_part()
        sync(self._directory)

    def _release_part(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None


def _remove_unfinished_parts(directory: Path) -> None:
    removed = remove_abandoned_files(directory.glob(".part-*.parquet.tmp"))
    if removed:
        _log.warning(
            "removed %d unfinished parts (%d bytes) from %s: their writers have ended; their offsets are not committed",
            len(removed),
            sum(removed),
            directory,
        )


def value_lines(batch: Records) -> bytes:
    """The value of each record on a line of its own, ``null`` for a tombstone (as the JVM's console consumer)."""
    return b"".join((b"null" if message.value is None else message.value) + b"\n" for message in records(batch))


def json_lines(batch: Records) -> bytes:
    """Each record as a JSON object on a line of its own (cli.md#records-as-json)."""
    return "".join(json_line(message) for message in records(batch)).encode()


def json_line(message: Message) -> str:
    """One record; bytes that are not UTF-8 are base64-encoded in a field ``key_base64`` or ``value_base64``."""
    document: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        **_text_or_base64("key", message.key),
        **_text_or_base64("value", message.value),
    }
    if message.headers:
        document["headers"] = [{"key": name, **_text_or_base64("value", value)} for name, value in message.headers]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
