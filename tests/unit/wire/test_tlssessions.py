"""TlsSessions: which session a connection offers."""

import itertools
import ssl

import pytest

from zkconsumer.wire.tlssessions import TlsSessions

BROKER, OTHER = ("h1", 9093), ("h1", 9094)


@pytest.fixture
def sessions():
    return TlsSessions(ssl.create_default_context())


def resumptions(sessions, threads):
    """Connections to a broker, one to each of these threads in turn: for each, whether it resumes a session."""
    for thread in threads:
        offered = sessions.offer(BROKER)
        is_resumed = offered == thread
        if offered is not None and not is_resumed:
            sessions.refused(BROKER)
        sessions.keep(BROKER, thread)
        yield is_resumed


def test_the_first_connection_to_a_broker_offers_nothing(sessions):
    sessions.keep(OTHER, "session")
    assert sessions.offer(BROKER) is None


@pytest.mark.parametrize("count", range(1, 9))
def test_a_broker_with_some_network_threads_resumes_after_a_few_connections(sessions, count):
    turns = itertools.islice(itertools.cycle(range(count)), 50)
    assert all(list(resumptions(sessions, turns))[count * 2 :])


def test_a_broker_that_was_restarted_is_offered_its_new_sessions(sessions):
    list(resumptions(sessions, ["before"] * 20))
    assert all(list(resumptions(sessions, ["after"] * 20))[9:])


def test_forgotten_sessions_are_not_offered(sessions):
    sessions.keep(BROKER, "session")
    sessions.forget(BROKER)
    assert sessions.offer(BROKER) is None
