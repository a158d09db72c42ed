"""Members of a group in which the broker assigns, with lost and late heartbeats: no partition has two owners."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.fixtures.consumergroupmodel import Coordinator
from tests.fixtures.rebalancethreads import LEASE, NUMBERS, REBALANCE_S, SESSION_S, RebalanceThreads
from zkconsumer.group.consumer.rules.epochmember import LEAVING, EpochBeat, EpochMember, IdPartition
from zkconsumer.model import TopicPartition

PARTITIONS = frozenset(IdPartition("id", number) for number in range(5))
TOPICS = ("t",)
OWNERS = st.lists(NUMBERS, min_size=5, max_size=5)


class _Party:
    """A member, its heartbeat that is not answered yet, and the share that its rebalance thread is about to acquire.

    Attributes:
        waiting: the heartbeat, when it was sent, and its answer; None if it does not arrive.
    """

    def __init__(self, name):
        self.member = EpochMember(member_id=name, lease=LEASE)
        self.member.name_topics({"t": "id"})
        self.waiting = None
        self.share = frozenset()


class ConsumerGroups(RebalanceThreads):
    """Each rule is one step of one thread of one member, or of the coordinator.

    Attributes:
        heard: when the coordinator last heard of each member.
        revoking_since: when it began to wait until a member has released partitions.
    """

    def __init__(self):
        super().__init__()
        self.coordinator = Coordinator(PARTITIONS)
        self.parties = [_Party(name) for name in "abc"]
        self.heard, self.revoking_since = {}, {}

    # -- the session thread -----------------------------------------------------------------------------------------

    @rule(number=NUMBERS, arrives=st.booleans())
    def send(self, number, arrives):
        party = self.parties[number]
        if party.waiting is None:
            beat = party.member.beat(TOPICS)
            if beat is not None:
                party.waiting = beat, self.now, self._processed(beat) if arrives else None

    def _processed(self, beat):
        name, answer = beat.member.member_id, self.coordinator.answer(beat)
        self.heard[name] = self.now
        if name in self.coordinator.members and self.coordinator.members[name].revoking:
            self.revoking_since.setdefault(name, self.now)
        else:
            self.revoking_since.pop(name, None)
        return answer

    @rule(number=NUMBERS, arrives=st.booleans())
    def answer(self, number, arrives):
        party = self.parties[number]
        if party.waiting is not None:
            (beat, sent, answer), party.waiting = party.waiting, None
            if not arrives or answer is None:
                party.member.unanswered()
            elif answer[0]:
                party.member.unanswered()
                party.member.refused(keeps_id=False)
            else:
                party.member.answered(beat, *answer[1:], sent)

    def keep_alive(self, number):
        self.answer(number, arrives=True)
        self.send(number, arrives=True)
        self.answer(number, arrives=True)

    @rule(number=NUMBERS)
    def follow(self, number):
        """All steps of both threads, undisturbed."""
        self.begin(number)
        self.send(number, arrives=True)
        self.answer(number, arrives=True)
        self.look(number)
        self.release_what_is_not_in_the_share(number)
        self.acquire(number)

    @initialize(settled=st.booleans())
    def settle(self, settled):
        self.all_follow({0, 1, 2} if settled else ())

    def all_follow(self, numbers):
        for _ in range(2):
            for number in numbers:
                self.follow(number)
                self.no_partition_has_two_owners()

    @rule(number=NUMBERS, partition=st.integers(0, 4), owner=NUMBERS)
    def report_while_one_is_renewed(self, number, partition, owner):
        """A partition that is to be taken again is not reported, and the coordinator gives it to another member."""
        self.release_one(number, partition)
        self.coordinator.move(partition, owner)
        self.send(number, arrives=True)
        self.look(number)
        self.acquire(number)
        self.follow(owner)

    # -- the coordinator --------------------------------------------------------------------------------------------

    @rule(owners=OWNERS)
    def assign(self, owners):
        self.coordinator.assign(owners)

    @rule(number=NUMBERS)
    def session_times_out(self, number):
        """The others take what the member had, which may hold it still."""
        name, others = self.parties[number].member.member_id, {0, 1, 2} - {number}
        if name in self.coordinator.members:
            self.wait_until(self.heard[name] + SESSION_S, alive=others)
            self._remove(name)
            self.all_follow(others)

    @rule(number=NUMBERS, owners=OWNERS)
    def release_times_out(self, number, owners):
        """A member that does not release what it has to is removed, although its heartbeats are answered."""
        name, others = self.parties[number].member.member_id, {0, 1, 2} - {number}
        self.coordinator.assign(owners)
        self.keep_alive(number)
        if name in self.revoking_since:
            self.wait_until(self.revoking_since[name] + REBALANCE_S, alive={0, 1, 2})
        if name in self.revoking_since:
            self._remove(name)
            self.all_follow(others)

    def _remove(self, name):
        self.coordinator.remove(name)
        self.revoking_since.pop(name, None)

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
            party.member.leave()
            leaving = party.member.leaving
            assert leaving is not None
            assert leaving.generation == LEAVING
            self._processed(EpochBeat(leaving, full=False, topics=None, owned=None))
        assert self.coordinator.members == {}


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
