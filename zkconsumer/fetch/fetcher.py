"""FetcherThread: fetches its partitions from one broker and fills the queues (SPEC 6.2, DESIGN 4.11)."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ConfigError, CorruptRecord, ProtocolError, RecordTooLarge
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.partition_info import PartitionInfo, by_queue
from zkconsumer.fetch.pipeline import Answer, FetchPipeline
from zkconsumer.fetch.queues import ChunkQueue, Damage
from zkconsumer.fetch.turns import fitting, turn, wait_ms
from zkconsumer.kafka.client import EARLIEST, LATEST, list_offsets
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode, error_name, is_refusal
from zkconsumer.kafka.refusals import DESCRIBE, READ, topic_refused
from zkconsumer.kafka.security import BrokerSecurity
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wakeup import WakeUp

_log = logging.getLogger(__name__)

_MAX_FAULTS: Final = 3
"""How often bytes that cannot be decoded are fetched, in case they were damaged on their way."""
_JITTER: Final = 0.5

ReturnToFinder = Callable[[Iterable[PartitionInfo]], None]


class FetcherThread(threading.Thread):
    """Fetches from one broker. Its table of partitions is written by this thread alone; others use the inbox.

    Args:
        name: of the thread.
        broker: leader of all its partitions.
        config: fetch sizes, waits, timeouts, reset policy.
        return_to_finder: takes partitions that this broker does not lead any more, or when it cannot be reached.
    """

    def __init__(self, name: str, broker: Broker, config: ConsumerConfig, return_to_finder: ReturnToFinder) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self._config = config
        self._return_to_finder = return_to_finder
        self._table: OrderedDict[TopicPartition, PartitionInfo] = OrderedDict()
        self._inbox: list[PartitionInfo] = []
        self._outbox: list[PartitionInfo] = []  # to be taken out of the table
        self._inbox_lock = threading.Lock()
        self._closed = False  # under the inbox lock, so that nothing is added to a thread that has left
        self._stop_requested = threading.Event()
        self._wake = WakeUp()  # readers set it, who may be interrupted
        self._connection: BrokerConnection | None = None
        self._pipeline: FetchPipeline | None = None  # with the connection
        self._awaiting_reset: list[PartitionInfo] = []
        self.requests = 0  # this and the next are written by this thread only
        self.wakeups = 0  # how often it was woken while it waited for room or partitions
        self.began = time.monotonic()
        self._without_room: frozenset[PartitionInfo] = frozenset()
        self._without_room_since = 0.0
        self._listening: set[ChunkQueue] = set()

    # -- from other threads -------------------------------------------------------------------------------------

    def add(self, infos: Sequence[PartitionInfo]) -> bool:
        """Fetch these too; False if the thread is ending and does not take them."""
        with self._inbox_lock:
            if self._closed:
                return False
            self._inbox.extend(infos)
        self._wake.set()
        return True

    def remove(self, infos: Collection[PartitionInfo]) -> None:
        """Fetch these no more, if they are fetched here. They are marked as released already."""
        with self._inbox_lock:
            self._outbox.extend(infos)
        self._wake.set()

    def is_idle(self) -> bool:
        """True if there is nothing to fetch."""
        with self._inbox_lock:
            return not self._inbox and not self._table

    def close(self) -> None:
        """Tell the thread to end and wake it, whatever it waits for; harmless when repeated."""
        self._stop_requested.set()
        self._wake.set()
        # After the flag: the thread stores a new connection first and looks at the flag then, so either it sees the
        # flag or this line sees the connection.
        connection = self._connection
        if connection is not None:
            connection.close()

    # -- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Fetch until closed; then give back what is left."""
        try:
            if not self._load_decoder():
                return
            while not self._stop_requested.is_set():
                try:
                    self._round()
                except (BrokerUnavailable, ConfigError, ProtocolError) as error:
                    self._lose_broker(error)
                except Exception:  # noqa: BLE001  a dead fetcher would leave its partitions silent (SPEC 6.2)
                    _log.exception("%s: unexpected error; its partitions look for a leader again", self.name)
                    self._lose_broker(None)
        finally:
            self._disconnect()
            self._listen_to(())
            with self._inbox_lock:
                self._closed = True
                leftover = [*self._table.values(), *self._inbox]
            self._return_to_finder(leftover)

    def _load_decoder(self) -> bool:
        """Load the decoder. If that fails, the streams raise the cause: no other fetcher could read the partitions."""
        try:
            from zkconsumer.decode.batchdecoder import BatchDecoder

            self._decoder = BatchDecoder(
                check_crcs=self._config.check_crcs, max_decompressed_bytes=self._config.decompressed_max_bytes
            )
        except Exception as error:  # noqa: BLE001  whatever importing a package or compiling raises
            with self._inbox_lock:
                self._closed = True
                arrived, self._inbox = self._inbox, []
            for info in arrived:
                self._fail(info, error)
            return False
        return True

    def _round(self) -> None:
        """One answer and what comes of it, or a wait where there is nothing to ask for."""
        # Cleared before looking, so that what is put into the inbox while we look wakes us afterwards.
        self._wake.clear()
        self._decoder.memory.trim()
        self._take_from_inbox()
        self._take_damages()
        if self._pipeline is None or not self._pipeline.in_flight:
            self._reset()
            if self._stop_requested.is_set():
                return
            if not self._ask():
                self._await_room()
                return
        assert self._pipeline is not None
        for answer in self._pipeline.receive():
            if answer.fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE and self._has(answer.info):
                self._awaiting_reset.append(answer.info)
            if answer.fetched.is_last and not self._awaiting_reset:  # to look up an offset nothing may be in flight
                self._ask(answer)
            self._accept(answer)
        self.requests += 1

    def _await_room(self) -> None:
        """Wait until one of the partitions can be fetched, the inbox has something, or this is closed."""
        queues = by_queue(self._table.values())
        if all(queue.await_room(self._wake.set, infos) for queue, infos in queues.items()):
            self._wake.wait()
            self.wakeups += 1
        for queue in queues:
            queue.stop_awaiting(self._wake.set)

    def _take_from_inbox(self) -> None:
        """Take over what is in the inbox, and drop what was released."""
        with self._inbox_lock:
            arrived, self._inbox = [info for info in self._inbox if not info.released], []
            self._table.update((info.partition, info) for info in arrived)
            leaving, self._outbox = self._outbox, []
            for info in leaving:
                if self._has(info):
                    del self._table[info.partition]
        self._listen_to({*self._listening, *(info.queue for info in arrived)})  # before their room is looked at
        self._awaiting_reset += [info for info in arrived if info.fetched is None]

    def _listen_to(self, queues: Collection[ChunkQueue]) -> None:
        """Hear of room in these queues, and in no others: each listener gets a share of what may be fetched.

        A fetcher whose partitions have gone to another broker would otherwise keep a share of room for nothing.
        """
        now = set(queues)
        for queue in self._listening - now:
            queue.remove_listener(self._wake.set)
        for queue in now - self._listening:
            queue.add_listener(self._wake.set)
        self._listening = now

    def _take_damages(self) -> None:
        """Fetch again what readers found to be damaged."""
        for queue in self._listening:
            for damaged in queue.damaged():
                info = self._table.get(damaged.partition)
                damage = queue.take_damage(info) if info is not None and info is damaged else None
                if info is not None and damage is not None:
                    self._fetch_again(info, damage)

    def _ask(self, coming: Answer | None = None) -> bool:
        """Send a request; False if there is nothing to ask for now.

        Args:
            coming: what was received, but is not queued yet.
        """
        wanted = self._offsets_to_fetch(coming)
        if not wanted:
            return False
        config = self._config
        room = sum(queue.allowance(_bytes_for(queue, coming)) for queue in {info.queue for info in wanted})
        largest = max(config.fetch_message_max_bytes, *(info.fetch_bytes for info in wanted))
        self._connected()
        assert self._pipeline is not None
        max_bytes, max_wait_ms = min(config.fetch_max_bytes, max(room, largest)), self._max_wait_ms()
        if self._pipeline.limits_responses:
            named = fitting({info: info.expected_bytes(offset) for info, offset in wanted.items()}, max_bytes)
        else:
            named = turn({info: info.fetch_bytes for info in wanted}, max_bytes)
            for info in named:  # also those that have no data: the others come first in the next request
                self._table.move_to_end(info.partition)
        max_wait_ms = wait_ms(max_wait_ms, len(named), len(wanted))
        self._pipeline.send({info: wanted[info] for info in named}, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
        return True

    def _offsets_to_fetch(self, coming: Answer | None) -> dict[PartitionInfo, int]:
        """Partitions whose queue wants them, and from where: those first that had none or got nothing lately."""
        # Without an offset it will be looked up.
        wanted = {info: info.fetched for info in self._with_room(coming) if info.fetched is not None}
        if coming is None or coming.info not in wanted or not (coming.fetched.error or coming.fetched.records):
            return wanted
        info, fetched = coming.info, coming.fetched
        offset = wanted.pop(info)
        if not fetched.error:  # else it will be looked up, or given back
            foreseen = self._decoder.next_offset(offset, fetched.records)
            if offset < foreseen <= fetched.high_watermark:  # else _accept() decides what to do
                wanted[info] = foreseen
        return wanted

    def _with_room(self, coming: Answer | None) -> Iterable[PartitionInfo]:
        """Partitions whose queue wants them, in the order of the table."""
        theirs = by_queue(self._table.values())
        self._listen_to(theirs)
        chunk_of = coming.info if coming is not None and coming.fetched.records else None
        with_room = [
            info
            for queue, infos in theirs.items()
            for info in queue.to_fetch(infos, coming=chunk_of, coming_bytes=_bytes_for(queue, coming))
        ]
        without_room = frozenset(self._table.values()).difference(with_room)
        if without_room != self._without_room:
            self._without_room, self._without_room_since = without_room, time.monotonic()
        return with_room if len(theirs) < 2 else [info for info in self._table.values() if info not in without_room]

    def _max_wait_ms(self) -> int:
        """``fetch.wait.max.ms``, less while some partition was left out for its full queue.

        A long poll for idle partitions would keep a busy one waiting whose queue is emptied meanwhile. So the wait is
        at most as long as the queue has been full already: a quick reader waits milliseconds, a slow one costs few
        requests.
        """
        limit = self._config.fetch_wait_max_ms
        if not self._without_room:
            return limit
        full_ms = int((time.monotonic() - self._without_room_since) * 1000)
        return min(limit, max(1, full_ms))

    # -- one partition's answer ---------------------------------------------------------------------------------

    def _accept(self, answer: Answer) -> None:
        """Find the batches and enqueue."""
        info, fetched, is_first = answer
        if not self._has(info) or info.fetched is None:
            return
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return  # looked up before the next request
        if fetched.error != ErrorCode.NONE:
            self._refused(info, fetched.error, READ)
            return
        info.allow()
        info.high_watermark = fetched.readable_end(self._config.isolation_level)
        if not fetched.records:
            info.density = 0.0  # whatever the end of its log: otherwise it could take the room of others for nothing
            return
        try:
            scanned = self._decoder.scan(*info.partition, info.fetched, fetched.records, fetched.aborted)
            unread = scanned.has_records()
            if scanned.next_offset > fetched.high_watermark or not unread:
                # What no log has, to ask for it would look like data lost; and what moves the position, no reader
                # looks at. What is wrong behind sound batches comes first in the next answer.
                scanned = self._decoder.verify(scanned)._replace(fault=None)
                unread = scanned.has_records()
        except Exception as error:  # noqa: BLE001 - one partition's bytes must not take the broker's others with them
            self._retry_or_fail(info, error)
            return
        if scanned.next_offset > info.fetched:
            size = len(fetched.records)
            info.density = size / (scanned.next_offset - info.fetched)
            nbytes, kept = (size, scanned) if unread else (0, None)
            self._enqueue(info, Chunk(info, None, scanned.next_offset, nbytes, size, kept))
        elif len(fetched.records) >= info.fetch_bytes:
            self._grow(info)
        elif is_first:
            # The first batch comes whole, or as much of it as was asked for (KIP-74); the limit of the whole response
            # cuts only those behind it. So this is no batch: its length was damaged.
            reason = f"{len(fetched.records)} bytes hold no complete batch"
            self._retry_or_fail(info, CorruptRecord(f"{info.partition} at offset {info.fetched}: {reason}"))

    def _refused(self, info: PartitionInfo, code: int, operation: str) -> None:
        """This broker does not serve a partition: another one may, or this one later."""
        if is_refusal(code):
            security = BrokerSecurity.from_config(self._config)
            error = topic_refused(info.partition.topic, code, operation, self.broker, security)
            info.deny(error, self._config.refresh_leader_backoff_ms / 1000)
        else:
            _log.info("%s: %s answers %s", self.name, info.partition, error_name(code))
        self._return(info)

    def _enqueue(self, info: PartitionInfo, chunk: Chunk) -> None:
        if info.queue.put(chunk):
            info.fetched = chunk.next_offset
            self._table.move_to_end(info.partition)  # the others come first in the next request
            return
        damage = info.queue.take_damage(info)
        if damage is not None:
            self._fetch_again(info, damage)
        else:  # a rebalance has come: this partition was released
            del self._table[info.partition]

    def _grow(self, info: PartitionInfo) -> None:
        """Ask for more, where not even one batch fits. Brokers from 0.10.1 on send a whole one anyway (KIP-74)."""
        if info.fetch_bytes >= self._config.fetch_max_bytes:
            self._fail(
                info,
                RecordTooLarge(
                    f"{info.partition} at offset {info.fetched}: a record is longer than fetch.max.bytes "
                    f"({self._config.fetch_max_bytes}); raise it to read on"
                ),
            )
            return
        info.fetch_bytes = min(2 * info.fetch_bytes, self._config.fetch_max_bytes)
        _log.warning("%s: asking for %d bytes of %s at a time", self.name, info.fetch_bytes, info.partition)

    def _fetch_again(self, info: PartitionInfo, damage: Damage) -> None:
        """To where a reader found that bytes are damaged; what was fetched from behind there is not in the queue."""
        info.fetched = damage.offset
        self._awaiting_reset = [one for one in self._awaiting_reset if one is not info]  # there it was in its place
        self._retry_or_fail(info, damage.error)

    def _retry_or_fail(self, info: PartitionInfo, error: Exception) -> None:
        """What is at the offset to fetch next cannot be read: try again, in the end fail or go on behind it."""
        assert info.fetched is not None
        info.faults = info.faults + 1 if info.faulty == info.fetched else 1
        info.faulty = info.fetched
        if info.faults >= _MAX_FAULTS:
            if self._config.on_corrupt == "skip" and isinstance(error, CorruptRecord) and error.resume_at is not None:
                self._skip(info, error, error.resume_at)
            else:
                self._fail(info, error)
        else:
            _log.warning("%s: %s; fetched again", self.name, error)
            self._return(info)

    def _skip(self, info: PartitionInfo, error: CorruptRecord, resume_at: int) -> None:
        """Go on behind a batch that cannot be read; not beyond the log's end, which a damaged header may claim."""
        assert info.fetched is not None
        if info.high_watermark is not None and info.high_watermark > info.fetched:
            resume_at = min(resume_at, info.high_watermark)
        _log.error(
            "%s: offsets %d to %d of %s are left out: %s", self.name, info.fetched, resume_at - 1, info.partition, error
        )
        self._enqueue(info, Chunk(info, None, resume_at, 0))

    def _fail(self, info: PartitionInfo, error: Exception) -> None:
        """Tell the user; the position stays in front of what cannot be read."""
        _log.error("%s: %s", self.name, error)
        self._table.pop(info.partition, None)
        info.queue.fail(error, info)

    def _reset(self) -> None:
        """Go on where ``auto.offset.reset`` says, for partitions without an offset or with a useless one."""
        infos, self._awaiting_reset = [info for info in self._awaiting_reset if self._has(info)], []
        if not infos or self._stop_requested.is_set():
            return
        first, last = EARLIEST, LATEST
        if self._config.auto_offset_reset == "largest":
            first, last = last, first
        ask = partial(list_offsets, self._connected(), isolation=self._config.isolation_level)
        answer = ask(dict.fromkeys((info.partition for info in infos), first))
        lost = [info.partition for info in infos if info.fetched is not None]
        other_ends = ask(dict.fromkeys(lost, last)).found if lost else {}
        for info in infos:
            offset = answer.found.get(info.partition)
            if offset is None:
                code = answer.errors.get(info.partition, ErrorCode.OFFSET_NOT_AVAILABLE)
                self._refused(info, code, DESCRIBE)
                continue
            self._report_reset(info, offset, other_ends.get(info.partition))
            if info.reset_to(offset):
                self._enqueue(info, Chunk(info, None, offset, 0))

    def _report_reset(self, info: PartitionInfo, offset: int, other_end: int | None) -> None:
        """Say what was skipped or is read again (only where there was an offset: otherwise it is a beginning)."""
        policy = self._config.auto_offset_reset
        if info.fetched is None:
            _log.info("%s: %s begins at its %s offset %d", self.name, info.partition, policy, offset)
            return
        ends = sorted(end for end in (offset, other_end) if end is not None)
        _log.warning(
            "%s: %s of %s is out of range: its log has %s. It goes on at the %s offset %d, as auto.offset.reset says; "
            "if records are missing, look at the retention of the topic, and at whether it was created anew",
            self.name,
            info.describe_offset(),
            info.partition,
            " to ".join(map(str, ends)),
            policy,
            offset,
        )

    # -- the broker ---------------------------------------------------------------------------------------------

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            connection = BrokerConnection.from_config(self.broker, self._config)
            self._connection = connection
            if self._stop_requested.is_set():  # see close()
                raise BrokerUnavailable(f"{connection}: this fetcher is stopping")
            connection.connect()
            self._pipeline = FetchPipeline(connection, self._config, self._decoder.memory.take)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._pipeline = None
        self._awaiting_reset.clear()

    def _lose_broker(self, error: Exception | None) -> None:
        """Give everything back after the backoff, spread so that not all fetchers return at once."""
        self._disconnect()
        if self._stop_requested.is_set():
            return
        if error is not None:
            _log.warning("%s: %s; its partitions look for a leader again", self.name, error)
            for info in self._table.values():
                info.report_wrong_settings(error)
        spread = random.uniform(1 - _JITTER, 1 + _JITTER)
        self._stop_requested.wait(spread * self._config.refresh_leader_backoff_ms / 1000)
        with self._inbox_lock:
            everything = [*self._table.values(), *self._inbox]
            self._table.clear()
            self._inbox.clear()
        self._listen_to(())
        self._return_to_finder(everything)

    def _has(self, info: PartitionInfo) -> bool:
        """False for a partition that was given up, or that a rebalance has brought anew since it was asked for."""
        return self._table.get(info.partition) is info

    def _return(self, info: PartitionInfo) -> None:
        self._table.pop(info.partition, None)
        self._return_to_finder([info])


def _bytes_for(queue: ChunkQueue, coming: Answer | None) -> int:
    """How much of what was received, but is not queued yet, is for this queue."""
    return len(coming.fetched.records) if coming is not None and coming.info.queue is queue else 0
