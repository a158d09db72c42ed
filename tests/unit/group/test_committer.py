"""What commit_offsets() promises about the batch in the user's hands, with the queue that handed it out."""

from unittest.mock import Mock

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_queue, take
from tests.fixtures.groupprotocol import CommandedGroup, FetchInMemory, Member
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import NotOwner, OffsetsNotStored, OwnershipConflict, ZooKeeperUnavailable
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.model import Stamp, TopicPartition

P0, P1 = (TopicPartition("t", number) for number in range(2))


class Reading:
    """A member that commits on request only, and a stream that reads partition 1."""

    def __init__(self, *, incremental):
        config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g")
        self.queue = make_queue()
        self.fetch = LocalFetchControl("g_c", config, lambda: (), lambda topic, thread: self.queue)
        self.member = Member(incremental=incremental, fetch=self.fetch, auto_commit_enable=False, commit_on="next")
        self.member.store.offsets = {P0: 0, P1: 0}
        self.reader = ChunkReader(self.queue)
        self.member.rebalance(0, 1)

    def hold(self, start, count):
        """Hand a batch of partition 1 to the user, who has not asked for more yet."""
        info = self.fetch._infos[P1]
        assert info.fetched == start
        assert self.queue.put(make_fetched_chunk(info, start, count))
        assert take(self.reader, self.queue).info is info

    def commit(self, *, of_stream=False):
        only = self.fetch.partitions_of(self.queue) if of_stream else None
        self.member.committer.commit(None, force=False, only=only)


@pytest.fixture(params=[True, False], ids=["incremental", "all at once"])
def reading(request):
    made = Reading(incremental=request.param)
    yield made
    made.fetch.stop()


@pytest.mark.parametrize("of_stream", [False, True])
def test_a_batch_that_was_taken_away_is_not_committed_in_silence(reading, of_stream):
    """At most once: the next owner begins before this batch, so its holder must not process it."""
    reading.hold(0, 5)
    reading.member.rebalance(0)
    with pytest.raises(NotOwner, match="t-1"):
        reading.commit(of_stream=of_stream)
    with pytest.raises(NotOwner):
        reading.commit(of_stream=of_stream)
    assert reading.member.offsets() == {0: 0, 1: 0}


def test_what_is_still_owned_is_committed_although_a_batch_was_taken_away(reading):
    reading.hold(0, 5)
    reading.member.rebalance(0)
    reading.fetch._infos[P0].consumed = 7
    with pytest.raises(NotOwner):
        reading.commit()
    assert reading.member.offsets() == {0: 7, 1: 0}


def test_a_batch_that_was_committed_and_then_taken_away_raises_nothing(reading):
    """A thread commits what another stream's thread processes meanwhile."""
    reading.hold(0, 5)
    reading.commit()
    reading.member.rebalance(0)
    reading.commit()
    assert reading.member.offsets() == {0: 0, 1: 5}


def test_a_batch_that_was_committed_before_its_offset_went_back_is_refused(reading):
    """1. 5 is committed; 2. the next owner sets 0; 3. the partition is back, and its batch is taken away again."""
    reading.hold(0, 5)
    reading.commit()
    reading.member.rebalance(0)
    reading.member.store.offsets[P1] = 0
    reading.member.rebalance(0, 1)
    reading.hold(0, 5)
    reading.member.rebalance(0)
    with pytest.raises(NotOwner, match="t-1"):
        reading.commit()
    assert reading.member.offsets()[1] == 0


def test_a_batch_whose_commit_was_stored_without_an_answer_is_committed(reading, monkeypatch):
    """1. The answer is lost; 2. the session, too; 3. the partition comes back; 4. the commit is repeated."""
    reading.hold(0, 5)
    store = reading.member.store

    def stored_without_an_answer(offsets, **_):
        store.offsets.update(offsets)
        raise ZooKeeperUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", stored_without_an_answer)
        with pytest.raises(ZooKeeperUnavailable):
            reading.commit()
    reading.member.rebalancer.membership_lost()
    reading.member.rebalance(0, 1)
    reading.commit()
    reading.member.rebalance(0)
    reading.commit()
    assert reading.member.offsets()[1] == 5


def test_a_batch_that_was_released_and_then_taken_away_raises_nothing(reading):
    """Its user is done with it: its next owner reads it again, which at least once allows."""
    reading.hold(0, 5)
    reading.queue.finish()
    reading.member.rebalance(0)
    reading.commit()


def test_a_batch_of_a_partition_that_stays_is_committed_after_the_rebalance(reading):
    reading.hold(0, 5)
    reading.member.rebalance(1)
    reading.commit()
    assert reading.member.offsets()[1] == 5


@pytest.mark.parametrize("committed", [5, 20])
def test_a_batch_of_a_partition_that_was_away_is_refused(reading, committed):
    """Another member owned it meanwhile, and has processed the batch: also if it left right after it."""
    reading.hold(0, 5)
    reading.member.rebalance(0)
    reading.member.store.offsets[P1] = committed
    reading.member.rebalance(0, 1)
    for _ in range(2):
        with pytest.raises(NotOwner, match="t-1"):
            reading.commit()
    assert reading.member.offsets()[1] == committed
    reading.queue.finish()
    reading.commit()


def test_a_batch_is_refused_if_another_member_committed_it_between_two_attempts(reading):
    reading.hold(0, 5)
    group = reading.member.group
    group.command(0)
    group.reassign = lambda **_: (_ for _ in ()).throw(OwnershipConflict({P0: "g_other-0"}))
    assert isinstance(reading.member.rebalancer.rebalance().error, OwnershipConflict)
    del group.reassign
    reading.member.store.offsets[P1] = 5
    reading.member.rebalance(0, 1)
    with pytest.raises(NotOwner, match="t-1"):
        reading.commit()
    assert reading.member.offsets()[1] == 5


@pytest.mark.parametrize("user_asks", [True, False])
def test_a_commit_asks_what_is_held_as_often_for_many_partitions_as_for_few(user_asks):
    """Once for each partition made the commit of 3,000 partitions take 48 s."""

    class CountingGroup(CommandedGroup):
        times = 0

        @property
        def held(self):
            self.times += 1
            return self._held

        @held.setter
        def held(self, held):
            self._held = held

    times = []
    for partitions in (2, 200):
        member = Member(incremental=True, group=CountingGroup(incremental=True))
        member.rebalance(*range(partitions))
        member.fetch.move(**{f"p{number}": 5 for number in range(partitions)})
        member.group.times = 0
        if user_asks:
            member.committer.commit(None, force=False)
        else:
            member.committer.commit_automatically()
        assert len(member.offsets()) == partitions
        times.append(member.group.times)
    assert times[0] == times[1]


@pytest.mark.parametrize(("stored", "start"), [(5, 40), (39, 40), (38, 38)])
def test_a_partition_whose_commits_are_refused_keeps_its_position_unless_another_client_writes(
    monkeypatch, stored, start
):
    """The answer to the first commit is lost; each later one is refused, also one with the same offset again."""
    member = Member(incremental=True, auto_commit_enable=False)
    member.rebalance(0)
    answers = [ZooKeeperUnavailable("no answer"), *[set()] * 36]
    monkeypatch.setattr(member.store, "commit", Mock(side_effect=answers))
    with pytest.raises(ZooKeeperUnavailable):
        member.committer.commit({P0: 5}, force=False)
    for offset in (5, *range(5, 40)):
        with pytest.raises(OffsetsNotStored):
            member.committer.commit({P0: offset}, force=False)
    assert member.committer.partitions[P0].sent == {5}
    member.fetch.move(p0=40)
    member.rebalancer.membership_lost()
    member.store.offsets = {P0: stored}
    member.rebalance(0)
    assert member.fetch.starts == {P0: start}


class Planned(FetchInMemory):
    """The data plane of a query: another thread ends batch 2, at offset 20, at one moment of a commit."""

    def __init__(self, moment):
        super().__init__()
        self.moment = moment
        self.plan = 1

    def positions(self, *, handed_out):
        positions = super().positions(handed_out=handed_out)
        self.come_to("positions")
        return positions

    def come_to(self, moment):
        if moment == self.moment and self.last.get(P0) == 10:
            self.move(p0=20)
            self.plan = 2


class SlowGroup(CommandedGroup):
    """A group that asks servers which topics were created again, between positions and the write of a commit."""

    def recreated(self, partitions):
        self.fetch.come_to("recreated")
        return super().recreated(partitions)


@pytest.mark.parametrize(("moment", "stored"), [("positions", (20, 2)), ("recreated", (10, 1)), ("never", (10, 1))])
@pytest.mark.parametrize("by_timer", [True, False])
def test_an_offset_has_the_stamp_of_its_own_plan(moment, stored, by_timer):
    """With that of a later plan, a query that is killed then would take it for an offset that an operator has set."""
    fetch, group = Planned(moment), SlowGroup(incremental=True)
    group.fetch = fetch
    member = Member(incremental=True, fetch=fetch, group=group, stamp=lambda: Stamp("q", fetch.plan))
    member.rebalance(0)
    fetch.move(p0=10)
    if by_timer:
        member.committer.commit_automatically()
    else:
        member.committer.commit(None, force=False)
    assert (member.offsets()[0], member.store.stamps[P0].plan) == stored
