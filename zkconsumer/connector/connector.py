"""ConsumerConnector: the public face of the consumer; joins a group member to local fetchers and streams."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Self, overload

from zkconsumer.assembly.memberassembly import assemble_member
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.consumermetrics import ConsumerMetrics, Exporter, Sample
from zkconsumer.connector.decoder import DecodedMessage, Decoder, decoded_message
from zkconsumer.connector.idlewatch import IdleWatch
from zkconsumer.connector.rules.plainresult import refuse_awaitable, refuse_coroutine_functions
from zkconsumer.connector.stream import M, MessageStream
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import ConfigError, ConsumerClosed, StreamIdle, UsageError
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.decodeahead import DecodePool, threads_for
from zkconsumer.fetch.localfetchcontrol import FetchPosition, LocalFetchControl
from zkconsumer.fetch.rules.idlestreams import seconds_between_looks
from zkconsumer.group.consumerid import new_consumer_id
from zkconsumer.group.memberdescription import MemberDescription
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.subscription import Subscription, TopicFilter
from zkconsumer.model import Broker, ConsumerThreadId, Message, TopicPartition
from zkconsumer.offsets.rules.lag import lag
from zkconsumer.process.cpus import available_cpus
from zkconsumer.process.forks import Owner
from zkconsumer.process.wakeup import WakeUp
from zkconsumer.wire.connectionpool import ConnectionPool

_log = logging.getLogger(__name__)

_GROUP: Final = ("group",)
"""Subject of a missing permission on the group, which a stream raises once; no topic has this name."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Positions of one owned partition; each is the *next* offset, None = unknown.

    Attributes:
        topic: topic name.
        partition: partition number.
        thread: the consumer thread that reads it.
        fetched: next offset to fetch.
        consumed: next offset to hand out.
        committed: offset that this consumer last read from or wrote to the offset store.
        high_watermark: log end offset as of the last fetch.
        lag: records between ``consumed`` and ``high_watermark``.
    """

    topic: str
    partition: int
    thread: ConsumerThreadId
    fetched: int | None
    consumed: int | None
    committed: int | None
    high_watermark: int | None
    lag: int | None


class ConsumerConnector:
    """One consumer of a group; a context manager that shuts down on exit.

    It belongs to the process that made it. In a forked child its methods raise UsageError, except :meth:`shutdown`,
    which does nothing there.

    Args:
        config: the consumer's properties.
        before_commit: called right before offsets are committed, on the rebalance thread or on one that stands in for
            it; when it returns, everything that the application did with records it has released must be durable. An
            exception stops the commit. It may wait for a thread that commits; it is then called again for that commit.

    Raises:
        ZooKeeperUnavailable: no ZooKeeper server answered in time.
        ChrootMissing: the chroot of ``zookeeper.connect`` does not exist.
        BrokerUnavailable: with ``group.protocol`` ``kafka`` or ``consumer``, no broker of ``bootstrap.servers``
            answered in time.
        ConfigError: with ``group.protocol=consumer``, the brokers do not have that protocol; or ``group.share`` is
            false.
        UsageError: ``metrics.port`` is in use.
    """

    def __init__(self, config: ConsumerConfig, *, before_commit: Callable[[], None] | None = None) -> None:
        if not config.group_share:
            raise ConfigError("group.share=false is for Spark queries only")
        self._owner = Owner()
        self._config = config
        self._consumer_id = new_consumer_id(config)
        self._queues: dict[str | None, list[ChunkQueue]] = {}
        self._creating = threading.Lock()
        self._pool: DecodePool | None = None
        self._ended = False
        connections = ConnectionPool()
        self._fetch = LocalFetchControl(
            self._consumer_id,
            config,
            self._live_brokers,
            self._queue_for,
            connections,
            self._owned,
        )
        self._member = assemble_member(
            config,
            self._consumer_id,
            self._fetch,
            pool=connections,
            on_failure=self._fail,
            before_commit=None if before_commit is None else lambda: refuse_awaitable(before_commit()),
            on_refusal=self._group_refused,
        )
        self._member.open()
        self._metrics = ConsumerMetrics(
            config, self._member.stats, self._owned_states, self._fetch.fetch_requests, self._queues
        )
        self._exporter: Exporter | None = None
        if config.metrics_port >= 0:
            try:
                self._exporter = Exporter(self._metrics, config.metrics_host, config.metrics_port)
            except BaseException:
                self._member.leave()
                raise

    @property
    def consumer_id(self) -> str:
        """Id of this consumer in its group."""
        return self._consumer_id

    @overload
    def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream[Message]]]: ...

    @overload
    def create_message_streams(
        self, topics: Mapping[str, int], key_decoder: Decoder | None, value_decoder: Decoder | None = ...
    ) -> dict[str, list[MessageStream[DecodedMessage]]]: ...

    @overload
    def create_message_streams(
        self, topics: Mapping[str, int], *, value_decoder: Decoder | None
    ) -> dict[str, list[MessageStream[DecodedMessage]]]: ...

    def create_message_streams(
        self, topics: Mapping[str, int], key_decoder: Decoder | None = None, value_decoder: Decoder | None = None
    ) -> dict[str, list[MessageStream[Message]]] | dict[str, list[MessageStream[DecodedMessage]]]:
        """Join the group with a static subscription.

        Args:
            topics: topic to number of streams; the topics need not exist yet.
            key_decoder: converts a key's bytes to an object, see :class:`~zkconsumer.DecodedMessage`.
            value_decoder: the same for the values. Batches are not decoded.

        Returns:
            For each topic its streams; each is to be read by one thread. With a decoder they carry
            :class:`~zkconsumer.DecodedMessage`, otherwise :class:`~zkconsumer.Message`.

        Raises:
            ConfigError: a topic name or number of streams is illegal.
            RebalanceFailed: this consumer could not get its share; it has left the group again.
            GroupAuthorizationFailed, ZooKeeperRefused: the same, since a permission is missing.
            AuthenticationFailed: the same, since brokers refuse the login.
            UsageError: streams have been created already.
        """
        subscription = Subscription.static(topics)
        if not topics:
            _log.warning(
                "group %s: create_message_streams was given no topic; this consumer joins the group and reads nothing",
                self._config.group_id,
            )
        kind = _kind_of_messages(key_decoder, value_decoder)
        with self._creating_streams():
            self._start_pool(sum(topics.values()))
            streams = {topic: self._make_streams(topic, count, kind) for topic, count in topics.items()}
            self._join(subscription)
        return streams

    @overload
    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, streams: int = ...
    ) -> list[MessageStream[Message]]: ...

    @overload
    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        streams: int = ...,
        *,
        key_decoder: Decoder | None,
        value_decoder: Decoder | None = ...,
    ) -> list[MessageStream[DecodedMessage]]: ...

    @overload
    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, streams: int = ..., *, value_decoder: Decoder | None
    ) -> list[MessageStream[DecodedMessage]]: ...

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        streams: int = 1,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> list[MessageStream[Message]] | list[MessageStream[DecodedMessage]]:
        """Join the group with a whitelist or blacklist; each stream carries partitions of all matching topics.

        Decoders and errors are those of :meth:`create_message_streams`.
        """
        subscription = Subscription.by_filter(topic_filter, streams)
        kind = _kind_of_messages(key_decoder, value_decoder)
        with self._creating_streams():
            self._start_pool(streams)
            made = self._make_streams(None, streams, kind)
            self._join(subscription)
        return made

    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> MessageStream[Message]:
        """Read partitions without joining the group: other members are not affected, and may read them as well.

        Args:
            partitions: where to start each; None starts at the group's committed offset.

        Raises:
            UsageError: streams have been created already.
            BrokerUnavailable: no broker of ``bootstrap.servers`` has described the topics, so it is not known whether a
                stored offset is of the present topic or of an earlier one.
            GroupAuthorizationFailed, TopicAuthorizationFailed: Kafka stores the offsets, and a permission is missing.
        """
        with self._creating_streams():
            self._start_pool(1)
            (stream,) = self._make_streams(None, 1, Message)
            self._member.assign(partitions)
        return stream

    def subscribe(self, topics: Collection[str] | TopicFilter) -> None:
        """Consume other topics from now on; topics that are kept are not disturbed.

        For streams of :meth:`create_message_streams_by_filter`: they carry the records of the new topics, too. Returns
        before the change takes effect, and starts a rebalance, which is repeated until it succeeds. Until then records
        of removed topics may arrive; their offsets are committed as in every rebalance. Any thread and a rebalance
        listener may call it.

        Args:
            topics: names, which need not exist yet, or a filter. They replace the previous topics.

        Raises:
            ConfigError: a topic name is illegal.
            UsageError: no topic is named; or there are no streams yet, or streams of one topic each.
            ConsumerClosed: the connector was shut down.
        """
        self._owner.require(self._name())
        if None not in self._queues:
            raise UsageError(
                "subscribe needs streams that carry several topics; create them with create_message_streams_by_filter, "
                "for given topics with a filter such as Whitelist('clicks|views')"
            )
        self._member.subscribe(_subscription_to(topics, len(self._queues[None])))

    def unsubscribe(self) -> None:
        """Leave the group; the streams end. The connector cannot be used for another subscription."""
        self.shutdown()

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None, *, force: bool = False) -> None:
        """Commit everything that was handed out, or the given offsets; not those of a topic that was deleted.

        With ``commit.on=done``, everything that is done instead of what was handed out, in each partition up to the
        first record that is not.

        Args:
            offsets: next offset to consume by partition. They do not move the streams' positions.
            force: allow partitions that this consumer does not own.

        Raises:
            NotOwner: ``offsets`` names a partition that is not owned, without ``force``. Without ``offsets``: a
                partition was taken away of which a stream's user holds uncommitted records; everything else is
                committed.
            RetriableError, MembershipLost: not committed.
            GroupAuthorizationFailed: not committed to Kafka, since a permission on the group is missing.
            ConsumerClosed: the connector was shut down.
        """
        self._owner.require(self._name())
        self._member.commit(offsets, force=force)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching and handing out these partitions until :meth:`resume`; the others continue.

        Positions stay, and commits cover these partitions as before. A partition that this consumer loses in a
        rebalance is not paused any more, even if it is assigned again later; one that it keeps remains paused. A
        rebalance listener may pause partitions in ``before_starting_fetchers``: then none of their records is fetched.

        Raises:
            NotOwner: this consumer does not own one of them; then none is paused.
        """
        self._owner.require(self._name())
        self._fetch.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue paused partitions, each with the record after the last one; others are ignored."""
        self._owner.require(self._name())
        self._fetch.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        self._owner.require(self._name())
        return self._fetch.paused()

    def set_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener that rebalances call; to be called before streams are created."""
        refuse_coroutine_functions(listener.before_releasing_partitions, listener.before_starting_fetchers)
        self._member.set_listener(listener)

    @property
    def release_s(self) -> float:
        """How long a rebalance listener may wait for work in progress before partitions are released, in s.

        The other members wait meanwhile; after a longer wait members of the JVM may give up, or brokers may remove this
        consumer.
        """
        return self._member.release_s

    def may_hand_out(self, partition: TopicPartition) -> bool:
        """False if another member may own a partition now: no record of it that waits for a thread is to be processed.

        Streams ask this before they hand out a record. A program whose threads take records from a stream and process
        them later asks before it begins with one; it is fast.
        """
        return self._member.may_deliver() and partition in self._member.ownership()

    def describe(self) -> MemberDescription:
        """The present state of this consumer: state, generation, last rebalance, partitions, session and lease.

        For operators and tests; any thread may call it, and it sends no request.
        """
        self._owner.require(self._name())
        return replace(self._member.describe(), unfinished=self._fetch.unfinished())

    def partition_states(self) -> list[PartitionState]:
        """Positions of every owned partition, sorted."""
        self._owner.require(self._name())
        consumed = self._fetch.positions(handed_out=True)
        states = []
        for state in self._owned_states():
            position, end = consumed.get(state.partition), state.high_watermark
            states.append(
                PartitionState(
                    *state.partition,
                    thread=state.thread,
                    fetched=state.fetched,
                    consumed=position,
                    committed=self._member.last_committed(state.partition),
                    high_watermark=end,
                    lag=lag(position, end),
                )
            )
        return states

    def metrics(self) -> list[Sample]:
        """Present values of the metrics; the page "Metrics" of the documentation lists their names and meanings."""
        self._owner.require(self._name())
        return self._metrics.samples()

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where metrics are served, None without ``metrics.port``."""
        return None if self._exporter is None else self._exporter.address

    def uncommitted(self) -> dict[TopicPartition, tuple[int | None, int]]:
        """Positions that the last commit, at shutdown, did not store; empty before, or without ``auto.commit.enable``.

        Returns:
            For each partition the stored offset, None if there is none, and the position. The records between them were
            consumed here; the next owner reads them again.
        """
        return dict(self._member.uncommitted)

    def wakeup(self) -> None:
        """End the wait of every stream, once: ``next_message`` and ``next_batch`` return None, iterators raise WokenUp.

        Any thread may call it, and a signal handler. A stream that is not waiting is woken by its next request, after
        the records that were prepared for its user (2,048 at most); several calls before that count once. No record is
        skipped, and the stream can be used again.
        """
        self._owner.require(self._name())
        for queue in self._all_queues():
            queue.wake()

    def end_streams(self) -> None:
        """Stop handing out records: every stream ends at its next request. The membership and its commits continue."""
        self._owner.require(self._name())
        self._ended = True
        for queue in self._all_queues():
            queue.close()

    def shutdown(self) -> None:
        """End the streams, commit, and leave the group. Idempotent, for any thread.

        Called by a rebalance listener or by ``before_commit`` it returns at once, and takes place when they have
        returned. Otherwise it returns when the group is left; it waits for them at most a session timeout. In a forked
        child nothing is done: session and connections are the parent's, and so are the threads.
        """
        if self._owner.spares(self._name()):
            return
        self.end_streams()
        pool = self._pool  # another thread may fail to create streams
        if pool is not None:
            pool.close()
        self._member.leave()
        if self._exporter is not None:
            self._exporter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @contextmanager
    def _creating_streams(self) -> Iterator[None]:
        """One thread at a time: the streams of another one would read queues that no partition fills."""
        self._owner.require(self._name())
        if not self._creating.acquire(blocking=False):
            raise UsageError("another thread is creating streams of this connector; streams can be created only once")
        try:
            self._member.require_latent()
            try:
                yield
            except BaseException:  # another thread may have called shutdown() before the pool was there
                pool, self._pool = self._pool, None
                if pool is not None:
                    pool.close()
                raise
        finally:
            self._creating.release()

    def _make_streams(self, topic: str | None, count: int, kind: type[M]) -> list[MessageStream[M]]:
        self._queues[topic] = [
            ChunkQueue(
                max_bytes=self._config.queued_max_bytes,
                max_chunks=self._config.queued_max_message_chunks,
                may_deliver=self._member.may_deliver,
                max_unfinished=self._config.max_unfinished_records if self._config.commit_on == "done" else None,
                changed=self._new_wakeup(),
            )
            for _ in range(count)
        ]
        if self._ended:  # another thread, or a signal handler, has ended the streams before they were there
            self.end_streams()
        return [
            self._new_stream(
                queue, str(ConsumerThreadId(self._consumer_id, number)), kind, partial(self._commit_queue, queue)
            )
            for number, queue in enumerate(self._queues[topic])
        ]

    def _commit_queue(self, queue: ChunkQueue) -> None:
        self._member.commit(only=lambda: self._fetch.partitions_of(queue))

    def _new_wakeup(self) -> WakeUp:
        return WakeUp()

    def _new_stream(self, queue: ChunkQueue, name: str, kind: type[M], commit: Callable[[], None]) -> MessageStream[M]:
        reader = ChunkReader(queue, DecoderSettings.from_config(self._config), pool=self._pool)
        timeout_ms = self._config.consumer_timeout_ms
        return MessageStream(queue, name=name, kind=kind, timeout_ms=timeout_ms, reader=reader, commit=commit)

    def _decoding_threads(self, streams: int) -> int:
        return threads_for(self._config.decode_threads, available_cpus(), streams)

    def _start_pool(self, streams: int) -> None:
        threads = self._decoding_threads(streams)
        if self._pool is None and threads:
            self._pool = DecodePool(threads, DecoderSettings.from_config(self._config), name=self._consumer_id)

    def _name(self) -> str:
        return f"consumer {self._consumer_id}"

    def _join(self, subscription: Subscription) -> None:
        self._member.join(subscription)
        config, leaves = self._config, self._config.max_stream_idle_ms > 0
        limit_ms = config.max_stream_idle_ms if leaves else config.max_poll_interval_ms
        give_up = self._give_up if leaves else None
        watch = IdleWatch(config.group_id, self._consumer_id, limit_ms, self._named_queues(), give_up)

        def look() -> None:
            if not self._ended:  # no thread reads what is left in streams that were ended
                watch.look()

        try:
            self._member.repeat(seconds_between_looks(limit_ms), look)
        except ConsumerClosed:  # another thread has shut it down meanwhile, which ends the streams
            pass
        except BaseException:  # an interrupt: the caller gets no streams, so no thread would read the partitions
            self._member.leave()
            raise

    def _give_up(self, cause: StreamIdle) -> None:
        """Leave the group since a stream is not read; on the rebalance thread, which commits and leaves after this."""
        for queue in self._all_queues():
            queue.close(cause)
        self._member.leave()

    def _named_queues(self) -> dict[str, ChunkQueue]:
        return {
            _stream_name(self._consumer_id, topic, number): queue
            for topic, queues in self._queues.items()
            for number, queue in enumerate(queues)
        }

    def _queue_for(self, topic: str, thread: ConsumerThreadId) -> ChunkQueue:
        """The queue that a partition fills: its topic's for that thread, or the filter's for all topics."""
        queues = self._queues.get(topic)
        return (self._queues[None] if queues is None else queues)[thread.number]

    def _all_queues(self) -> list[ChunkQueue]:
        return [queue for queues in list(self._queues.values()) for queue in queues]  # another thread may add some

    def _owned_states(self) -> Iterator[FetchPosition]:
        """What is fetched, and in a listener what was released and is still owned."""
        owned = self._member.ownership()
        return (state for state in self._fetch.states() if not state.released or state.partition in owned)

    def _owned(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        return self._member.ownership()

    def _live_brokers(self) -> Sequence[Broker]:
        return self._member.live_brokers()

    def _group_refused(self, error: Exception | None) -> None:
        """Every stream raises it once, since nothing is read or committed; None: the refusal has ended."""
        for queue in self._all_queues():
            if error is None:
                queue.faults.allow(_GROUP, None)
            else:
                queue.faults.deny(_GROUP, None, error)

    def _fail(self, error: BaseException) -> None:
        """Every stream raises it from now on; the member has left its group, or leaves it after this."""
        for queue in self._all_queues():
            queue.close(error)


def _stream_name(consumer_id: str, topic: str | None, number: int) -> str:
    thread = str(ConsumerThreadId(consumer_id, number))
    return thread if topic is None else f"{thread} of {topic}"


def _subscription_to(topics: Collection[str] | TopicFilter, streams: int) -> Subscription:
    if isinstance(topics, TopicFilter):
        return Subscription.by_filter(topics, streams)
    if isinstance(topics, str) or not topics:
        raise UsageError(f"subscribe needs a collection of at least one topic, or a filter, not {topics!r}")
    return Subscription.static(dict.fromkeys(topics, streams))


def _kind_of_messages(key_decoder: Decoder | None, value_decoder: Decoder | None) -> type[Message]:
    if key_decoder is None and value_decoder is None:
        return Message
    return decoded_message(key_decoder, value_decoder)
