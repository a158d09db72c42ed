"""Members of a group in which the broker assigns, with lost and late heartbeats: no partition has two owners."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.fixtures.consumergroupmodel import Coordinator
from tests.fixtures.rebalancethreads import NUMBERS, RebalanceThreads
from zkconsumer.group.consumer.rules.membership import LEAVING, Beat, ConsumerMembership, IdPartition
from zkconsumer.group.kafka.rules.membership import MembershipState
from zkconsumer.model import TopicPartition

PARTITIONS = frozenset(IdPartition("id", number) for number in range(5))
TOPICS = ("t",)
OWNERS = st.lists(NUMBERS, min_size=5, max_size=5)


class _Party:
    """A member, its heartbeat that is not answered yet, and the share that its rebalance thread is about to acquire."""

    def __init__(self, name):
        self.member = ConsumerMembership(name)
        self.member.name_topics({"t": "id"})
        self.waiting = None
        self.share = frozenset()
        self.lapsed = False


class ConsumerGroups(RebalanceThreads):
    """Each rule is one step of one thread of one member, or of the coordinator."""

    def __init__(self):
        super().__init__()
        self.coordinator = Coordinator(PARTITIONS)
        self.parties = [_Party(name) for name in "abc"]

    # -- the session thread -----------------------------------------------------------------------------------------

    @rule(number=NUMBERS, arrives=st.booleans())
    def send(self, number, arrives):
        party = self.parties[number]
        if party.waiting is None:
            beat = party.member.beat(TOPICS)
            if beat is not None:
                party.waiting = beat, self.coordinator.answer(beat) if arrives else None

    @rule(number=NUMBERS, arrives=st.booleans())
    def answer(self, number, arrives):
        party = self.parties[number]
        if party.waiting is not None:
            (beat, answer), party.waiting = party.waiting, None
            self._answered(party, beat, answer if arrives else None)

    def _answered(self, party, beat, answer):
        if answer is None:
            party.member.unanswered()
            party.lapsed = party.lapsed and party.member.epoch > 0
        elif answer[0]:
            party.member.unanswered()
            party.member.fence()
        else:
            party.member.answered(beat, *answer[1:])

    @rule(number=NUMBERS)
    def follow(self, number):
        """All steps of both threads, undisturbed."""
        self.begin(number)
        self.send(number, arrives=True)
        self.answer(number, arrives=True)
        self.look(number)
        self.release_what_is_not_in_the_share(number)
        self.acquire(number)

    @rule(number=NUMBERS, partition=st.integers(0, 4), owner=NUMBERS)
    def report_while_one_is_renewed(self, number, partition, owner):
        """A partition that is to be taken again is not reported, and the coordinator gives it to another member."""
        self.release_one(number, partition)
        self.coordinator.move(partition, owner)
        self.send(number, arrives=True)

    # -- the coordinator --------------------------------------------------------------------------------------------

    @rule(owners=OWNERS)
    def assign(self, owners):
        self.coordinator.assign(owners)

    @rule(number=NUMBERS)
    def session_times_out(self, number):
        """The lease has lapsed before: what is held is not used any more."""
        party = self.parties[number]
        if party.member.member_id in self.coordinator.members:
            self.coordinator.remove(party.member.member_id)
            party.lapsed = party.member.epoch > 0 or party.waiting is not None

    # -- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self):
        held = [partition for party in self.parties if not self._is_idle(party) for partition in party.member.held]
        assert len(held) == len(set(held)), [dict(party.member.held) for party in self.parties]

    @staticmethod
    def _is_idle(party):
        return party.lapsed or party.member.state is MembershipState.FENCED

    def teardown(self):
        """When all messages arrive, each member soon holds its target."""
        for party in self.parties:
            self.answer(self.parties.index(party), arrives=False)
        for _ in range(12):
            for number in range(3):
                self.follow(number)
                self.no_partition_has_two_owners()
        for party in self.parties:
            wanted = {TopicPartition("t", one.partition) for one in self.coordinator.target[party.member.member_id]}
            assert party.member.held.keys() == wanted
        assert sum(len(party.member.held) for party in self.parties) == len(PARTITIONS)
        for party in self.parties:
            leaving = party.member.leave()
            assert leaving is not None
            assert leaving.generation == LEAVING
            self.coordinator.answer(Beat(leaving, full=False, topics=None, owned=None))
        assert self.coordinator.members == {}


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
