"""Members of a group whose leader assigns, with lost and late answers: no partition has two owners."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.fixtures.brokergroupmodel import Coordinator, Phase, Request
from tests.fixtures.rebalancethreads import LEASE, NUMBERS, PARTITION, REBALANCE_S, SESSION_S, RebalanceThreads
from zkconsumer.group.kafka.rules.generationmember import Assigned, GenerationMember, JoinStep
from zkconsumer.group.kafka.rules.groupmembership import MembershipState
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode

PARTITIONS = frozenset(TopicPartition("t", number) for number in range(5))
REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
OWNERS = st.lists(NUMBERS, min_size=5, max_size=5)


class _Party:
    """A member, its requests that are not answered yet, and the share that its rebalance thread is about to acquire.

    Attributes:
        waiting: its JoinGroup request, or SyncGroup if it has a generation: whom it names, the request, and when it was
            sent.
        beat: its heartbeat, when it was sent, and the error code of the answer.
        ids: member ids that the coordinator has given to it.
    """

    def __init__(self, cooperative):
        self.member = GenerationMember(cooperative, lease=LEASE)
        self.waiting = self.beat = None
        self.share, self.ids = frozenset(), set()


class BrokerGroups(RebalanceThreads):
    """Each rule is one step of one thread of one member, or of the coordinator, or some of them in a usual order.

    Attributes:
        heard: when the coordinator last heard of each member id.
        rebalancing_since: when it began to wait for the members; None while it does not.
    """

    cooperative = True

    def __init__(self):
        super().__init__()
        self.coordinator = Coordinator(PARTITIONS, self.cooperative)
        self.parties = [_Party(self.cooperative) for _ in range(3)]
        self.heard, self.rebalancing_since = {}, None

    def _heard(self, name=None):
        """The coordinator has accepted a request of this member, or something else has happened to the group."""
        if name is not None:
            self.heard[name] = self.now
        if self.coordinator.phase is not Phase.PREPARING:
            self.rebalancing_since = None
        elif self.rebalancing_since is None:
            self.rebalancing_since = self.now

    # -- the session thread -----------------------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def join_again(self, number):
        self.parties[number].member.join_again()

    @rule(number=NUMBERS, arrives=st.booleans())
    def join(self, number, arrives):
        party = self.parties[number]
        intent, request = party.member.join() if party.waiting is None else None, Request()
        if intent is None:
            return
        if arrives:
            if not intent.member_id:
                intent = intent._replace(member_id=self.coordinator.give_id())
                party.member.id_given(intent.member_id)
                party.ids.add(intent.member_id)
            self.coordinator.join(intent, request)
            self._heard(None if request.answer and request.answer[0] else intent.member_id)
        party.waiting = intent.member_id, None, request, self.now

    @rule(number=NUMBERS, arrives=st.booleans(), owners=OWNERS)
    def synchronise(self, number, arrives, owners):
        """JoinGroup is answered, and SyncGroup is sent."""
        party = self.parties[number]
        answer = self._answer(party, of_join=True)
        if answer is None:
            return
        name, generation, request = party.waiting[0], answer[1], Request()
        if not party.member.joined(name, generation, REBALANCE_S):
            self.lose_answer(number)
            return
        if arrives:
            self.coordinator.synchronise(name, generation, request, owners)
            self._heard(None if request.answer and request.answer[0] else name)
        party.waiting = name, generation, request, self.now

    @rule(number=NUMBERS)
    def take_assignment(self, number):
        """SyncGroup is answered."""
        party = self.parties[number]
        answer = self._answer(party, of_join=False)
        if answer is not None:
            party.member.synchronised(Assigned(*answer[1:]), party.waiting[3], self.now)
            self.lose_answer(number)

    @rule(number=NUMBERS)
    def lose_answer(self, number):
        """The connection breaks: the coordinator may have processed the request, or processes it later."""
        party = self.parties[number]
        if party.waiting is not None:
            party.waiting = None
            party.member.join_ended()

    def _answer(self, party, *, of_join):
        """The answer to the request that waits, if it is one of this kind, and without error; errors are handled."""
        if party.waiting is None or (party.waiting[1] is None) is not of_join:
            return None
        answer = party.waiting[2].answer
        if answer is None or not answer[0]:
            return answer
        if answer[0] in REMOVED:
            party.member.refused(keeps_id=answer[0] == ErrorCode.ILLEGAL_GENERATION)
        self.lose_answer(self.parties.index(party))
        return None

    # -- the heartbeat thread ---------------------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def beat(self, number):
        party = self.parties[number]
        beat = party.member.beat() if party.beat is None else None
        if beat is not None:
            code = self.coordinator.heartbeat(beat.member.member_id, beat.member.generation)
            party.beat = beat, self.now, code
            self._heard(None if code in REMOVED else beat.member.member_id)

    @rule(number=NUMBERS, arrives=st.booleans())
    def heartbeat_answered(self, number, arrives):
        party = self.parties[number]
        if party.beat is None:
            return
        (beat, sent, code), party.beat = party.beat, None
        if not arrives:
            return
        if code == ErrorCode.NONE:
            party.member.confirmed(beat, sent)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            party.member.rebalance_begun(beat, sent)
        else:
            party.member.beat_refused(beat, keeps_id=code == ErrorCode.ILLEGAL_GENERATION)

    def keep_alive(self, number):
        self.heartbeat_answered(number, arrives=True)
        self.beat(number)
        self.heartbeat_answered(number, arrives=True)

    # -- steps that often follow each other -------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def notice(self, number):
        self.begin(number)
        self.beat(number)
        self.heartbeat_answered(number, arrives=True)

    @rule(number=NUMBERS)
    def own(self, number):
        self.look(number)
        self.release_what_is_not_in_the_share(number)
        self.acquire(number)

    @initialize(settled=st.booleans())
    def settle(self, settled):
        for _ in range(2 * settled):
            self.rebalance(None, [0, 1, 2, 0, 1], lost=())

    @rule(begun_by=st.none() | NUMBERS, owners=OWNERS, lost=st.sets(NUMBERS))
    def rebalance(self, begun_by, owners, lost):
        """All members join, and the answers to the SyncGroup requests of some are lost.

        Args:
            begun_by: the member that wants a new assignment, if one does.
            owners: what the leader assigns.
            lost: the members that do not get their assignments.
        """
        if begun_by is not None:
            self.join_again(begun_by)
        self._all_join((begun_by or 0, 0, 1, 2))
        self._all_synchronise((0, 1, 2), owners, lost)

    def _all_join(self, numbers):
        for number in numbers:
            self.notice(number)
            self.look(number)
            self.release_what_is_not_in_the_share(number)
            self.join(number, arrives=True)

    def _all_synchronise(self, numbers, owners, lost=()):
        for number in numbers:
            self.synchronise(number, arrives=True, owners=owners)
        for number in numbers:
            (self.lose_answer if number in lost else self.take_assignment)(number)
        for number in numbers:
            self.own(number)
            self.no_partition_has_two_owners()

    @rule(begun_by=NUMBERS, owners=OWNERS, partition=PARTITION)
    def rebalance_while_one_is_renewed(self, begun_by, owners, partition):
        """A partition that is to be acquired again is not declared, and its owner does not get its assignment."""
        renewed = TopicPartition("t", partition)
        renewing = [number for number in range(3) if renewed in self.parties[number].member.held]
        for number in renewing:
            self.release_one(number, partition)
        self.rebalance(begun_by, owners, lost=renewing)

    @rule(number=NUMBERS)
    def leave(self, number):
        """The member leaves, and a new one takes its place."""
        party, self.parties[number] = self.parties[number], _Party(self.cooperative)
        party.member.leave()
        if party.member.leaving is not None:
            self.coordinator.remove(party.member.leaving.member_id)
            self._heard()
        assert not party.ids & self.coordinator.members.keys(), "the group waits for a session timeout"

    # -- the coordinator --------------------------------------------------------------------------------------------

    @rule(number=NUMBERS, owners=OWNERS)
    def session_times_out(self, number, owners):
        """The others take what the member had, which may hold it still."""
        others = {0, 1, 2} - {number}
        names = self.parties[number].ids & self.coordinator.members.keys()
        if names:
            self.wait_until(max(self.heard[name] for name in names) + SESSION_S, alive=others)
            self._remove(names)
            self._all_join(others)
            self._all_synchronise(others, owners)

    @rule(number=NUMBERS, owners=OWNERS, synchronises=st.booleans(), is_removed_first=st.booleans())
    def is_removed_while_it_joins(self, number, owners, synchronises, is_removed_first):
        """It hears that by a heartbeat, and begins again, before the answer to its request to join arrives.

        Args:
            number: the member.
            owners: what the leader assigns.
            synchronises: True if the request is SyncGroup.
            is_removed_first: True if the coordinator removes it before it answers the request.
        """
        party = self.parties[number]
        self.lose_answer(number)
        self.join_again(number)
        self._all_join((number, *{0, 1, 2} - {number}))
        if synchronises:
            self.synchronise(number, arrives=True, owners=owners)
        if not is_removed_first:
            self._all_synchronise({0, 1, 2} - {number}, owners)
        self.heartbeat_answered(number, arrives=True)
        self._remove(party.ids & self.coordinator.members.keys())
        self.notice(number)
        self.begin(number)
        begun_again = party.member.step is JoinStep.FORMER  # otherwise it was not in the group yet, or its leader
        before = party.member.state, party.member.identity
        self.synchronise(number, arrives=True, owners=owners)
        self.take_assignment(number)
        assert not begun_again or (party.member.state, party.member.identity) == before

    @rule(number=NUMBERS, owners=OWNERS)
    def rebalance_times_out(self, number, owners):
        """Those that have not joined are removed, although their heartbeats are answered, and the others continue."""
        others = {0, 1, 2} - {number}
        self.join_again(min(others))
        self._all_join((min(others), *others))
        if self.rebalancing_since is not None:
            self.wait_until(self.rebalancing_since + REBALANCE_S, alive={0, 1, 2})
            self._remove(set(self.coordinator.time_out()))
            self._all_synchronise(others, owners)

    def _remove(self, names):
        for name in names:
            self.coordinator.remove(name)
        self._heard()

    @invariant()
    def a_member_that_is_assigned_something_is_in_the_group(self):
        """Otherwise it sends no heartbeats, and never hears that it has to join again."""
        for party in self.parties:
            assert party.member.in_group or party.member.state is not MembershipState.STABLE

    def teardown(self):
        """When all messages arrive, each member soon holds what it is assigned, and each partition has an owner."""
        for number in range(3):
            self.lose_answer(number)
            self.heartbeat_answered(number, arrives=False)
        for _ in range(12):
            self.rebalance(None, [0, 1, 2, 0, 1], lost=())
        for party in self.parties:
            assert party.member.held.keys() == self.coordinator.members[party.member.member_id].assigned
        assert sum(len(party.member.held) for party in self.parties) == len(PARTITIONS)
        for number in range(3):
            self.leave(number)
        assert self.coordinator.members == {}


class _EagerGroups(BrokerGroups):
    cooperative = False


TestCooperativeGroups = BrokerGroups.TestCase
TestEagerGroups = _EagerGroups.TestCase
TestCooperativeGroups.settings = TestEagerGroups.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None
)
