"""FetcherThread: fetches its partitions from one broker and fills the queues.

See jvm-consumer.md#fetch-loop, architecture.md#back-pressure.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import BrokerUnavailable, ConfigError, CorruptRecord, ProtocolError, RecordTooLarge
from zkconsumer.fetch.chunkqueue import ChunkQueue, Damage
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.partitioninfo import PartitionInfo, by_queue
from zkconsumer.fetch.positionlookup import PositionLookup
from zkconsumer.fetch.requestedpartitions import fitting, turn, wait_ms
from zkconsumer.fetch.rules.requestsize import next_request_bytes
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.wakeup import WakeUp
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name, verdict_on
from zkconsumer.wire.fetchconversation import FetchConversation
from zkconsumer.wire.fetchmessages import FetchedPartition
from zkconsumer.wire.fetchsession import PartitionFetch
from zkconsumer.wire.refusals import DESCRIBE, READ, topic_refused
from zkconsumer.wire.rules.fetchanswers import Verdict, next_size, resume_at
from zkconsumer.wire.rules.readreplica import names_another

_log = logging.getLogger(__name__)

_VERIFY_FROM_CHUNKS: Final = 6
"""Chunks that wait in a queue when its reader is so busy that the fetcher verifies the next one."""
_JITTER: Final = 0.5

ReturnToFinder = Callable[[Iterable[PartitionInfo]], None]


class PartitionAnswer(NamedTuple):
    """The answer for one partition; see :class:`~zkconsumer.wire.fetchconversation.FetchAnswer`."""

    info: PartitionInfo
    asked: PartitionFetch
    fetched: FetchedPartition
    is_first: bool


class FetcherThread(threading.Thread):
    """Fetches from one broker. Only this thread writes its table of partitions; other threads use the inbox.

    Args:
        name: name of the thread, which log lines begin with.
        broker: the leader of all its partitions, or a follower that their leaders have named (KIP-392).
        config: fetch sizes, waits, timeouts, reset policy.
        return_to_finder: takes back partitions that this broker does not lead any more, or all if it is unreachable.
    """

    def __init__(self, name: str, broker: Broker, config: ConsumerConfig, return_to_finder: ReturnToFinder) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self._config = config
        self._return_to_finder = return_to_finder
        self._table: OrderedDict[TopicPartition, PartitionInfo] = OrderedDict()
        self._inbox: list[PartitionInfo] = []
        self._outbox: list[PartitionInfo] = []  # to be removed from the table
        self._inbox_lock = threading.Lock()
        self._closed = False  # under the inbox lock, so that no partition is added to a thread that has ended
        self._stop_requested = threading.Event()
        self._wake = WakeUp()  # set by readers, which may be interrupted
        self._connection: BrokerConnection | None = None
        self._conversation: FetchConversation | None = None  # exists together with the connection
        self._positions = PositionLookup(name, config)
        self.requests = 0  # this and the next are written by this thread only
        self.wakeups = 0  # how often it was woken while it waited for room or partitions
        self.began = time.monotonic()
        self._without_room: frozenset[PartitionInfo] = frozenset()
        self._without_room_since = 0.0
        self._listening: set[ChunkQueue] = set()
        self._rack = config.client_rack or ""
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._leaving: list[PartitionInfo] = []  # to ask their leaders again; the last request does not name them

    # -- from other threads -------------------------------------------------------------------------------------

    def add(self, infos: Sequence[PartitionInfo]) -> bool:
        """Fetch these partitions too; False if the thread is ending and does not take them."""
        with self._inbox_lock:
            if self._closed:
                return False
            self._inbox.extend(infos)
        self._wake.set()
        return True

    def remove(self, infos: Collection[PartitionInfo]) -> None:
        """Stop fetching these partitions, as far as they are fetched here. They are marked as released already."""
        with self._inbox_lock:
            self._outbox.extend(infos)
        self._wake.set()

    def is_idle(self) -> bool:
        """True if there is nothing to fetch."""
        with self._inbox_lock:
            return not self._inbox and not self._table

    def close(self) -> None:
        """Ask the thread to end, and interrupt any wait of it. Idempotent."""
        self._stop_requested.set()
        self._wake.set()
        # After the flag: the thread stores a new connection first and checks the flag then, so either the thread sees
        # the flag or this line sees the connection.
        connection = self._connection
        if connection is not None:
            connection.close()

    # -- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Fetch until closed; then return the remaining partitions to the finder."""
        try:
            if not self._load_decoder():
                return
            while not self._stop_requested.is_set():
                try:
                    self._round()
                except (BrokerUnavailable, ConfigError, ProtocolError) as error:
                    self._lose_broker(error)
                # a dead fetcher would leave its partitions silent (jvm-consumer.md#fetch-loop)
                except Exception:  # noqa: BLE001
                    _log.exception("%s: unexpected error; looking for the leaders of its partitions again", self.name)
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

            self._decoder = BatchDecoder(DecoderSettings.from_config(self._config))
        except Exception as error:  # noqa: BLE001  whatever importing a package raises
            with self._inbox_lock:
                self._closed = True
                arrived, self._inbox = self._inbox, []
            for info in arrived:
                self._fail(info, error)
            return False
        return True

    def _round(self) -> None:
        """Process one response, or wait if there is nothing to request."""
        # Cleared before the checks, so that partitions put into the inbox meanwhile wake this thread afterwards.
        self._wake.clear()
        self._decoder.trim()
        self._take_from_inbox()
        self._take_damages()
        if self._conversation is None or not self._conversation.in_flight:
            self._look_up()
            if self._stop_requested.is_set():
                return
            if not self._ask():
                if not self._ask_leaders():
                    self._await_room()
                return
        assert self._conversation is not None
        for partition, asked, fetched, is_first in self._conversation.receive(self._position_of):
            answer = PartitionAnswer(self._table[partition], asked, fetched, is_first)
            if asked.leader_epoch != answer.info.leader_epoch:
                continue  # requested before it returned from the finder with another epoch
            if self._verdict_on(answer.info, fetched.error) is Verdict.OUT_OF_RANGE and self._has(answer.info):
                self._positions.add_lost(answer.info)
            # A look-up needs a free connection.
            if answer.fetched.is_last and not (self._positions or self._conversation.muted):
                self._ask(answer)
            self._accept(answer)
        self._ask_leaders()
        self.requests += 1

    def _position_of(self, partition: TopicPartition) -> int | None:
        info = self._table.get(partition)
        return None if info is None else info.fetched

    def _await_room(self) -> None:
        """Wait until one of the partitions can be fetched, the inbox is not empty, or the thread is closed."""
        queues = by_queue(self._table.values())
        if all(queue.room.wait(self._wake.set, infos) for queue, infos in queues.items()):
            self._wake.wait()
            self.wakeups += 1
        for queue in queues:
            queue.room.end_wait(self._wake.set)

    def _take_from_inbox(self) -> None:
        """Take the partitions from the inbox, and drop those that were released."""
        with self._inbox_lock:
            arrived, self._inbox = [info for info in self._inbox if not info.released], []
            self._table.update((info.partition, info) for info in arrived)
            leaving, self._outbox = self._outbox, []
            for info in leaving:
                if self._has(info):
                    del self._table[info.partition]
        self._listen_to({*self._listening, *(info.queue for info in arrived)})  # before their room is checked
        self._positions.add(arrived)

    def _listen_to(self, queues: Collection[ChunkQueue]) -> None:
        """Listen for room in exactly these queues: each listener of a queue gets a share of its room.

        A fetcher whose partitions have moved to another broker would otherwise keep an unused share.
        """
        now = set(queues)
        for queue in self._listening - now:
            queue.room.remove(self._wake.set)
        for queue in now - self._listening:
            queue.room.add(self._wake.set)
        self._listening = now

    def _take_damages(self) -> None:
        """Fetch partitions again from where readers found damaged bytes."""
        for queue in self._listening:
            for damaged in queue.damaged():
                info = self._table.get(damaged.partition)
                damage = queue.take_damage(info) if info is not None and info is damaged else None
                if info is not None and damage is not None:
                    self._fetch_again(info, damage)

    def _ask(self, coming: PartitionAnswer | None = None) -> bool:
        """Send a request; False if there is nothing to request now.

        Args:
            coming: an answer that was received, but is not queued yet.
        """
        wanted = self._offsets_to_fetch(coming)
        if not wanted:
            return False
        config = self._config
        room = sum(queue.room.allowance(_bytes_for(queue, coming)) for queue in {info.queue for info in wanted})
        largest = max(config.fetch_message_max_bytes, *(info.fetch_bytes for info in wanted))
        self._connected()
        assert self._conversation is not None
        max_bytes, max_wait_ms = min(config.fetch_max_bytes, max(room, largest)), self._max_wait_ms()
        if self._conversation.limits_responses:
            named = fitting({info: info.expected_bytes(offset) for info, offset in wanted.items()}, max_bytes)
        else:
            named = turn({info: info.request_bytes for info in wanted}, max_bytes)
            for info in named:  # also those without data: the others come first in the next request
                self._table.move_to_end(info.partition)
        max_wait_ms = wait_ms(max_wait_ms, len(named), len(wanted))
        fetches = [info.fetch_from(wanted[info]) for info in named]
        rack = self._rack if self._rack and self._may_move(named) else ""
        self._conversation.send(fetches, max_wait_ms=max_wait_ms, max_bytes=max_bytes, rack=rack)
        return True

    def _may_move(self, infos: Iterable[PartitionInfo]) -> bool:
        """True if leaders may name followers for all of them; see :meth:`.ReadReplica.may_move`."""
        now = time.monotonic()
        return all(info.read_replica.may_move(now) for info in infos)

    def _offsets_to_fetch(self, coming: PartitionAnswer | None) -> dict[PartitionInfo, int]:
        """Partitions with room in their queue, and the offsets to fetch from; first those that got no data recently."""
        # A partition without an offset is looked up instead.
        wanted = {info: info.fetched for info in self._with_room(coming) if info.fetched is not None}
        if self._rack:
            now = time.monotonic()
            self._leaving = [info for info in self._table.values() if info.read_replica.is_over(now)]
            for info in self._leaving:
                wanted.pop(info, None)
        if coming is None or coming.info not in wanted:
            return wanted
        info, fetched = coming.info, coming.fetched
        if names_another(fetched.read_replica, self.broker.id):
            del wanted[info]
        if not (fetched.error or fetched.records):
            return wanted
        offset = wanted.pop(info)
        if not fetched.error:  # otherwise it is looked up, or returned to the finder
            foreseen = self._decoder.next_offset(offset, fetched.records, fetched.high_watermark)
            if offset < foreseen:  # otherwise _accept() decides
                wanted[info] = foreseen
        return wanted

    def _with_room(self, coming: PartitionAnswer | None) -> Iterable[PartitionInfo]:
        """Partitions with room in their queue, in the order of the table."""
        infos_of_queue = by_queue(self._table.values())
        self._listen_to(infos_of_queue)
        chunk_of = coming.info if coming is not None and coming.fetched.records else None
        with_room = [
            info
            for queue, infos in infos_of_queue.items()
            for info in queue.room.to_fetch(infos, coming=chunk_of, coming_bytes=_bytes_for(queue, coming))
        ]
        without_room = frozenset(self._table.values()).difference(with_room)
        if without_room != self._without_room:
            self._without_room, self._without_room_since = without_room, time.monotonic()
        return (
            with_room
            if len(infos_of_queue) < 2
            else [info for info in self._table.values() if info not in without_room]
        )

    def _max_wait_ms(self) -> int:
        """``fetch.wait.max.ms``, or less while a partition is excluded because its queue is full.

        A long poll for idle partitions would delay a busy one whose queue is emptied meanwhile. So the wait is at most
        as long as the queue has been full already: a fast reader waits milliseconds, a slow one costs few requests.
        """
        limit = self._config.fetch_wait_max_ms
        if not self._without_room:
            return limit
        full_ms = int((time.monotonic() - self._without_room_since) * 1000)
        return min(limit, max(1, full_ms))

    # -- one partition's answer ---------------------------------------------------------------------------------

    def _accept(self, answer: PartitionAnswer) -> None:
        """Find the batches of an answer and queue them."""
        info, asked, fetched, is_first = answer
        if not self._has(info) or info.fetched is None:
            return
        verdict = self._verdict_on(info, fetched.error)
        if verdict is Verdict.OUT_OF_RANGE:
            return  # looked up before the next request
        if verdict is not Verdict.SERVED:
            self._refused(info, fetched.error, READ)
            return
        info.allow()
        info.high_watermark = fetched.readable_end(self._config.isolation_level)
        if names_another(fetched.read_replica, self.broker.id):
            info.read_replica = info.read_replica.named(fetched.read_replica, time.monotonic(), self._max_age_s)
            _log.debug("%s: %s is fetched from broker %d", self.name, info.partition, fetched.read_replica)
            self._return(info)
            return
        if not fetched.records:
            info.epochs = info.epochs.after(asked.leader_epoch, None)
            info.density = 0.0  # whatever its high watermark: otherwise it could take the room of others for nothing
            return
        try:
            arguments = (*info.partition, info.fetched, fetched.records, fetched.aborted, fetched.high_watermark)
            scanned = self._decoder.scan(*arguments)
            has_records = scanned.has_records()
            if len(info.queue) >= _VERIFY_FROM_CHUNKS or not has_records:
                # A busy reader is what everything waits for, so this thread verifies in its place. It must be done here
                # for chunks that no reader sees. A fault after valid batches comes first in the next response.
                scanned = self._decoder.verify(scanned)._replace(fault=None)
                has_records = scanned.has_records()
        except Exception as error:  # noqa: BLE001 - one partition's bytes must not take the broker's others with them
            self._retry_or_fail(info, error)
            return
        if scanned.next_offset > info.fetched:
            size = len(fetched.records)
            info.density = size / (scanned.next_offset - info.fetched)
            behind = fetched.high_watermark - scanned.next_offset
            info.request_bytes = next_request_bytes(
                asked.max_bytes, info.fetch_bytes, size, scanned.plain_messages(), behind=behind
            )
            info.epochs = info.epochs.after(asked.leader_epoch, scanned.leader_epoch())
            nbytes, kept = (size, scanned) if has_records else (0, None)
            self._enqueue(info, Chunk(info, None, scanned.next_offset, nbytes, size, kept))
        else:
            self._request_more(info, asked.max_bytes, len(fetched.records), is_first=is_first)

    def _refused(self, info: PartitionInfo, code: int, operation: str) -> None:
        """Handle an error code of a partition: another broker may serve it, or this one later."""
        info.fenced = code == ErrorCode.FENCED_LEADER_EPOCH
        if self._verdict_on(info, code) is Verdict.REFUSED:
            security = BrokerSecurity.from_config(self._config)
            error = topic_refused(info.partition.topic, code, operation, self.broker, security)
            info.deny(error, self._config.refresh_leader_backoff_ms / 1000)
        else:
            _log.info(
                "%s: %s: the broker answered %s; looking for its leader again",
                self.name,
                info.partition,
                error_name(code),
            )
        self._return(info)

    def _enqueue(self, info: PartitionInfo, chunk: Chunk) -> None:
        if info.queue.put(chunk):
            info.fetched = chunk.next_offset
            self._table.move_to_end(info.partition)  # the others come first in the next request
            return
        damage = info.queue.take_damage(info)
        if damage is not None and chunk.first_offset < damage.offset:  # the damage is of a log that was replaced
            self._enqueue(info, chunk)
        elif damage is not None:
            self._fetch_again(info, damage)
        else:  # released by a rebalance meanwhile
            del self._table[info.partition]

    def _request_more(self, info: PartitionInfo, asked: int, received: int, *, is_first: bool) -> None:
        """Handle an answer without a complete batch."""
        assert info.fetched is not None
        most = self._config.fetch_max_bytes
        try:
            size = next_size(info.partition, info.fetched, received, asked, most, is_first=is_first)
        except RecordTooLarge as error:
            self._fail(info, error)
        except CorruptRecord as error:
            self._retry_or_fail(info, error)
        else:
            if size > asked:
                info.fetch_bytes = info.request_bytes = size
                values = self.name, size, info.partition
                _log.warning("%s: fetch size raised to %d bytes for %s, since a record is longer", *values)

    def _fetch_again(self, info: PartitionInfo, damage: Damage) -> None:
        """Go back to where a reader found damaged bytes; the chunks after that offset were dropped from the queue."""
        info.fetched = damage.offset
        self._positions.remove(info)
        self._retry_or_fail(info, damage.error)

    def _retry_or_fail(self, info: PartitionInfo, error: Exception) -> None:
        """Handle bytes that cannot be decoded at the offset to fetch next: fetch again, finally fail or skip them."""
        assert info.fetched is not None
        info.faults = info.faults.after(info.fetched, error)
        if info.faults.are_believed:
            ends_later = info.high_watermark is not None and info.high_watermark > info.fetched
            offset = resume_at(error, self._config.on_corrupt, info.high_watermark if ends_later else None)
            if offset is None:
                self._fail(info, error)
            else:
                values = self.name, info.fetched, offset - 1, info.partition, error
                _log.error("%s: offsets %d to %d of %s are skipped: %s", *values)
                self._enqueue(info, Chunk(info, None, offset, 0))
        elif info.faults.times:  # the end of a busy log needs no warning, and no search for the leader
            _log.warning("%s: %s; fetching it again", self.name, error)
            self._return(info)

    def _fail(self, info: PartitionInfo, error: Exception) -> None:
        """Let the stream raise the error; the position stays before the bytes that cannot be read."""
        _log.error("%s: %s; its stream raises this error", self.name, error)
        self._table.pop(info.partition, None)
        info.queue.faults.fail(info, error)

    def _look_up(self) -> None:
        """Ask where partitions continue whose position is not certain, and let them continue there, or return them."""
        for look in (self._positions.check_epochs, self._positions.reset):
            if self._stop_requested.is_set():
                return
            for info, offset, code in look(self._connected, self._has):
                if offset is None:
                    self._refused(info, code, DESCRIBE)
                elif info.reset_to(offset):
                    self._enqueue(info, Chunk(info, None, offset, 0))

    # -- the broker ---------------------------------------------------------------------------------------------

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            connection = BrokerConnection.from_config(self.broker, self._config)
            self._connection = connection
            if self._stop_requested.is_set():  # see close()
                raise BrokerUnavailable(f"{connection}: this fetcher is stopping")
            connection.connect()
            self._conversation = FetchConversation(
                connection,
                self._decoder.memory.take,
                min_bytes=self._config.fetch_min_bytes,
                isolation=self._config.isolation_level,
                keeps_session=True,
            )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._conversation = None
        self._positions.clear()

    def _lose_broker(self, error: Exception | None) -> None:
        """Return all partitions to the finder after the backoff, with jitter so that fetchers do not return at once."""
        self._disconnect()
        if self._stop_requested.is_set():
            return
        if error is not None:
            _log.warning("%s: %s; looking for the leaders of its partitions again", self.name, error)
            for info in self._table.values():
                info.report_wrong_settings(error)
        for info in self._table.values():
            self._fail_follower(info)
        spread = random.uniform(1 - _JITTER, 1 + _JITTER)
        self._stop_requested.wait(spread * self._config.refresh_leader_backoff_ms / 1000)
        with self._inbox_lock:
            everything = [*self._table.values(), *self._inbox]
            self._table.clear()
            self._inbox.clear()
        self._listen_to(())
        self._return_to_finder(everything)

    def _has(self, info: PartitionInfo) -> bool:
        """False for a partition that was released, or that a rebalance assigned again after it was requested."""
        return self._table.get(info.partition) is info

    def _follows(self, info: PartitionInfo) -> bool:
        """True if this broker is not the partition's leader, but the follower that the leader has named."""
        return info.read_replica.follower == self.broker.id

    def _verdict_on(self, info: PartitionInfo, code: int) -> Verdict:
        """What an error code of a partition means in an answer of this broker."""
        return verdict_on(code, of_follower=self._follows(info))

    def _fail_follower(self, info: PartitionInfo) -> None:
        """Let the leader send the records, if this is a follower: it could not, whatever the reason is."""
        if self._follows(info):
            info.read_replica = info.read_replica.failed(time.monotonic(), self._max_age_s)

    def _ask_leaders(self) -> bool:
        """Return the partitions whose leaders have to be asked again if this is the replica to fetch from."""
        leaving, self._leaving = [info for info in self._leaving if self._has(info)], []
        for info in leaving:
            info.read_replica = info.read_replica.at_leader()
            self._return(info)
        return bool(leaving)

    def _return(self, info: PartitionInfo) -> None:
        self._fail_follower(info)
        self._table.pop(info.partition, None)
        self._return_to_finder([info])


def _bytes_for(queue: ChunkQueue, coming: PartitionAnswer | None) -> int:
    """Bytes of a received answer, not queued yet, that belong to this queue."""
    return len(coming.fetched.records) if coming is not None and coming.info.queue is queue else 0
