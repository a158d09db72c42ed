"""A client of a broker with bad answers: documented errors, no leaks, and success once the answers are good."""

import threading
import tracemalloc

import pytest

from tests.fixtures import scriptedbroker as scripted
from tests.fixtures.chunks import make_info, make_queue
from tests.fixtures.scriptedbroker import (
    API_VERSIONS,
    AUTHENTICATE,
    BATCH,
    FETCH,
    FIND_COORDINATOR,
    HANDSHAKE,
    LIST_OFFSETS,
    METADATA,
    OFFSET,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TOPIC,
    response,
    running_scripted_broker,
)
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, CoordinatorMoved, ProtocolError, TopicUnreadable
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.fetcher import FetcherThread
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.wire.brokerclient import LATEST, BrokerClient
from zkconsumer.wire.brokersecurity import PLAINTEXT, BrokerSecurity
from zkconsumer.wire.fetchmessages import receive_fetch, send_fetch
from zkconsumer.wire.fetchsession import PartitionFetch, without_session

PARTITION = TopicPartition(TOPIC, 0)
LOGIN = BrokerSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password="hush")
SHORT_MS, LONG_MS = 100, 30_000
MEMORY = 8 << 20
UNKNOWN_CODE = 999


def fetch(client, broker):
    def ask(connection):
        wanted = without_session([PartitionFetch(*PARTITION, OFFSET, 1 << 20)])
        number = send_fetch(connection, wanted, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
        return {
            p.partition: p.error or bytes(p.records)
            for p in receive_fetch(connection, number, isolation="read_uncommitted")
        }

    return client.ask(broker.broker, ask)


def metadata(client, broker):
    return client.metadata([TOPIC])


def list_offsets(client, broker):
    return client.list_offsets({PARTITION: LATEST})


def fetch_offsets(client, broker):
    return OffsetCoordinator(client, "g").fetch([PARTITION])


def commit_offsets(client, broker):
    return OffsetCoordinator(client, "g").commit({PARTITION: StoredOffset(OFFSET)})


CALLS = {
    API_VERSIONS: metadata,
    METADATA: metadata,
    LIST_OFFSETS: list_offsets,
    FETCH: fetch,
    FIND_COORDINATOR: fetch_offsets,
    OFFSET_FETCH: fetch_offsets,
    OFFSET_COMMIT: commit_offsets,
    HANDSHAKE: metadata,
    AUTHENTICATE: metadata,
}
NAMES = {
    API_VERSIONS: "ApiVersions",
    METADATA: "Metadata",
    LIST_OFFSETS: "ListOffsets",
    FETCH: "Fetch",
    FIND_COORDINATOR: "FindCoordinator",
    OFFSET_FETCH: "OffsetFetch",
    OFFSET_COMMIT: "OffsetCommit",
    HANDSHAKE: "SaslHandshake",
    AUTHENTICATE: "SaslAuthenticate",
}
BAD_ANSWERS = [
    scripted.cut_off,
    scripted.ends_early,
    scripted.longer_than_the_limit,
    scripted.longest,
    scripted.as_long_as_the_limit,
    scripted.negative_length,
    scripted.late,
    scripted.wrong_number,
    scripted.hang_up,
]
BAD_CONTENT = {
    "a negative count": {"count": -5},
    "the largest count": {"count": 2**31 - 1},
    "a string beyond the end": {"length": 3000},
    "an unknown error code": {"code": UNKNOWN_CODE},
}
MEANINGLESS = {
    (API_VERSIONS, "a string beyond the end"),
    (FIND_COORDINATOR, "a negative count"),
    (FIND_COORDINATOR, "the largest count"),
}
"""Responses without an array, or without a string."""
ERRORS = (BrokerUnavailable, ProtocolError, AuthenticationFailed, CoordinatorMoved)


def each_content_of(*apis):
    """Parametrise a test with the bad contents that responses of these APIs can have."""
    cases = [(api, content) for api in apis for content in BAD_CONTENT if (api, content) not in MEANINGLESS]
    return pytest.mark.parametrize(("api", "content"), cases, ids=lambda value: NAMES.get(value, value))


each_api = pytest.mark.parametrize("api", CALLS, ids=NAMES.get)


@pytest.fixture
def broker():
    """A broker; at the end of each test no connection to it and no thread of the client may remain."""
    before = set(threading.enumerate())
    with running_scripted_broker() as running:
        yield running
        eventually(lambda: not running.connections)
    eventually(lambda: not {t for t in threading.enumerate() if t not in before and t.is_alive()})


@pytest.fixture
def client_of():
    """A client of the broker, which is closed at the end of the test and must use little memory until then."""
    clients = []

    def make(broker, api, timeout_ms=LONG_MS):
        client = BrokerClient(
            lambda: [broker.broker],
            client_id="c",
            timeout_ms=timeout_ms,
            security=LOGIN if api in (HANDSHAKE, AUTHENTICATE) else PLAINTEXT,
        )
        clients.append(client)
        return client

    tracemalloc.start()
    try:
        yield make
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
        for client in clients:
            client.close()


def timeout_of(answer):
    return SHORT_MS if answer is scripted.late else LONG_MS


def is_good(result):
    """True for the client's results of the broker's usual answers."""
    if getattr(result, "failed_topics", None):
        return False
    values = (getattr(result, name, result) for name in ("leaders", "found", "accepted"))
    return any(PARTITION in value for value in values if isinstance(value, dict | set)) or result == {0: BATCH}


def outcome(call, client, broker):
    try:
        return call(client, broker)
    except ERRORS as error:
        return error


@each_api
@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=lambda answer: answer.__name__)
def test_a_bad_answer_is_an_error_and_a_later_one_succeeds(broker, client_of, api, answer):
    client, call = client_of(broker, api, timeout_of(answer)), CALLS[api]
    broker.answers[api] = answer

    def is_answered_badly():
        assert not is_good(outcome(call, client, broker))
        return broker.bad

    eventually(is_answered_badly)  # with a short limit a busy machine may end a request before this one
    broker.answers.clear()
    eventually(lambda: is_good(outcome(call, client, broker)))  # with a short limit a busy machine may miss it


@each_content_of(*CALLS)
def test_bad_content_is_an_error_and_a_later_answer_succeeds(broker, client_of, api, content):
    client, call = client_of(broker, api), CALLS[api]
    broker.bodies[api] = response(api, broker.port, **BAD_CONTENT[content])
    result = outcome(call, client, broker)
    assert not is_good(result)
    assert broker.bad
    broker.bodies.clear()
    assert is_good(call(client, broker))


@pytest.fixture
def fetching():
    """Fetch the partition from the broker until the test ends."""
    fetchers = []

    def start(broker, start, timeout_ms=LONG_MS):
        info = make_info(make_queue(), start=start)
        config = ConsumerConfig(
            group_id="g",
            zookeeper_connect="unused:1",
            auto_offset_reset="smallest",
            socket_timeout_ms=timeout_ms,
            refresh_leader_backoff_ms=1,
        )
        fetcher = FetcherThread("fetcher", broker.broker, config, lambda infos: fetcher.add(list(infos)))
        fetcher.add([info])
        fetcher.start()
        fetchers.append(fetcher)
        return info

    yield start
    for fetcher in fetchers:
        fetcher.close()
        fetcher.join()


each_api_of_a_fetcher = pytest.mark.parametrize("api", [API_VERSIONS, LIST_OFFSETS, FETCH], ids=NAMES.get)


@each_api_of_a_fetcher
@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=lambda answer: answer.__name__)
def test_a_fetcher_recovers_when_the_broker_answers_well(broker, fetching, api, answer):
    broker.answers[api] = answer
    info = fetching(broker, None if api == LIST_OFFSETS else OFFSET, timeout_of(answer))
    eventually(lambda: broker.bad > 1)
    broker.answers.clear()
    assert ChunkReader(info.queue).request(60).batch.column("value").to_pylist() == [b"value"]


@each_content_of(API_VERSIONS, LIST_OFFSETS, FETCH)
def test_a_fetcher_recovers_when_the_content_is_good(broker, fetching, api, content):
    broker.bodies[api] = response(api, broker.port, **BAD_CONTENT[content])
    info = fetching(broker, None if api == LIST_OFFSETS else OFFSET)
    eventually(lambda: broker.bad > 1)
    broker.bodies.clear()
    reader = ChunkReader(info.queue)
    try:
        chunk = reader.request(60)
    except TopicUnreadable:  # an error code that was repeated often enough, and is not raised again
        chunk = reader.request(60)
    assert chunk.batch.column("value").to_pylist() == [b"value"]
