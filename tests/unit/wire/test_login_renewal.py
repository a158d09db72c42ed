"""A login is repeated before the broker ends its session (KIP-368), and a broker that ends the connection."""

import struct

import pytest

from tests.fixtures.certificates import Authority
from tests.fixtures.kafka import FetchResponse
from tests.fixtures.scriptedserver import ScriptedServer, answer, close_in_order, running
from tests.fixtures.waiting import error_of
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, LeaseLapsed
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.fetchconversation import FetchConversation
from zkconsumer.wire.fetchsession import PartitionFetch
from zkconsumer.wire.response import new_memory

FETCH, METADATA, HANDSHAKE, AUTHENTICATE, VERSIONS = 1, 3, 17, 36, 18
BARE_TOKEN = int.from_bytes(b"al")
"""What a request without a header, that begins with the name alice, has in the place of its API."""
LOGIN = [HANDSHAKE, AUTHENTICATE]
LIFETIME_MS = 1000
PLAIN = {"mechanism": "PLAIN", "username": "alice", "password": "hush"}


class Broker(ScriptedServer):
    """Answers a login with a session of :data:`LIFETIME_MS`, and other requests with their bodies.

    Attributes:
        newest: version of SaslAuthenticate that it knows; None before 1.0.
        asked: API of each request, and "check" where a test has added it.
        refuses: True to refuse logins.
        closes_at: API of the request at which it ends the connection; None for none.
        in_order: False to end it without close_notify.
        closes_after: API of the request after whose answer it closes in order; None for none.
    """

    def __init__(self, listener, *, newest=1, context=None):
        super().__init__(listener)
        self.newest, self.asked, self.refuses = newest, [], False
        self.closes_at, self.closes_after, self.in_order = None, None, True
        self._context = context

    def _serve(self, sock):
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True)
        super()._serve(sock)

    def _respond(self, sock, key, number, content):
        goes_on = self._respond_to(sock, key, number, content)
        return self._close(sock) if key == self.closes_after else goes_on

    def _close(self, sock):
        """In order; returns True, since TCP stays open."""
        close_in_order(sock)
        sock.setblocking(True)
        return True

    def _respond_to(self, sock, key, number, content):
        self.asked.append(key)
        if key == self.closes_at:
            return self.in_order and self._close(sock)
        if key == VERSIONS:
            ranges = [(VERSIONS, 0), (FETCH, 12), (METADATA, 0), (HANDSHAKE, 1)]
            ranges += [] if self.newest is None else [(AUTHENTICATE, self.newest)]
            encoded = b"".join(struct.pack(">hhh", api, 0, newest) for api, newest in ranges)
            return answer(sock, number, struct.pack(">hi", 0, len(ranges)) + encoded)
        if key == HANDSHAKE:
            return answer(sock, number, struct.pack(">hi", 0, 0))
        if key == AUTHENTICATE:
            lifetime = struct.pack(">q", LIFETIME_MS) if self.newest else b""
            return answer(sock, number, struct.pack(">hhi", 58 * self.refuses, -1, 0) + lifetime)
        return answer(sock, number, b"\0" + fetched() if key == FETCH else content)

    def requests(self):
        """Those since the last call."""
        asked, self.asked = self.asked, []
        return asked


def fetched():
    make = FetchResponse.FetchableTopicResponse
    partition = make.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=b"bytes",
    )
    topic = make(topic="t", partitions=[partition])
    return bytes(FetchResponse(version=12, throttle_time_ms=0, error_code=0, session_id=0, responses=[topic]).encode())


class Session:
    """A connection that has logged in, and the seconds since then, as it sees them."""

    def __init__(self, broker):
        self.now = 0.0
        self.broker = broker
        self.connection = BrokerConnection(
            "127.0.0.1",
            broker.port,
            client_id="me",
            timeout_ms=60_000,
            security=BrokerSecurity("SASL_PLAINTEXT", **PLAIN),
            clock=lambda: self.now,
        )
        self.connection.connect()
        broker.requests()

    def ask(self, body=b"hello", **how):
        """Make a request; returns the APIs that the broker has seen."""
        number = self.connection.send(METADATA, 0, body, **how)
        assert bytes(self.connection.receive(number)) == body
        return self.broker.requests()


@pytest.fixture
def session():
    with running(Broker) as broker:
        made = Session(broker)
        yield made
        made.connection.close()


def test_a_session_is_renewed_before_it_expires(session):
    for _ in range(3):
        session.now += 0.849
        assert session.ask() == [METADATA]
        session.now += 0.102
        assert session.ask() == [*LOGIN, METADATA]


def test_a_session_that_expired_while_nothing_was_sent_is_renewed(session):
    session.now = 3600.0
    assert session.ask() == [*LOGIN, METADATA]


def test_no_login_comes_between_a_request_and_its_answer(session):
    first = session.connection.send(METADATA, 0, b"first")
    session.now = 1.0
    second = session.connection.send(METADATA, 0, b"second")
    assert [bytes(session.connection.receive(number)) for number in (first, second)] == [b"first", b"second"]
    assert session.broker.requests() == [METADATA, METADATA]
    assert session.ask() == [*LOGIN, METADATA]


def test_what_must_hold_for_a_request_is_checked_after_the_login(session):
    session.now = 1.0
    assert session.ask(before_send=lambda: session.broker.asked.append("check")) == [*LOGIN, "check", METADATA]

    def lapsed():
        raise LeaseLapsed("while logging in")

    session.now = 2.0
    with pytest.raises(LeaseLapsed):
        session.ask(before_send=lapsed)
    assert session.broker.requests() == LOGIN
    assert session.ask() == [METADATA]


def test_a_fetcher_logs_in_before_the_request_that_it_sends_ahead(session):
    fetching = FetchConversation(
        session.connection, new_memory, min_bytes=1, isolation="read_uncommitted", keeps_session=True
    )

    def send():
        fetching.send([PartitionFetch("t", 0, 0, 500)], max_wait_ms=10, max_bytes=1000)

    send()
    for answered in fetching.receive(lambda _: 0):
        assert answered.fetched.is_last
        session.now = 1.0
        send()
        assert bytes(answered.fetched.records) == b"bytes"
    assert len(list(fetching.receive(lambda _: 0))) == 1
    assert session.broker.requests() == [FETCH, *LOGIN, FETCH]


def test_a_renewal_that_is_refused_ends_the_connection(session):
    session.now, session.broker.refuses = 1.0, True
    with pytest.raises(AuthenticationFailed, match=r"check sasl\.mechanism"):
        session.ask()
    with pytest.raises(BrokerUnavailable, match="the connection is closed"):
        session.ask()


def test_brokers_without_session_lifetimes_get_one_login():
    with running(lambda listener: Broker(listener, newest=0)) as broker:
        session = Session(broker)
        session.now = 1e9
        assert session.ask() == [METADATA]
        session.connection.close()


@pytest.mark.parametrize(
    ("newest", "closes_at"), [(1, VERSIONS), (1, HANDSHAKE), (1, AUTHENTICATE), (None, BARE_TOKEN), (1, METADATA)]
)
def test_an_orderly_close_is_the_same_error_as_the_end_of_tcp(tmp_path, newest, closes_at):
    authority = Authority(tmp_path, "ca")
    context = authority.server_context("127.0.0.1")
    security = BrokerSecurity("SASL_SSL", ca_location=authority.location, **PLAIN)

    def error(in_order):
        with running(lambda listener: Broker(listener, newest=newest, context=context)) as broker:
            broker.closes_at, broker.in_order = closes_at, in_order
            connection = BrokerConnection("127.0.0.1", broker.port, client_id="m", timeout_ms=60_000, security=security)

            def use():
                connection.connect()
                connection.receive(connection.send(METADATA, 0, b""))

            try:
                return str(error_of(use)).replace(str(broker.port), "PORT")
            finally:
                connection.close()

    assert error(in_order=True) == error(in_order=False)


def test_a_request_after_an_orderly_close_ends(tmp_path):
    """As after ``connections.max.idle.ms``: the client notices when it sends the next request."""
    authority = Authority(tmp_path, "ca")
    context = authority.server_context("127.0.0.1")
    with running(lambda listener: Broker(listener, context=context)) as broker:
        broker.closes_after = VERSIONS
        security = BrokerSecurity("SSL", ca_location=authority.location)
        connection = BrokerConnection("127.0.0.1", broker.port, client_id="me", timeout_ms=60_000, security=security)
        connection.connect()
        error = error_of(lambda: connection.receive(connection.send(METADATA, 0, b"")))
        connection.close()
    assert isinstance(error, BrokerUnavailable)
    assert isinstance(error.__cause__, ConnectionError)
