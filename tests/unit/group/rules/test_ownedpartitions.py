"""One record per partition: its states, its start, and what a commit may store of it."""

import pytest

from zkconsumer.errors import TopicAuthorizationFailed
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.group.rules.ownedpartitions import TRANSITIONS, OwnedPartition, OwnedPartitions, OwnershipState
from zkconsumer.model import ConsumerThreadId, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin

NOT_OWNED, CLAIMED, FETCHED, REVOKED = OwnershipState
P, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
THREAD = ConsumerThreadId("g_c", 0)


class Partitions(OwnedPartitions):
    """The records of a member, with what happens to partition ``P``, and each state that it enters."""

    def __init__(self):
        super().__init__()
        self.releases = self.generation = 0

    def claim(self):
        self.follow({P: THREAD}, self.releases)

    def lose(self):
        self.follow({}, self.releases)

    def lose_everything(self):
        self.releases += 1
        self.follow({P: THREAD}, self.releases)

    def read_offset(self, stored=None, mark=None):
        return self.read({P: StoredOffset(stored, mark)})

    def start_it(self, offset=None, *, kept=()):
        self.generation += 1
        self.start(FetchAssignment(self.generation, {P: AssignedPartition(THREAD, offset)}), kept, {})

    def start_without(self):
        self.start(FetchAssignment(1, {}), (), {})

    def refuse(self):
        error = TopicAuthorizationFailed("no", "t", "Describe")
        self.start(FetchAssignment(1, {P: AssignedPartition(THREAD, error=error)}), (), {})

    def bring_to(self, state):
        """Bring it to a state by the events of a member."""
        if state is not NOT_OWNED:
            self.claim()
            if state in (FETCHED, REVOKED):
                self.start_it()
            if state is REVOKED:
                self.revoke([P])
        assert self[P].state is state
        return self


EVENTS = {
    Partitions.claim: {NOT_OWNED: CLAIMED, CLAIMED: CLAIMED, FETCHED: FETCHED, REVOKED: REVOKED},
    Partitions.lose: dict.fromkeys(OwnershipState, NOT_OWNED),
    Partitions.lose_everything: dict.fromkeys(OwnershipState, CLAIMED),
    Partitions.start_it: {NOT_OWNED: NOT_OWNED, CLAIMED: FETCHED, FETCHED: FETCHED, REVOKED: FETCHED},
    Partitions.start_without: {NOT_OWNED: NOT_OWNED, CLAIMED: CLAIMED, FETCHED: CLAIMED, REVOKED: CLAIMED},
    Partitions.refuse: {NOT_OWNED: NOT_OWNED, CLAIMED: CLAIMED, FETCHED: CLAIMED, REVOKED: CLAIMED},
    lambda partitions: partitions.revoke([P]): {
        NOT_OWNED: NOT_OWNED,
        CLAIMED: REVOKED,
        FETCHED: REVOKED,
        REVOKED: REVOKED,
    },
}


@pytest.mark.parametrize("before", OwnershipState)
@pytest.mark.parametrize(("event", "after"), EVENTS.items())
def test_each_event_in_each_state(event, after, before):
    partitions = Partitions().bring_to(before)
    losses = partitions[P].losses
    event(partitions)
    assert partitions[P].state is after[before]
    changed = after[before] is not before or event is Partitions.lose_everything
    is_loss = changed and before is not NOT_OWNED and event not in (Partitions.start_without, Partitions.refuse)
    assert (partitions[P].losses > losses) == (is_loss and after[before] is not FETCHED)


@pytest.mark.parametrize("before", OwnershipState)
@pytest.mark.parametrize("after", OwnershipState)
def test_only_the_transitions_of_the_table_are_possible(before, after):
    record = OwnedPartition(P, before)
    if after is before or after in TRANSITIONS[before]:
        record.enter(after)
        assert record.state is after
    else:
        with pytest.raises(AssertionError, match=r"t-0 is .*, and cannot be"):
            record.enter(after)


def test_every_transition_of_the_table_happens():
    happened = {(before, after[before]) for after in EVENTS.values() for before in OwnershipState}
    happened |= {(before, NOT_OWNED) for before in (CLAIMED, FETCHED, REVOKED)}  # on the way, where all was lost
    assert happened >= {(before, after) for before, states in TRANSITIONS.items() for after in states}


@pytest.mark.parametrize("state", OwnershipState)
def test_positions_are_committed_of_what_is_fetched_only(state):
    partitions = Partitions().bring_to(state)
    assert partitions.fetched({P: 7, OTHER: 8}) == ({P: 7} if state is FETCHED else {})
    assert partitions[P].is_owned == (state is not NOT_OWNED)


def started(stored=5, position=None, *, outdated=False, known=None):
    """How a claimed partition starts, of which this member knows a stored offset."""
    partitions = Partitions().bring_to(CLAIMED)
    if known is not None:
        partitions.read_offset(known)
        partitions.start_it(known)
    (record,) = partitions.read_offset(stored)
    return record.assign(position, "/offsets/t/0", outdated=outdated)


def test_a_new_partition_starts_at_the_stored_offset():
    assert started(5) == AssignedPartition(THREAD, 5, StoredOffset(5), "/offsets/t/0", moved=True)
    assert started(5).origin == "/offsets/t/0"
    assert (started(None).offset, started(None).origin, started(None).earliest) == (None, None, False)


def test_a_partition_that_stays_continues_at_its_position():
    assert (started(5, 9, known=5).offset, started(5, 9, known=5).moved) == (9, False)
    assert started(None, 9).offset == 9
    assert started(5, 9, known=5).origin is None


@pytest.mark.parametrize(("stored", "start", "moved"), [(5, 9, False), (7, 9, False), (8, 9, False), (6, 6, True)])
def test_an_offset_whose_answer_was_lost_is_not_one_of_another_client(stored, start, moved):
    partitions = Partitions().bring_to(FETCHED)
    partitions.read_offset(5)
    partitions.start_it(5)
    partitions[P].sent |= {7, 8}
    (record,) = partitions.read_offset(stored)
    assigned = record.assign(9, "/offsets/t/0")
    assert (assigned.offset, assigned.moved) == (start, moved)


def test_what_was_sent_is_forgotten_when_it_is_known_what_is_stored():
    record = Partitions().bring_to(FETCHED)[P]
    for event in (lambda: record.wrote(8), lambda: record.start(AssignedPartition(THREAD, 7), kept=False)):
        for offset in (7, 9):
            record.send(offset)
        record.refuse(9)
        event()
        assert (record.sent, record.refused) == (set(), None)


def test_a_refused_offset_is_another_clients_unless_an_earlier_request_with_it_may_have_arrived():
    record = Partitions().bring_to(FETCHED)[P]
    assert record.send(7)
    assert not record.send(7)
    for offset in range(8, 100):
        assert record.send(offset)
        record.refuse(offset)
    assert (record.sent, record.refused) == ({7}, 99)
    assert record.send(99), "it was answered"
    record.read = StoredOffset(98)
    assert record.assign(200, "/offsets/t/0").moved
    for offset in (7, 99):
        record.read = StoredOffset(offset)
        assert not record.assign(200, "/offsets/t/0").moved


@pytest.mark.parametrize("stored", [7, 3])
def test_a_partition_that_was_elsewhere_starts_at_what_was_committed_there(stored):
    assert (started(stored, 9, known=5).offset, started(stored, 9, known=5).moved) == (stored, True)


@pytest.mark.parametrize(("stored", "offset"), [(-1, None), (0, 0), (1, 1)])
def test_minus_one_means_that_nothing_is_stored(stored, offset):
    assert started(stored).offset == offset


def test_an_offset_is_not_outdated_unless_that_is_said():
    (record,) = Partitions().bring_to(CLAIMED).read_offset(5)
    assert record.assign(None, "/offsets/t/0").offset == 5


def test_an_offset_of_an_earlier_topic_is_ignored():
    assert (started(5, outdated=True).offset, started(5, outdated=True).earliest) == (None, True)
    assert not started(5, outdated=True)._replace(offset=3).earliest, "a listener has chosen"


def test_a_mark_proves_that_an_offset_is_of_an_earlier_topic():
    (record,) = Partitions().bring_to(CLAIMED).read_offset(5, "zkconsumer:1:old")
    assert record.is_outdated(TopicOrigin(TopicIdentity("new", None)), recreated=False)
    assert not record.is_outdated(TopicOrigin(TopicIdentity("old", None)), recreated=False)
    assert not record.is_outdated(None, recreated=False)


def test_of_a_topic_that_was_created_again_only_own_offsets_are_outdated():
    partitions = Partitions().bring_to(CLAIMED)
    partitions.read_offset(5)
    partitions.start_it(5)
    partitions[P].wrote(8)
    partitions[P].send(10)
    partitions[P].send(11)
    partitions[P].refuse(11)
    for stored, outdated in ((8, True), (10, True), (11, True), (None, True), (5, False), (9, False)):
        (record,) = partitions.read_offset(stored)
        assert record.is_outdated(None, recreated=True) == outdated


@pytest.mark.parametrize("is_refused", [True, False])
def test_an_offset_that_was_deleted_was_not_moved_by_another_client(is_refused):
    partitions = Partitions().bring_to(FETCHED)
    partitions.read_offset(5)
    partitions.start_it(5)
    record = partitions[P]
    if is_refused:
        record.refuse(7)
    record.read = NO_OFFSET
    assigned = record.assign(9, "/offsets/t/0")
    assert (assigned.offset, assigned.moved) == (9, False)


def test_an_attempt_that_fails_changes_nothing_of_what_is_known():
    partitions = Partitions().bring_to(FETCHED)
    partitions.read_offset(7)
    assert partitions[P].stored.offset is None
    partitions.start_it(7)
    assert partitions[P].stored.offset == 7


def test_a_write_is_newer_than_what_was_read_before_it():
    partitions = Partitions().bring_to(FETCHED)
    partitions.read_offset(7)
    partitions[P].wrote(9)
    partitions.start_it(7)
    assert partitions[P].stored.offset == 9


def test_what_was_written_is_known_after_the_partition_is_given_up():
    partitions = Partitions().bring_to(FETCHED)
    partitions[P].wrote(9)
    partitions.lose()
    partitions.start_without()
    assert (partitions[P].stored.offset, partitions[P].written) == (None, 9)
    partitions.claim()
    partitions.read_offset(4)
    partitions.start_it(4)
    partitions[P].wrote(4)
    assert partitions[P].written == 9, "the store had that offset already"


@pytest.mark.parametrize(
    ("start", "kept", "confirmed"), [(10, (), 10), (9, (), 0), (None, (), 0), (9, (P,), 10)], ids=str
)
def test_what_the_user_committed_counts_until_it_starts_before_that(start, kept, confirmed):
    partitions = Partitions().bring_to(FETCHED)
    assert partitions.confirm({P: 10}) == {P: 0}
    partitions.start_it(start, kept=kept)
    assert partitions[P].confirmed == confirmed


def test_what_the_user_committed_is_forgotten_where_nothing_is_stored_or_assigned():
    for start in (Partitions.start_it, Partitions.start_without):
        partitions = Partitions().bring_to(FETCHED)
        partitions.confirm({P: 1})
        start(partitions)
        assert partitions[P].confirmed == 0


def test_nothing_is_known_of_a_new_partition():
    assert (OwnedPartitions()[P].committed, OwnedPartitions()[P].losses) == ((None, 0), 0)


def test_what_is_held_may_be_reported_again_after_everything_was_lost():
    partitions, held = Partitions().bring_to(FETCHED), {P: THREAD}
    partitions.follow(held, 0)
    assert (partitions[P].state, partitions[P].losses) == (FETCHED, 0)
    partitions.follow(held, 1)
    assert (partitions[P].state, partitions[P].losses) == (CLAIMED, 1)


def test_the_released_position_is_what_the_user_committed_but_not_beyond_its_records():
    record = OwnedPartition(P)
    assert record.released(4, 9) == 4
    record.confirmed = 7
    assert (record.released(4, 9), record.released(8, 9), record.released(4, 6)) == (7, 8, 6)


def test_only_what_is_not_stored_is_uncommitted():
    partitions = Partitions().bring_to(FETCHED)
    partitions[P].wrote(5)
    assert partitions.unstored({P: 5, OTHER: 3}) == {OTHER: (None, 3)}
    assert partitions.unstored({P: 6}) == {P: (5, 6)}
    assert list(partitions.unstored({OTHER: 7, P: 6})) == [P, OTHER]


def test_a_record_is_unchanged_unless_an_offset_was_stored_or_confirmed():
    for change, unchanged in ((lambda one: None, True), (lambda one: one.wrote(9), False)):
        record, before = OwnedPartition(P), OwnedPartition(P)
        change(record)
        assert (record.committed == before.committed) == unchanged
    assert OwnedPartition(P, confirmed=9).committed != OwnedPartition(P).committed


def test_how_far_an_earlier_topic_was_read_is_known_from_the_start_of_the_next():
    """Its records end there at the latest, so a commit of an offset up to there is of that topic."""

    def start(position, *, outdated=False, kept=False, renewed=False):
        assigned = None if position is None else AssignedPartition(THREAD, position, outdated=outdated)
        assignment = FetchAssignment(1, {} if assigned is None else {P: assigned})
        records.claim()
        if renewed:
            records.renew([P])
        records.read_offset()
        records.start(assignment, {P} if kept else (), {} if position is None else {P: position})
        return records[P].former, records[P].reached, records[P].begun_anew

    records = Partitions()
    assert (records[P].former, records[P].reached, records[P].begun_anew) == (0, 0, False)
    assert start(40) == (0, 40, False)
    assert start(30) == (0, 40, False)
    assert start(None) == (0, 40, False)
    assert start(45, outdated=True, kept=True) == (0, 45, False), "it continues, so it is no start"
    assert start(50, outdated=True) == (50, 0, True)
    assert start(20, outdated=True) == (50, 20, True), "what was handed out in between is of the present topic"
    assert start(25) == (50, 25, False)
    assert start(60, outdated=True) == (60, 0, True)
    assert start(5) == (60, 5, False)
    assert start(7, outdated=True) == (60, 0, True)
    assert start(80, outdated=True, renewed=True) == (80, 0, True), "it was created again once more"
    assert start(90, renewed=True) == (90, 0, False), "another member has committed in the present topic first"
    assert start(95) == (90, 95, False)


def test_a_topic_that_is_created_again_renews_partitions_that_were_given_up_too():
    """Which of its partitions a protocol names depends on the protocol."""
    records = Partitions().bring_to(FETCHED)
    records[P].reached = 1000
    records.lose()
    records.renew([OTHER])
    records.claim()
    records.read_offset(5)
    records.start_it(5)
    assert records[P].former == 1000
    records.renew([TopicPartition("other", 0)])
    assert not records[P].renewed


def covered_after(*, stored, start, commit):
    records = Partitions()
    records.claim()
    records.read_offset(stored)
    records.start_it(start)
    records[P].wrote(commit)
    return records[P].covered


@pytest.mark.parametrize(
    ("stored", "start", "commit", "covered"),
    [(None, None, 5, 5), (5, 5, 8, 8), (5, 2, 5, 5), (5, 8, 8, 8), (5, 5, 5, None)],
    ids=["first", "next", "moved back", "continued", "nothing was handed out"],
)
def test_what_was_handed_out_and_committed_is_covered(stored, start, commit, covered):
    assert covered_after(stored=stored, start=start, commit=commit) == covered


@pytest.mark.parametrize("end", ["moved", "outdated", "renewed"])
def test_what_was_committed_covers_nothing_where_the_partition_does_not_continue(end):
    records = Partitions().bring_to(FETCHED)
    records[P].wrote(5)
    if end == "renewed":
        records.renew([P])
    records.lose()
    records.claim()
    records.read_offset(5)
    assigned = AssignedPartition(THREAD, 5, moved=end == "moved", outdated=end == "outdated")
    records.start(FetchAssignment(9, {P: assigned}), (), {})
    assert records[P].covered is None


def test_a_commit_without_an_answer_may_arrive_after_the_partition_was_given_up():
    """1. Its topic is deleted; 2. a share without it is fetched; 3. it is created again, and the commit arrives."""
    partitions = Partitions().bring_to(FETCHED)
    partitions[P].send(10)
    partitions.lose()
    partitions.start_without()
    partitions.claim()
    (record,) = partitions.read_offset(10)
    assert record.is_outdated(None, recreated=True)
    partitions.start_it(0)
    assert record.sent == set()
