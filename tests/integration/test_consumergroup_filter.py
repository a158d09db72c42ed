"""group.protocol=consumer: topics of a filter that the coordinator selects, and the rack, in each release from 4.0."""

import re
import threading
from contextlib import closing

import pytest

from tests.fixtures.consumers import FIRST_OF_BROKER, collect, consumers, owned, parts
from tests.fixtures.fetch import brokers_of
from tests.fixtures.interrupts import Alarm, by_next_message, read_under_fire
from tests.fixtures.peers import Confluent
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.waiting import eventually
from zkconsumer import Blacklist, Whitelist
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.group.consumer import heartbeatsession
from zkconsumer.group.kafka.consumerdescribe import CONSUMER_GROUP_DESCRIBE
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.fields import encode_compact_array, encode_compact_string
from zkconsumer.wire.findcoordinator import CoordinatorClient

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BROKER = {"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "300"}
SETTINGS = {
    "group_protocol": "consumer",
    "metadata_max_age_ms": 3_600_000,  # no member reads topics before a test ends, unless it has a reason
    "rebalance_backoff_ms": 1000,
    **FIRST_OF_BROKER,
}
of_releases = pytest.mark.parametrize("box", ["4.0.1", "4.1.1", "4.2.0"], indirect=True)
of_newest = pytest.mark.parametrize("box", ["4.2.0"], indirect=True)


@pytest.fixture(scope="module")
def box(request):
    with Sandbox(kafka_version=request.param, zookeepers=0, kafka_properties=BROKER, progress=Progress()) as started:
        yield started


@pytest.fixture
def member(box, unique_name):
    """Make members of one group; all are shut down at the end."""
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **SETTINGS) as make:
        yield make


@pytest.fixture
def create(box, unique_name):
    """Create a topic of two partitions whose name the filter of the test selects."""
    return lambda suffix: Topics(box.bootstrap_servers).create(f"{unique_name}-{suffix}", 2)


def described(box, group):
    """What the group's coordinator answers to a ConsumerGroupDescribe, as bytes."""
    servers = brokers_of(box.bootstrap_servers)
    body = encode_compact_array([encode_compact_string(group)]) + b"\0\0"
    with closing(BrokerClient(lambda: servers, client_id="test", timeout_ms=10_000)) as client:
        return CoordinatorClient(client, group).ask(
            lambda connection: connection.exchange(CONSUMER_GROUP_DESCRIBE, 0, body, bytes, flexible=True)
        )


@of_releases
def test_topics_that_are_created_later_are_shared_although_no_member_looks_for_them(box, member, create, unique_name):
    first = create("1")
    one, other = member(client_rack="rack-one"), member()
    pattern = Whitelist(rf"{unique_name}-\d+")
    received = [collect(each.create_message_streams_by_filter(pattern, 1)) for each in (one, other)]
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    answer = described(box, unique_name)
    assert b"rack-one" in answer
    assert (re.escape(f"{unique_name}-") + "[0123456789]+").encode() in answer
    second = create("2")
    create("not")
    produce_records(box.bootstrap_servers, first, values(20))
    produce_records(box.bootstrap_servers, second, values(20, start=20))
    eventually(lambda: owned(one) | owned(other) == parts(first, 0, 1) | parts(second, 0, 1))
    eventually(lambda: {*received[0], *received[1]} == {*values(40)})


@of_newest
def test_a_filter_is_shared_with_a_member_that_selects_topics_itself(box, member, create, unique_name):
    first, second = create("1"), create("2")
    one, other = member(), member(metadata_max_age_ms=500)
    received = collect(one.create_message_streams_by_filter(Whitelist(f"{unique_name}.*"), 1))
    more = collect(other.create_message_streams_by_filter(Blacklist(f"(?!{unique_name}).*"), 1))
    with closing(Confluent(box.bootstrap_servers, unique_name, first, None)) as third:
        everything = parts(first, 0, 1) | parts(second, 0, 1)
        eventually(lambda: third.owned and owned(one) and owned(other))
        eventually(lambda: owned(one) | owned(other) | third.owned == everything)
        for number, topic in enumerate((first, second)):
            produce_records(box.bootstrap_servers, topic, values(20, start=20 * number))
        eventually(lambda: {*received, *more, *third.values} == {*values(40)})
    added = create("3")
    eventually(lambda: owned(one) | owned(other) == everything | parts(added, 0, 1))


@of_newest
def test_a_filter_is_exchanged_for_one_that_the_member_evaluates(member, create, unique_name):
    """The coordinator must forget the regex, or it would assign topics that the member does not read."""
    first, second = create("1"), create("2")
    one, other = member(metadata_max_age_ms=500), member()
    collect(one.create_message_streams_by_filter(Whitelist(f"{unique_name}-.*"), 1))
    eventually(lambda: owned(one) == parts(first, 0, 1) | parts(second, 0, 1))
    one.subscribe(Whitelist(f"{unique_name}-(?!1).*"))
    eventually(lambda: owned(one) == parts(second, 0, 1))
    collect(other.create_message_streams({first: 1})[first])
    eventually(lambda: owned(other) == parts(first, 0, 1))
    one.subscribe(Whitelist(f"{unique_name}-[1-3]"))
    third = create("3")
    eventually(lambda: owned(one) | owned(other) == parts(first, 0, 1) | parts(second, 0, 1) | parts(third, 0, 1))


@of_newest
def test_a_regex_that_the_coordinator_does_not_accept_is_evaluated_by_the_member(
    member, create, unique_name, monkeypatch, caplog
):
    monkeypatch.setattr(Whitelist, "broker_regex", lambda *_, **__: "a(?!b)")
    first = create("1")
    one = member(metadata_max_age_ms=500)
    collect(one.create_message_streams_by_filter(Whitelist(f"{unique_name}-.*"), 1))
    eventually(lambda: owned(one) == parts(first, 0, 1))
    second = create("2")
    eventually(lambda: owned(one) == parts(first, 0, 1) | parts(second, 0, 1))
    assert [record.levelname for record in caplog.records if "does not accept the regex" in record.message] == [
        "WARNING"
    ]


@of_newest
@pytest.mark.timeout(300, method="thread")  # the other method needs the timer of the test
def test_a_member_is_interrupted_while_a_topic_is_added_and_another_member_joins(box, member, create, unique_name):
    count = 5000
    produce_records(box.bootstrap_servers, create("1"), values(count))
    pattern = Whitelist(f"{unique_name}-.*")
    (stream,) = member(consumer_timeout_ms=500).create_message_streams_by_filter(pattern, 1)
    got, of_other, weapon = [], [], Alarm()

    def disturb():
        eventually(lambda: len(got) > 1000)
        of_other.append(collect(member().create_message_streams_by_filter(pattern, 1)))
        produce_records(box.bootstrap_servers, create("2"), values(count, start=count))

    disturbing = threading.Thread(target=disturb)
    disturbing.start()

    def received():
        return {message.value for message in got}.union(*of_other)

    with weapon.active():
        interrupts = read_under_fire(by_next_message, stream, got, weapon, lambda: len(received()) == 2 * count)
    disturbing.join()
    assert interrupts > 0
    assert received() == {*values(2 * count)}


def test_a_coordinator_is_killed_while_a_member_joins_by_a_regex(private_sandbox, unique_name, monkeypatch):
    """The answer to the heartbeat that joins is lost, and the coordinator loads the group again."""
    quick = {**BROKER, "broker.session.timeout.ms": "3000"}  # it serves again when its former session has timed out
    box = private_sandbox(kafka_version="4.2.0", zookeepers=0, kafka_properties=quick)
    topics, send, killed = Topics(box.bootstrap_servers), heartbeatsession.consumer_heartbeat, []
    first = topics.create(f"{unique_name}-1", 2)

    def kill_once(connection, settings, beat):
        answer = send(connection, settings, beat)
        if beat.regex and not answer.code and not killed:
            killed.append(beat)
            box.brokers[0].kill()
            threading.Thread(target=box.brokers[0].start).start()
            raise BrokerUnavailable("the broker was killed")
        return answer

    monkeypatch.setattr(heartbeatsession, "consumer_heartbeat", kill_once)
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **SETTINGS) as make:
        one = make()
        received = collect(one.create_message_streams_by_filter(Whitelist(f"{unique_name}-.*"), 1))
        eventually(lambda: owned(one) == parts(first, 0, 1))
        assert killed
        second = topics.create(f"{unique_name}-2", 2)
        eventually(lambda: owned(one) == parts(first, 0, 1) | parts(second, 0, 1))
        produce_records(box.bootstrap_servers, second, values(20))
        eventually(lambda: sorted(received, key=int) == values(20))
