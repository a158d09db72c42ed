"""FetchConversation: the fetch requests on one connection, whose responses are used while they arrive.

While this process decodes one partition, the broker sends the next. To avoid a wait at the end of a response, too, the
caller sends the next request when the last partition was received but is not decoded. For that partition it requests
the *expected* next offset, the one after the last whole batch, which it reads from the batches' headers. Decoding may
find otherwise (a corrupt batch), and a rebalance may come in between. So an answer is used only if the partition's
position still is the requested offset; other answers are dropped, and the next request uses the actual position.

The consumer's fetchers and Spark's range fetchers use it. They differ in what they request and when they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from zkconsumer.model import TopicPartition
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fetchmessages import FetchedPartition, fetch_version, limits_responses, open_response, send_fetch
from zkconsumer.wire.fetchsession import FIRST_VERSION, SESSION_ERRORS, FetchSession, PartitionFetch, without_session
from zkconsumer.wire.response import Memory


class FetchAnswer(NamedTuple):
    """The answer for one partition.

    Attributes:
        partition: which one.
        asked: the request for it.
        fetched: its part of the response.
        is_first: True for the first partition in the response that has any bytes: its first batch comes whole, or as
            much of it as was requested (KIP-74).
    """

    partition: TopicPartition
    asked: PartitionFetch
    fetched: FetchedPartition
    is_first: bool


class FetchConversation:
    """Sends fetch requests, at most one in flight. One thread uses it, as long as its connection lasts.

    Args:
        connection: connection to the broker, connected.
        memory: provides the memory that receives records.
        min_bytes: the broker waits for this many bytes, at most as long as each request allows.
        isolation: a value of ``isolation.level``.
        keeps_session: use a fetch session (KIP-227) if the broker supports it; False if there are only a few requests.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        memory: Memory,
        *,
        min_bytes: int,
        isolation: str,
        keeps_session: bool,
    ) -> None:
        self._connection = connection
        self._memory = memory
        self._min_bytes = min_bytes
        self._isolation = isolation
        self.limits_responses = limits_responses(connection)
        """False if the broker ignores ``max_bytes``, see :mod:`zkconsumer.fetch.requestedpartitions`."""
        sessions = keeps_session and fetch_version(connection) >= FIRST_VERSION
        self._session = FetchSession() if sessions else None
        self._correlation_id: int | None = None
        self._asked: dict[tuple[str, int], PartitionFetch] = {}  # replaced, never changed

    @property
    def in_flight(self) -> bool:
        """True while a response is awaited and none of it has arrived: no other request may use the connection."""
        return self._correlation_id is not None

    @property
    def muted(self) -> bool:
        """True while a quota mutes the connection: what was received should be handed over before the next request."""
        return self._connection.muted

    def send(self, wanted: Iterable[PartitionFetch], *, max_wait_ms: int, max_bytes: int, rack: str = "") -> None:
        """Request partitions from their offsets on, in order of priority; see :func:`send_fetch` for the arguments.

        Raises:
            BrokerUnavailable: the connection broke.
        """
        fetches = list(wanted)
        self._asked = {fetch[:2]: fetch for fetch in fetches}  # plain tuples are created in a tenth of the time
        self._correlation_id = send_fetch(
            self._connection,
            without_session(fetches) if self._session is None else self._session.next_step(fetches),
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=max_bytes,
            isolation=self._isolation,
            rack=rack,
        )

    def receive(self, position_of: Callable[[TopicPartition], int | None]) -> Iterator[FetchAnswer]:
        """Wait for the response, partition by partition.

        Partitions whose position is not the requested offset any more are skipped. Once the last one was returned, the
        next request may be sent. The response must be iterated to its end.

        Args:
            position_of: returns the position of a partition; None if the partition is not wanted any more.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the response is malformed or has a top-level error.
        """
        assert self._correlation_id is not None
        response = open_response(self._connection, self._correlation_id, self._memory, isolation=self._isolation)
        self._correlation_id, asked = None, self._asked
        if self._session is not None and response.error in SESSION_ERRORS:
            self._session.refused(response.error)
        else:
            response.require_success(self._connection)
            if self._session is not None:
                self._session.answered(response.session_id)
        is_first = True
        for fetched in response.partitions:
            partition = TopicPartition(fetched.topic, fetched.partition)
            fetch = asked.get(partition)
            if fetch is not None and position_of(partition) == fetch.offset:
                yield FetchAnswer(partition, fetch, fetched, is_first and len(fetched.records) > 0)
            is_first = is_first and not fetched.records
