"""A topic that is deleted and created again while a group consumes it."""

from tests.chaos.group import PARTITIONS, SETTLING_S, Group
from tests.chaos.kinds import OURS
from tests.chaos.members import await_condition
from tests.fixtures.sandbox import produce_records
from zkconsumer.testing.ledger import Delivered, SessionEnded

OLD, NEW = 600, 60
"""New partitions are shorter than the stored offsets: these are out of range, as the JVM's members find them, too."""


def consume_recreated_topic(servers, name):
    """Numbers of all deliveries; and True if no session has ended before the members left."""

    def produce(numbers):
        records = [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in numbers]
        produce_records(servers.box.bootstrap_servers, name, records)

    def delivered():
        return [one.number for one in group.recorded().of(Delivered)]

    with Group(servers, name) as group:
        group.join((OURS, OURS, OURS), delivering=False)
        produce(range(OLD))
        await_condition(lambda: set(range(OLD)) <= set(delivered()), "the first topic is read", SETTLING_S)
        servers.topics.delete(name)
        servers.topics.create(name, PARTITIONS)
        new = range(OLD, OLD + NEW)
        produce(new)
        await_condition(lambda: set(new) <= set(delivered()), "the second topic is read", SETTLING_S)
        group.settle()
        undisturbed = not group.whole_ledger().of(SessionEnded)
        group.leave_all()
        return sorted(delivered()), undisturbed


def test_a_topic_that_is_created_again_is_read_from_its_start(servers):
    for attempt in range(3):
        delivered, undisturbed = consume_recreated_topic(servers, f"recreated-{attempt}")
        if undisturbed:
            break
    # On a machine that stands still, sessions end, and what was not committed is delivered again.
    assert delivered == [*range(OLD + NEW)], "no record is delivered twice"
