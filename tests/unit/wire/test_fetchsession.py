"""Fetch sessions with a model of the broker's side (KIP-227)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.fetchsession import SESSION_ERRORS, FetchSession, PartitionFetch, without_session

ID_NOT_FOUND, INVALID_EPOCH = 70, 71
A, B = PartitionFetch("t", 0, 5, 100), PartitionFetch("t", 1, 6, 100)


class ModelBroker:
    """The broker's session; ``answer`` returns an error, the session id and the partitions to read now."""

    def __init__(self, room=True, last_epoch=2**31 - 1):
        self.room = room
        self.last_epoch = last_epoch
        self.sessions = {}
        self.made = 0

    def answer(self, step):
        if step.epoch == -1:
            return 0, 0, list(step.partitions)
        if step.epoch == 0:
            self.sessions.pop(step.session_id, None)
            if not self.room:
                return 0, 0, list(step.partitions)
            self.made += 1
            self.sessions[self.made] = [1, {fetch[:2]: fetch for fetch in step.partitions}]
            return 0, self.made, list(step.partitions)
        if step.session_id not in self.sessions:
            return ID_NOT_FOUND, 0, []
        session = self.sessions[step.session_id]
        if step.epoch != session[0]:
            return INVALID_EPOCH, 0, []
        session[0] = 1 if session[0] == self.last_epoch else session[0] + 1
        session[1].update({fetch[:2]: fetch for fetch in step.partitions})
        for partition in step.forgotten:
            del session[1][tuple(partition)]  # a KeyError if a partition to be forgotten was never requested
        return 0, step.session_id, list(session[1].values())


def ask(session, broker, wanted):
    """Returns the partitions that the broker reads, or None if it refuses."""
    error, session_id, read = broker.answer(session.next_step(wanted))
    if error:
        session.refused(error)
        return None
    session.answered(session_id)
    return sorted(read)


fetches = st.lists(
    st.builds(PartitionFetch, st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3), st.integers(1, 2)),
    unique_by=lambda fetch: fetch[:2],
)
mishaps = st.sampled_from([None, None, None, "restart", "wrong epoch", "no room", "room"])


@given(st.lists(st.tuples(mishaps, fetches), max_size=20))
def test_the_broker_reads_exactly_the_wanted_partitions(rounds):
    session, broker = FetchSession(), ModelBroker()
    for mishap, wanted in rounds:
        if mishap == "restart":
            broker.sessions.clear()
        elif mishap == "wrong epoch":
            for theirs in broker.sessions.values():
                theirs[0] += 1
        elif mishap in ("no room", "room"):
            broker.room = mishap == "room"
        read = ask(session, broker, wanted)
        if read is None:  # refused once at most, and then all partitions are named again
            read = ask(session, broker, wanted)
        assert read == sorted(wanted)
    assert len(broker.sessions) <= 1 or any(mishap for mishap, _ in rounds)


def test_only_changes_are_named():
    session = FetchSession()
    assert session.next_step([A, B]) == (0, 0, [A, B], ())
    session.answered(9)
    moved = A._replace(offset=8)
    assert session.next_step([moved, B]) == (9, 1, [moved], [])
    session.answered(9)
    assert session.next_step([B]) == (9, 2, [], [TopicPartition("t", 0)])
    session.answered(9)
    assert session.next_step([moved, B]) == (9, 3, [moved], [])


def test_the_epoch_wraps_to_one():
    session, broker = FetchSession(last_epoch=2), ModelBroker(last_epoch=2)
    epochs = []
    for wanted in (A, B, A, B):
        assert ask(session, broker, [wanted]) == [wanted]
        epochs.append(broker.sessions[1][0])
    assert epochs == [1, 2, 1, 2]


def test_a_session_with_a_wrong_epoch_is_ended_by_the_next_request():
    session, broker = FetchSession(), ModelBroker()
    ask(session, broker, [A])
    broker.sessions[1][0] = 7
    assert ask(session, broker, [A]) is None
    assert session.next_step([A])[:2] == (1, 0)


@pytest.mark.parametrize("code", sorted(SESSION_ERRORS))
def test_a_refused_beginning_is_an_error(code):
    session = FetchSession()
    session.next_step([A])
    with pytest.raises(ProtocolError, match="refused to begin"):
        session.refused(code)


def test_without_a_session_all_partitions_are_named():
    assert without_session(iter([A, B])) == (0, -1, (A, B), ())
