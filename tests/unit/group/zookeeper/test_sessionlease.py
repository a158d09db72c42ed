"""SessionLease turn by turn, with a clock that the test sets and a session that answers when the test wants."""

import itertools

import pytest

from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.zookeeper.session import ProbeAnswer

TIMEOUT_S = 10.0
INTERVAL_S = TIMEOUT_S / 6
LEASE_S = 0.8 * TIMEOUT_S


class Session:
    """Keeps the callbacks of probes until the test answers them."""

    negotiated_timeout = TIMEOUT_S
    address = "zk:2181"
    last_failure = ""

    def __init__(self):
        self.session_id = 7
        self.connected = True
        self.probes = []
        self.asked = []

    def probe(self, path, answered):
        if self.connected:
            self.asked.append(path)
            self.probes.append(answered)
        return self.connected

    def revive(self):
        return False


class Holder:
    """A member with its lease; the first probe is sent."""

    def __init__(self):
        self.time = 1000.0
        self.session = Session()
        self.registered_session = 7
        self.node = "/members/c@7"
        self.changes = []
        self.lease = SessionLease(
            self.session,
            self,
            lambda: self.node,
            lambda: self.changes.append((self.time, self.lease.holds())),
            "group g",
            lambda: self.time,
        )
        self.lease.grant(self.time)
        self.seconds = self.turn()

    @property
    def session_timeout(self):
        return self.session.negotiated_timeout

    def turn(self):
        return self.lease.watch.turn()

    def round(self, answer=None, *, exists=True):
        """Time passes until the next turn; the last probe is answered with a session's id, or not at all."""
        if answer is not None:
            self.session.probes.pop(0)(ProbeAnswer(answer, exists))
        passed = self.seconds
        self.time += passed
        self.seconds = self.turn()
        return passed


@pytest.fixture
def holder():
    return Holder()


def test_a_server_that_grants_less_shortens_the_lease_at_once(holder):
    """1. a probe is answered; 2. the next server grants 4 s, and is cut off before it has answered a probe."""
    holder.round(7)
    assert holder.lease.remaining() == pytest.approx(LEASE_S - INTERVAL_S)
    holder.session.negotiated_timeout = 4.0
    holder.lease.connected()
    assert holder.lease.remaining() == pytest.approx(0.8 * 4.0 - INTERVAL_S)
    holder.time += 0.8 * 4.0
    assert not holder.lease.holds()


def test_a_server_that_grants_more_does_not_extend_the_lease(holder):
    """The session may have expired: 3. it ends on the servers; 4. another server makes a new one of 40 s."""
    holder.round(7)
    holder.session.negotiated_timeout = 4.0
    holder.lease.connected()
    holder.time += 0.8 * 4.0
    holder.session.negotiated_timeout, holder.session.session_id = 40.0, 8
    holder.lease.connected()
    assert not holder.lease.holds()


def test_a_lease_counts_from_when_the_probe_was_sent(holder):
    holder.time += 3
    holder.session.probes.pop()(ProbeAnswer(7, True))
    assert holder.lease.remaining() == LEASE_S - 3


def test_answered_probes_prolong_the_lease(holder):
    for _ in range(20):
        assert holder.round(answer=7) == pytest.approx(INTERVAL_S)
        assert holder.lease.holds()
    assert holder.changes == []


def test_a_silent_server_ends_the_lease_at_its_deadline(holder):
    while holder.lease.holds():
        holder.round()
    assert holder.time == 1000 + LEASE_S, "the last round ends when the lease lapses"
    assert holder.changes == [(1000 + LEASE_S, False)]
    assert holder.lease.lapses == 1


def test_a_machine_that_was_suspended_wakes_without_a_lease(holder):
    holder.round(answer=7)
    holder.time += 3600
    assert not holder.lease.holds()
    holder.turn()
    assert holder.changes == [(holder.time, False)]
    holder.round(answer=7)
    assert not holder.lease.holds(), "that was a probe from before"
    holder.round(answer=7)
    assert holder.lease.holds(), "the session is alive"


def test_one_probe_is_outstanding_at_a_time(holder):
    holder.round()
    holder.round()
    assert len(holder.session.probes) == 1


def test_a_probe_of_another_session_prolongs_nothing(holder):
    holder.round()
    holder.session.probes.pop()(None)
    assert holder.lease.remaining() == pytest.approx(LEASE_S - INTERVAL_S)
    holder.round()
    assert len(holder.session.probes) == 1, "the next one is sent"


def test_without_a_connection_a_probe_is_tried_again(holder):
    holder.session.connected = False
    holder.round(answer=7)
    assert holder.session.probes == []
    holder.session.connected = True
    holder.round()
    assert len(holder.session.probes) == 1


def test_a_later_session_does_not_prove_the_registered_one(holder):
    holder.round(answer=8)
    assert not holder.lease.holds()
    holder.registered_session = 8
    assert holder.lease.holds()
    holder.registered_session = 0
    assert holder.lease.holds(), "a member that is registered nowhere owns nothing"


def test_a_member_without_its_session_node_loses_its_lease(holder, caplog):
    holder.round(answer=7)
    assert not holder.lease.misses(holder.node)
    asked = holder.time
    while holder.lease.holds():
        holder.round(answer=7, exists=False)
    assert holder.time == pytest.approx(asked - INTERVAL_S + LEASE_S), "the session alone prolongs nothing"
    assert set(holder.session.asked) == {holder.node}
    assert holder.lease.misses(holder.node)
    assert "no offset committed, since /members/c@7 was deleted" in caplog.text


def test_a_missing_session_node_is_reported_while_the_lease_holds(holder):
    holder.round(answer=7, exists=False)
    assert holder.changes == [(holder.time, True)]
    holder.round(answer=7)
    assert not holder.lease.misses(holder.node)
    assert len(holder.changes) == 1, "registered again"


def test_a_node_that_is_not_probed_any_more_is_not_reported(holder):
    """1. The node of a registration is missing; 2. the member has deregistered before the answer arrives."""
    holder.node = "/"
    holder.round(answer=7, exists=False)
    assert holder.changes == []


def test_a_lease_that_holds_again_is_reported(holder, caplog):
    caplog.set_level("INFO")
    while holder.lease.holds():
        holder.round()
    holder.round(answer=7)
    holder.round(answer=7)
    assert [holds for _, holds in holder.changes] == [False, True]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "no ZooKeeper server of zk:2181 has answered for 8 s; no record is delivered" in caplog.text
    assert "ZooKeeper zk:2181 answers again" in caplog.text


def test_a_lapse_between_two_looks_is_reported_when_it_is_over(holder):
    """1. The lease lapses; 2. a stream asks, and waits; 3. a probe is answered; 4. the thread looks."""
    holder.round(answer=7)
    holder.time = 1000 + LEASE_S
    assert not holder.lease.holds()
    holder.session.probes.pop()(ProbeAnswer(7, True))
    holder.turn()
    assert holder.changes == [(holder.time, True)]
    holder.turn()
    assert len(holder.changes) == 1


def test_a_session_that_ends_between_two_looks_is_reported_when_it_is_the_registered_one(holder):
    """A stream that asks while the last answer is of the former session waits."""
    holder.registered_session = 8
    assert not holder.lease.holds()
    assert holder.lease.remaining() <= 0
    holder.session.probes.pop()(ProbeAnswer(8, True))
    assert holder.changes == []
    holder.turn()
    assert holder.changes == [(holder.time, True)]


def test_a_consumer_that_stands_alone_has_nothing_to_lose(holder, caplog):
    holder.registered_session = 0
    holder.lease.stand_alone()
    holder.session.revive = lambda: revived.append(holder.time) or False
    revived = []
    while holder.time < 1000 + 2 * TIMEOUT_S:
        holder.round()
    assert (holder.changes, holder.lease.lapses, holder.lease.holds()) == ([], 0, True)
    assert holder.lease.remaining() < 0
    assert "no ZooKeeper server of zk:2181 has answered for 8 s;" in caplog.text
    assert "no record is delivered" not in caplog.text
    assert revived, "the client is restarted all the same"


def test_a_long_silence_is_reported_at_growing_intervals(holder, caplog):
    while holder.time < 1000 + 20 * TIMEOUT_S:
        holder.round()
    first, *later = [record.args[2] for record in caplog.records]
    assert first == LEASE_S
    assert len(later) >= 4
    assert all(after - first >= 2 * (before - first) for before, after in itertools.pairwise(later))


def test_a_client_that_gave_up_starts_over_with_growing_pauses(holder):
    revived_at = []
    holder.session.revive = lambda: revived_at.append(holder.time) or True
    while holder.lease.holds():
        holder.round()
    assert revived_at == [1000 + LEASE_S], "not while the lease holds"
    for _ in range(40):
        holder.round()
    pauses = [later - sooner for sooner, later in itertools.pairwise(revived_at)]
    assert pauses[0] < pauses[2] < pauses[4]
    assert max(pauses) <= 30 + INTERVAL_S


def test_the_answer_that_made_the_session_counts_as_the_first_probe(holder):
    holder.lease.start(holder.time)
    assert len(holder.session.asked) == 1, "that of the test"
    holder.lease.stop()
    holder.lease.stop()
