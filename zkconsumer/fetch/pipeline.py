"""FetchPipeline: the fetch requests on one connection, whose answers are used while they arrive.

While this process decodes one partition, the broker sends the next, and so that it need not wait at the end either, the
next request leaves when the last partition was received but is not decoded. For that one it asks for what *should*
follow: the offset behind the last whole batch, which costs a look at the batches' headers. Decoding may find otherwise
(a batch that is corrupt), and a rebalance may come in between. So an answer counts only where the partition still is
where it was asked for; the others are dropped, and the next request asks from where the partition really is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zkconsumer.config import ConsumerConfig
from zkconsumer.fetch.partition_info import PartitionInfo
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.fetch_protocol import (
    FetchedPartition,
    fetch_version,
    limits_responses,
    open_response,
    send_fetch,
)
from zkconsumer.kafka.fetch_session import (
    FIRST_VERSION,
    SESSION_ERRORS,
    FetchSession,
    PartitionFetch,
    without_session,
)
from zkconsumer.kafka.response import Memory
from zkconsumer.model import TopicPartition


class Answer(NamedTuple):
    """What came of one partition.

    ``is_first`` is True for the first partition in the response that has any bytes: its first batch comes whole, or as
    much of it as was asked for (KIP-74).
    """

    info: PartitionInfo
    fetched: FetchedPartition
    is_first: bool


class FetchPipeline:
    """At most one request in flight. One thread uses a pipeline, for as long as its connection lasts.

    Args:
        connection: to the broker; connected.
        config: limits of requests.
        memory: where records are received into.
    """

    def __init__(self, connection: BrokerConnection, config: ConsumerConfig, memory: Memory) -> None:
        self._memory = memory
        self._connection = connection
        self._config = config
        self.limits_responses = limits_responses(connection)
        """False if the broker ignores ``max_bytes``, see :mod:`zkconsumer.fetch.turns`."""
        self._session = FetchSession() if fetch_version(connection) >= FIRST_VERSION else None
        self._correlation_id: int | None = None
        self._asked: dict[PartitionInfo, PartitionFetch] = {}  # replaced, never changed
        self._infos: dict[TopicPartition, PartitionInfo] = {}  # of these and of earlier ones

    @property
    def in_flight(self) -> bool:
        """True while an answer is outstanding, of which nothing has come: nothing may be asked on the connection."""
        return self._correlation_id is not None

    def send(self, wanted: Mapping[PartitionInfo, int], *, max_wait_ms: int, max_bytes: int) -> None:
        """Ask for partitions from offsets on, those first that are to come first.

        Raises:
            BrokerUnavailable: the connection broke.
        """
        asked: dict[PartitionInfo, PartitionFetch] = {}
        for info, offset in wanted.items():
            fetch = self._asked.get(info)
            # Most of a thousand partitions are where they were: nothing is made for these.
            if fetch is None or fetch.offset != offset or fetch.max_bytes != info.fetch_bytes:
                fetch = PartitionFetch(*info.partition, offset, info.fetch_bytes)
                self._infos[info.partition] = info
            asked[info] = fetch
        self._asked, fetches = asked, list(asked.values())
        self._correlation_id = send_fetch(
            self._connection,
            without_session(fetches) if self._session is None else self._session.next_step(fetches),
            max_wait_ms=max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation=self._config.isolation_level,
        )

    def receive(self) -> Iterator[Answer]:
        """Wait for the answer, partition by partition.

        Partitions that are not where they were asked for any more are left out. From the last one on, while it is in
        the caller's hands, the next request may be sent. The answer must be iterated to its end.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the response is malformed or reports an error as a whole.
        """
        assert self._correlation_id is not None
        response = open_response(
            self._connection, self._correlation_id, self._memory, isolation=self._config.isolation_level
        )
        self._correlation_id, asked = None, self._asked
        if self._session is not None and response.error in SESSION_ERRORS:
            self._session.refused(response.error)
        else:
            response.require_success(self._connection)
            if self._session is not None:
                self._session.answered(response.session_id)
        is_first = True
        for part in response.partitions:
            info = self._infos.get(TopicPartition(part.topic, part.partition))
            if info is not None and (fetch := asked.get(info)) is not None and info.fetched == fetch.offset:
                yield Answer(info, part, is_first and len(part.records) > 0)
            is_first = is_first and not part.records
