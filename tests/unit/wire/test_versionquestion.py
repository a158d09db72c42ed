"""Which versions a broker supports, with small servers that imitate each release on real sockets."""

import socket
import struct

import pytest

from tests.fixtures.scriptedserver import ScriptedServer, answer, running
from tests.fixtures.waiting import error_of
from zkconsumer.errors import BrokerUnavailable, NoCommonVersion, ProtocolError
from zkconsumer.wire import knownbrokers, versionquestion
from zkconsumer.wire.apiversions import API_VERSIONS, FETCH, LIST_OFFSETS, OFFSET_COMMIT
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.knownbrokers import KNOWN_BROKERS

JOIN_GROUP = 11
QUICK_MS = 50
NEW, OLD_FETCH, OLD_LIST_OFFSETS = (API_VERSIONS, 0), (FETCH, 1), (LIST_OFFSETS, 2)
PROOF = [OLD_LIST_OFFSETS, OLD_FETCH]
VERSIONS = struct.pack(">hi", 0, 2) + struct.pack(">hhh", API_VERSIONS, 0, 4) + struct.pack(">hhh", FETCH, 4, 16)


class Release(ScriptedServer):
    """A broker of a release.

    Attributes:
        release: 0.8, 0.9, 0.10, or a later one.
        asked: API and version of each request.
        silences, closes: so many questions for versions are not answered, or answered by closing the connection.
        halves: so many are answered by the begin of an answer.
    """

    def __init__(self, listener, release="2.0"):
        super().__init__(listener)
        self.release, self.asked, self.silences, self.closes, self.halves = release, [], 0, 0, 0

    @property
    def is_old(self):
        return self.release in ("0.8", "0.9")

    def _serve(self, sock):
        self.asked.append("connected")
        super()._serve(sock)

    def _respond(self, sock, key, number, content):
        asked = {18: NEW, 1: OLD_FETCH, 2: OLD_LIST_OFFSETS}[key]
        self.asked.append(asked)
        if asked == NEW:
            return self._report(sock, number)
        if asked == OLD_LIST_OFFSETS:
            assert content == struct.pack(">ibi", -1, 0, 0)
            return self.release != "0.10" and answer(sock, number, bytes(4 if self.is_old else 8))
        assert content == struct.pack(">iiii", -1, 0, 0, 0)
        return answer(sock, number, bytes(4 if self.release == "0.8" else 8))

    def _report(self, sock, number):
        if self.release == "0.9":
            return True
        if self.halves:
            self.halves -= 1
            sock.sendall(struct.pack(">ii", len(VERSIONS) + 4, number) + VERSIONS[:8])
            self.closes, closes = 0, self.closes
            return not closes
        if self.silences:
            self.silences -= 1
            return True
        if self.closes or self.release == "0.8":
            self.closes -= 1
            return False
        return answer(sock, number, VERSIONS)

    def end(self):
        """Close its connections."""
        for sock in list(self.connections):
            sock.shutdown(socket.SHUT_RDWR)

    def requests(self):
        """Those since the last call."""
        asked, self.asked = self.asked, []
        return [request for request in asked if request != "connected"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(versionquestion, "SOON_MS", QUICK_MS)


@pytest.fixture
def run():
    """Start a broker of a release."""
    opened = []

    def start(release):
        server = running(lambda listener: Release(listener, release))
        opened.append(server)
        return server.__enter__()

    yield start
    for server in opened:
        server.__exit__(None, None, None)


def connected(broker, **settings):
    connection = BrokerConnection("127.0.0.1", broker.port, **{"client_id": "me", "timeout_ms": 60_000, **settings})
    connection.connect()
    connection.close()
    return connection


def newest(connection):
    return {api: versions[1] for api, versions in connection.ranges.items()}


def test_a_broker_that_reports_its_versions_gets_one_question(run):
    broker = run("2.0")
    assert newest(connected(broker))[FETCH] == 16
    assert broker.requests() == [NEW]


@pytest.mark.parametrize("closes", [0, 1])
def test_a_broker_that_stops_in_the_middle_of_its_answer_is_asked_on_another_connection(run, closes):
    broker = run("2.0")
    broker.halves, broker.closes = 1, closes
    connection = connected(broker)
    assert newest(connection)[FETCH] == 16


@pytest.mark.parametrize(("release", "fetch", "commit"), [("0.8", 0, 1), ("0.9", 1, 2)])
def test_a_broker_before_0_10_shows_its_release(run, release, fetch, commit):
    broker = run(release)
    versions = newest(connected(broker))
    assert (versions[FETCH], versions[OFFSET_COMMIT]) == (fetch, commit)
    assert (JOIN_GROUP in versions) == (release == "0.9")
    assert broker.requests() == [NEW, *PROOF]


@pytest.mark.parametrize("release", ["0.8", "0.9"])
def test_a_process_asks_an_old_broker_for_its_versions_once(run, release):
    broker = run(release)
    connected(broker)
    broker.requests()
    connected(broker)
    assert broker.requests() == PROOF


@pytest.mark.parametrize("named", ["0.8.2", "0.9.0"])
@pytest.mark.parametrize(("release", "fetch"), [("0.8", 0), ("0.9", 1)])
def test_with_a_named_release_an_old_broker_is_never_asked(run, named, release, fetch):
    broker = run(release)
    assert newest(connected(broker, version_fallback=named))[FETCH] == fetch
    assert broker.requests() == PROOF


@pytest.mark.parametrize(
    ("release", "questions"), [("0.10", [OLD_LIST_OFFSETS, NEW]), ("2.0", [OLD_LIST_OFFSETS, NEW])]
)
def test_versions_that_a_broker_reports_override_a_named_release(run, release, questions):
    broker = run(release)
    assert newest(connected(broker, version_fallback="0.9.0"))[FETCH] == 16
    assert broker.requests() == questions


def test_an_upgraded_broker_is_asked_again(run):
    broker = run("0.9")
    connected(broker)
    broker.release = "2.0"
    broker.requests()
    assert newest(connected(broker))[FETCH] == 16
    assert broker.requests() == [OLD_LIST_OFFSETS, NEW]
    KNOWN_BROKERS.forget(("127.0.0.1", broker.port))
    connected(broker)
    assert broker.requests() == [NEW]


def test_a_broker_that_has_answered_lately_is_not_asked_again(run):
    broker = run("2.0")
    connected(broker)
    assert newest(connected(broker))[FETCH] == 16
    assert broker.requests() == [NEW]


def test_a_broker_that_was_quiet_is_asked_again(run, monkeypatch):
    """It may have been replaced, and no connection has noticed."""
    monkeypatch.setattr(knownbrokers, "_CERTAIN_S", 0.0)
    broker = run("2.0")
    connected(broker)
    connected(broker)
    assert broker.requests() == [NEW, NEW]


@pytest.mark.parametrize("fault", ["broken", "malformed", "unsupported"])
def test_a_broker_is_asked_again_after_a_failure(run, fault):
    """A broker that was replaced ends its connections, or does not support a version that is used."""
    broker = run("2.0")
    connection = BrokerConnection("127.0.0.1", broker.port, client_id="me", timeout_ms=60_000)
    connection.connect()
    if fault == "broken":
        broker.end()
        assert isinstance(error_of(lambda: connection.exchange(FETCH, 4, b"", len)), BrokerUnavailable)
    elif fault == "malformed":
        assert isinstance(error_of(lambda: connection.exchange(API_VERSIONS, 0, b"", malformed)), ProtocolError)
    else:
        assert isinstance(error_of(lambda: connection.version(FETCH, "Fetch", 17, 18)), NoCommonVersion)
    broker.requests()
    connected(broker)
    assert broker.requests() == [NEW]
    connection.close()


def malformed(_):
    raise ProtocolError("malformed")


@pytest.mark.parametrize("release", ["0.10", "2.0"])
@pytest.mark.parametrize("fault", ["silences", "closes"])
def test_a_newer_broker_that_did_not_answer_once_is_not_old(run, release, fault):
    broker = run(release)
    setattr(broker, fault, 1)
    assert newest(connected(broker))[FETCH] == 16
    assert broker.requests() == [NEW, OLD_LIST_OFFSETS, NEW]


def test_a_broker_that_stays_silent_is_unavailable(run):
    broker = run("2.0")
    broker.silences = 2
    error = error_of(lambda: connected(broker, timeout_ms=QUICK_MS))
    assert isinstance(error, BrokerUnavailable)
    assert "no answer in time" in str(error)


def test_a_listener_with_a_login_is_asked_only_for_its_versions(run):
    """It answers nothing else before the login, and there is no login to older brokers."""
    broker = run("0.9")
    security = BrokerSecurity("SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password="hush")
    error = error_of(lambda: connected(broker, timeout_ms=4 * QUICK_MS, security=security, version_fallback="0.9.0"))
    assert isinstance(error, BrokerUnavailable)
    assert broker.requests() == [NEW]
