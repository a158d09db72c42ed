"""``commit.on=done``: what a member commits before, in and after rebalances, with the queue that handed out records."""

import pytest

from tests.fixtures.chunks import make_fetched_chunk, make_queue
from tests.fixtures.groupprotocol import Member
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.stream import MessageStream
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.fetch.rules.fetchcontrol import StreamPartitions
from zkconsumer.model import Message, TopicPartition

P0, P1 = (TopicPartition("t", number) for number in range(2))


class Reading:
    """A member of two partitions, and a stream that reads both."""

    def __init__(self, *, incremental):
        config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", commit_on="done")
        self.queue = make_queue(max_chunks=100, max_unfinished=100)
        self.stream = MessageStream(self.queue, name="g_c-0", kind=Message, timeout_ms=0)
        self.fetch = LocalFetchControl("g_c", config, lambda: (), lambda topic, thread: self.queue)
        self.member = Member(incremental=incremental, fetch=self.fetch, commit_on="done")
        self.member.store.offsets = {P0: 0, P1: 0}
        self.member.rebalance(0, 1)

    def take(self, partition, start, count):
        """Hand out records of one partition."""
        info = self.fetch._infos[partition]
        assert info.start <= start
        self.queue.put(make_fetched_chunk(info, start, count))
        return [self.stream.next_message() for _ in range(count)]

    def finish(self, *messages):
        for message in messages:
            self.stream.done(message)

    def commit(self):
        self.member.committer.commit(None, force=False)

    def other_member_commits(self, partition, offset):
        self.member.store.offsets[partition] = offset

    @property
    def offsets(self):
        return self.member.offsets()


@pytest.fixture(params=[True, False], ids=["incremental", "all at once"])
def reading(request):
    made = Reading(incremental=request.param)
    yield made
    made.fetch.stop()


def commit_by_timer(reading):
    reading.member.committer.commit_automatically()


def commit_on_request(reading):
    reading.commit()


def commit_at_the_release(reading):
    reading.member.rebalance()


@pytest.mark.parametrize("commit", [commit_by_timer, commit_on_request, commit_at_the_release])
def test_a_commit_ends_before_the_first_record_that_is_not_done(reading, commit):
    first, _second, third = reading.take(P1, 0, 3)
    reading.finish(first, third)
    commit(reading)
    assert reading.offsets == {0: 0, 1: 1}


def test_records_of_a_partition_that_stays_are_finished_after_the_rebalance(reading):
    first, second, third = reading.take(P1, 0, 3)
    reading.finish(second)
    reading.member.rebalance(1)
    reading.finish(first)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 2}
    (fourth,) = reading.take(P1, 3, 1)
    reading.finish(fourth)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 2}
    reading.finish(third)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 4}


@pytest.mark.parametrize("committed", [0, 2, 7])
def test_late_records_of_a_partition_that_was_away_move_nothing(reading, committed):
    late = reading.take(P1, 0, 3)
    reading.member.rebalance(0)
    reading.other_member_commits(P1, committed)
    reading.member.rebalance(0, 1)
    reading.finish(*late)
    reading.commit()
    assert reading.offsets == {0: 0, 1: committed}
    again = reading.take(P1, committed, 2)
    reading.finish(*late)
    reading.commit()
    assert reading.offsets == {0: 0, 1: committed}
    reading.finish(*again)
    reading.commit()
    assert reading.offsets == {0: 0, 1: committed + 2}


def test_what_another_member_committed_between_two_attempts_ends_what_was_handed_out(reading):
    """The partition is in both assignments, and was another member's in between."""
    late = reading.take(P1, 0, 3)
    reading.member.rebalancer.membership_lost()
    reading.other_member_commits(P1, 1)
    reading.member.rebalance(0, 1)
    reading.finish(*late)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 1}
    reading.finish(*reading.take(P1, 1, 1))
    reading.commit()
    assert reading.offsets == {0: 0, 1: 2}


def test_a_member_that_lapsed_keeps_what_no_other_one_had(reading):
    first, second = reading.take(P1, 0, 2)
    reading.member.rebalancer.membership_lost()
    reading.finish(second)
    reading.member.rebalance(0, 1)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 0}
    reading.finish(first)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 2}


def test_a_commit_of_some_partitions_leaves_the_others(reading):
    reading.finish(*reading.take(P0, 0, 2), *reading.take(P1, 0, 3))
    reading.member.committer.commit(None, force=False, only=StreamPartitions([P1]))
    assert reading.offsets == {0: 0, 1: 3}


def test_an_explicit_offset_is_committed_whatever_is_done(reading):
    reading.take(P1, 0, 3)
    reading.member.committer.commit({P1: 2}, force=False)
    reading.member.committer.commit_automatically()
    assert reading.offsets == {0: 0, 1: 2}


def test_a_lost_partition_is_no_error_of_a_commit(reading):
    """Its records are not done, so the commit was not to cover them."""
    reading.take(P1, 0, 3)
    reading.member.rebalance(0)
    reading.commit()
    assert reading.offsets == {0: 0, 1: 0}
    assert reading.fetch.unfinished() == {}
