"""Interrupts where the interpreter can raise them; readers that continue after each; and the audit of what they got."""

import ctypes
import dis
import random
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import zkconsumer
from tests.fix_batches import CODECS, build
from tests.fix_chunks import fetched, make_info, make_queue
from tests.fix_messagesets import message_set
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.model import Message
from zkconsumer.sandbox.producer import Record

_FILES = {str(path): path.name for path in Path(zkconsumer.__file__).parent.rglob("*.py")}
_DECODING = {f"{name}.py" for name in ("decode", "assemble", "unpack", "verify", "decompress", "memory", "columns")}
DECODING = frozenset(path for path, name in _FILES.items() if name in _DECODING)
READING = frozenset(_FILES.keys() - DECODING)
_CALLS = {code for name, code in dis.opmap.items() if name.startswith("CALL") and "INTRINSIC" not in name}
_BACK = {code for name, code in dis.opmap.items() if name == "JUMP_BACKWARD"}


class Interrupt(BaseException):
    """What is raised."""


class Injector:
    """Raises an Interrupt in our code at one point.

    CPython looks for signals and asynchronous exceptions where a function begins, where a loop jumps back, and after a
    call: these are the points.

    Args:
        point: number of the point, from 0 on; None raises nowhere.
        files: whose code has points.
    """

    def __init__(self, point, files):
        self._point = point
        self._files = files
        self._before = {}
        self.points = 0

    @contextmanager
    def active(self):
        """Count points within, and raise at the chosen one; once."""
        if self._point is not None and self.points > self._point:
            yield
            return
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame, event, _):
        if event == "call":
            if frame.f_code.co_filename not in self._files:
                return None
            frame.f_trace_opcodes = True
            self._pass()
        elif event == "opcode":
            code = frame.f_code.co_code[frame.f_lasti]
            if self._before.get(frame) in _CALLS or code in _BACK:
                self._pass()
            self._before[frame] = code
        elif event == "return":
            self._before.pop(frame, None)
        return self._trace

    def _pass(self):
        self.points += 1
        if self.points - 1 == self._point:
            self._before.clear()
            raise Interrupt


def values(records):
    return [(offset, record.key, record.value, tuple(record.headers)) for offset, record in records]


class Log:
    """Some partitions' chunks, encoded in many ways; what is in them; and a queue that holds them."""

    def __init__(self, *, check_crcs=True, pool=None):
        self.queue = make_queue(max_chunks=1000, max_bytes=1 << 30)
        self._pool = pool
        self._check_crcs = check_crcs
        self._chunks = {}
        self.expected = {}
        self.infos = {}
        self._generation = 1

    def copy(self, **settings):
        """The same chunks in a queue of their own."""
        log = Log(**settings)
        log._chunks, log.expected = self._chunks, self.expected
        return log.fill()

    def add(self, partition, count, *, codec="none", batches=1, headers=False):
        """A chunk of ``batches`` batches with so many records each."""
        chunks = self._chunks.setdefault(partition, [])
        expected = self.expected.setdefault(partition, [])
        start = at = chunks[-1][1] if chunks else 0
        data = b""
        for _ in range(batches):
            records = [
                Record(
                    b"value %d of %d" % (at + i, partition) * (6 + i % 3),
                    b"key %d" % (at + i) if i % 2 else None,
                    1000,
                    [("h", b"%d" % (at + i))] if headers and i % 3 else [],
                )
                for i in range(count)
            ]
            data += build(records, offset=at, codec=codec)
            expected += values(enumerate(records, at))
            at += count
        chunks.append((start, at, data))
        return self

    def add_old_format(self, partition, count):
        """The same of message format 1, which has no headers."""
        chunks, expected = self._chunks.setdefault(partition, []), self.expected.setdefault(partition, [])
        start = chunks[-1][1] if chunks else 0
        records = [Record(b"old %d" % (start + i) * 9, b"k", 1000) for i in range(count)]
        chunks.append((start, start + count, message_set(records, 1, range(start, start + count))))
        expected += values(enumerate(records, start))
        return self

    def add_markers(self, partition, count):
        """Nothing but markers of transactions."""
        start = self._chunks[partition][-1][1]
        self._chunks[partition].append((start, start + count, None))
        return self

    def fill(self):
        """Put all that is not handed out into the queue, the partitions in turns."""
        for partition in self._chunks:
            start = 0 if partition not in self.infos else self.infos[partition].position(handed_out=True)
            self.infos[partition] = make_info(self.queue, partition, self._generation, start)
        for row in range(max(map(len, self._chunks.values()))):
            for partition, chunks in self._chunks.items():
                if row < len(chunks):
                    self._put(self.infos[partition], *chunks[row])
        return self

    def _put(self, info, start, end, data):
        if end <= info.start:
            return
        if data is None:
            self.queue.put(Chunk(info, None, end, 0))
        else:
            self.queue.put(fetched(info, max(start, info.start), data))

    def rebalance(self):
        """All partitions stay; what was not handed out is fetched again."""
        self.queue.release_all()
        self._generation += 1
        self.fill()

    def stream(self, kind=Message, timeout_ms=0):
        reader = ChunkReader(self.queue, check_crcs=self._check_crcs, pool=self._pool)
        return MessageStream(self.queue, name="g_c-0", kind=kind, timeout_ms=timeout_ms, reader=reader)

    def audit(self, got):
        """Each record came exactly once, in order and as it was written."""
        came = {partition: [] for partition in self.expected}
        for partition, *record in (record for item in got for record in rows(item)):
            came[partition].append(tuple(record))
        assert came == self.expected

    def check_positions(self, got):
        """Positions cover what was handed out, not more; and nothing is released that was not handed out."""
        came = dict.fromkeys(self.expected, 0)
        for partition, *_ in (record for item in got for record in rows(item)):
            came[partition] += 1
        for partition, info in self.infos.items():
            handed_out, released = (info.position(handed_out=each) for each in (True, False))
            assert released <= handed_out
            offsets = [offset for offset, *_ in self.expected[partition]]
            done, missing = offsets[: came[partition]], offsets[came[partition] :]
            assert not done or done[-1] < handed_out, "some would be handed out again after a rebalance"
            assert not missing or handed_out <= missing[0], "the position covers what was not handed out"


def rows(item):
    """A message or a batch as rows of partition, offset, key, value and headers."""
    if isinstance(item, tuple):
        return [(item[1], item[2], item[5], item[6], item[7])]
    names = ("partition", "offset", "key", "value", "headers")
    columns = [item.column(name).to_pylist() for name in names]
    return [
        (*row, tuple((h["key"], h["value"]) for h in headers or ())) for *row, headers in zip(*columns, strict=True)
    ]


def by_record(stream, got):
    for message in stream:
        got.append(message)


def by_next(stream, got):
    while True:
        # Not next(stream): that is a call, and after a call the interpreter may raise in the caller.
        message = stream.__next__()
        got.append(message)


def by_peek(stream, got):
    while True:
        peeked = stream.peek()
        message = stream.__next__()
        assert message == peeked
        got.append(message)


def by_batch(stream, got):
    for batch in stream.batches(headers=True):
        got.append(batch)


def by_rows(stream, got):
    for batch in stream.batches(headers=True, max_rows=2):
        got.append(batch)


def by_bytes(stream, got):
    for batch in stream.batches(headers=True, max_bytes=200):
        got.append(batch)


def by_next_batch(stream, got):
    while True:
        batch = stream.next_batch(3)
        got.append(batch)
        stream.release()


def in_turns(stream, got):
    while True:
        message = stream.__next__()
        got.append(message)
        batch = stream.next_batch(2)
        got.append(batch)


READERS = (by_record, by_next, by_peek, by_batch, by_rows, by_bytes, by_next_batch, in_turns)
CODECS = tuple(codec for codec in CODECS if codec != "snappy-raw")


def read(reader, stream, got, interrupted=lambda: None):
    """Read until nothing more comes; ``interrupted`` is called after each interrupt."""
    while True:
        try:
            reader(stream, got)
        except ConsumerTimeout:
            return
        except Interrupt:
            interrupted()


def delay():
    """Seconds to the next interrupt: mostly microseconds, sometimes long enough to get ahead on a busy machine."""
    return 10 ** random.uniform(-5, -2)


class Alarm:
    """Interrupts the main thread by signals of a timer, one for each :meth:`arm`."""

    def __init__(self):
        self._armed = False

    @contextmanager
    def active(self):
        before = signal.signal(signal.SIGALRM, self._strike)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def arm(self):
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, delay())

    def disarm(self):
        self._armed = False

    def _strike(self, *_):
        if self._armed:
            self._armed = False
            raise Interrupt


class Striker:
    """Interrupts the thread that arms it by ``PyThreadState_SetAsyncExc`` from another one."""

    def __init__(self):
        self._gate = threading.Lock()
        self._victim = None
        self._over = threading.Event()

    @contextmanager
    def active(self):
        thread = threading.Thread(target=self._run)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            sys.setswitchinterval(interval)

    def arm(self):
        self._victim = threading.get_ident()

    def disarm(self):
        with self._gate:
            self._victim = None

    def _run(self):
        while not self._over.wait(delay()):
            with self._gate:
                victim, self._victim = self._victim, None
                if victim is not None:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim), ctypes.py_object(Interrupt))


def read_under_fire(reader, stream, got, weapon, enough=None):
    """Read until nothing more comes, and that is ``enough``: then interrupts end, too. Returns how many there were."""
    interrupts = 0
    while True:
        try:
            try:
                if enough is None or not enough():
                    weapon.arm()
                reader(stream, got)
            except ConsumerTimeout:
                weapon.disarm()
                if enough is None or enough():
                    return interrupts
        except Interrupt:
            interrupts += 1
