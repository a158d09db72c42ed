"""Members of a group whose leader assigns, with lost and late answers: no partition has two owners."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.fixtures.brokergroupmodel import Coordinator, Request
from tests.fixtures.rebalancethreads import NUMBERS, PARTITION, RebalanceThreads
from zkconsumer.group.kafka.rules.membership import Assigned, BrokerMembership, MembershipState
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode

PARTITIONS = frozenset(TopicPartition("t", number) for number in range(5))
OWNERS = st.lists(NUMBERS, min_size=5, max_size=5)


class _Party:
    """A member, its requests that are not answered yet, and the share that its rebalance thread is about to acquire.

    Attributes:
        waiting: its JoinGroup request, or SyncGroup if it has a generation: whom it names, and the request.
        beat: its heartbeat: whom it names, if the member was joining then, and the error code of the answer.
        ids: member ids that the coordinator has given to it.
        lapsed: True if the lease has lapsed: what is held is not used any more.
    """

    def __init__(self, cooperative):
        self.member = BrokerMembership(cooperative)
        self.waiting = self.beat = None
        self.share, self.ids = frozenset(), set()
        self.lapsed = False


class BrokerGroups(RebalanceThreads):
    """Each rule is one step of one thread of one member, or of the coordinator, or some of them in a usual order."""

    cooperative = True

    def __init__(self):
        super().__init__()
        self.coordinator = Coordinator(PARTITIONS, self.cooperative)
        self.parties = [_Party(self.cooperative) for _ in range(3)]

    # -- the session thread -----------------------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def join_again(self, number):
        self.parties[number].member.join_again()

    @rule(number=NUMBERS, arrives=st.booleans())
    def join(self, number, arrives):
        party = self.parties[number]
        if party.waiting is not None or not party.member.may_join():
            return
        intent, request = party.member.join(), Request()
        if arrives:
            if not intent.member_id:
                intent = intent._replace(member_id=self.coordinator.give_id())
                party.member.id_given(intent.member_id)
                party.ids.add(intent.member_id)
            self.coordinator.join(intent, request)
        party.waiting = intent.member_id, None, request

    @rule(number=NUMBERS, arrives=st.booleans(), owners=OWNERS)
    def synchronise(self, number, arrives, owners):
        """JoinGroup is answered, and SyncGroup is sent."""
        party = self.parties[number]
        answer = self._answer(party, of_join=True)
        if answer is None:
            return
        name, generation, request = party.waiting[0], answer[1], Request()
        party.member.joined(name, generation)
        if arrives:
            self.coordinator.synchronise(name, generation, request, owners)
        party.waiting = name, generation, request

    @rule(number=NUMBERS)
    def take_assignment(self, number):
        """SyncGroup is answered."""
        party = self.parties[number]
        answer = self._answer(party, of_join=False)
        if answer is not None:
            party.member.synchronised(Assigned(*answer[1:]))
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
        self._removed(party, answer[0])
        self.lose_answer(self.parties.index(party))
        return None

    @staticmethod
    def _removed(party, code):
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            party.member.fence(keeps_id=code == ErrorCode.ILLEGAL_GENERATION)

    # -- the heartbeat thread ---------------------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def beat(self, number):
        party = self.parties[number]
        member = party.member
        if party.beat is None and member.in_group:
            code = self.coordinator.heartbeat(member.member_id, member.generation)
            party.beat = member.identity, member.is_joining, code

    @rule(number=NUMBERS, arrives=st.booleans())
    def heartbeat_answered(self, number, arrives):
        party = self.parties[number]
        if party.beat is None:
            return
        (asked, joining, code), party.beat = party.beat, None
        if not arrives or asked != party.member.identity:
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS and not joining:
            party.member.rebalance_begun(asked)
        elif code != ErrorCode.ILLEGAL_GENERATION or not (joining or party.member.is_joining):
            self._removed(party, code)

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
        for number in (begun_by or 0, 0, 1, 2):
            self.notice(number)
            self.look(number)
            self.release_what_is_not_in_the_share(number)
            self.join(number, arrives=True)
        for number in range(3):
            self.synchronise(number, arrives=True, owners=owners)
        for number in range(3):
            (self.lose_answer if number in lost else self.take_assignment)(number)
        for number in range(3):
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
        leaving = party.member.leave()
        if leaving is not None:
            self.coordinator.remove(leaving.member_id)
        assert not party.ids & self.coordinator.members.keys(), "the group waits for a session timeout"

    # -- the coordinator --------------------------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def session_times_out(self, number):
        """The lease has lapsed before."""
        self._remove(self.parties[number].ids)

    @rule()
    def rebalance_times_out(self):
        self._remove(set(self.coordinator.time_out()))

    def _remove(self, names):
        for party in self.parties:
            if party.ids & names:
                party.lapsed = party.lapsed or party.member.in_group
                for name in party.ids & names:
                    self.coordinator.remove(name)

    # -- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self):
        held = [partition for party in self.parties if not self._is_idle(party) for partition in party.member.held]
        assert len(held) == len(set(held)), [dict(party.member.held) for party in self.parties]

    @staticmethod
    def _is_idle(party):
        return party.lapsed or party.member.state is MembershipState.FENCED

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
