"""The data plane on a real broker, compared with what confluent-kafka reads."""

import random
import threading
import time
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from tests.fixtures import fetch as fetch_fixtures
from tests.fixtures.decoding import messages_of
from tests.fixtures.kafka import DeleteRecordsRequest
from tests.fixtures.waiting import eventually
from zkconsumer.errors import ConsumerTimeout, CorruptRecord
from zkconsumer.model import Message, TopicPartition
from zkconsumer.wire.brokerclient import LATEST, BrokerClient

pytestmark = pytest.mark.integration
reader = fetch_fixtures.reader
with_and_without_pool = fetch_fixtures.with_and_without_pool

ISOLATION_LEVELS = ["read_committed", "read_uncommitted"]


def confluent_reads(bootstrap_servers, topic, partitions, isolation="read_uncommitted"):
    """All records that librdkafka delivers (under read_uncommitted committed and aborted alike), sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([ConfluentPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    messages, open_partitions = [], set(range(partitions))
    while open_partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():  # others than this one end by themselves
            if message.error().code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            continue
        kind, timestamp = message.timestamp()
        headers = tuple((name, value) for name, value in message.headers() or ())
        place = (message.topic(), message.partition(), message.offset())
        messages.append(Message(*place, timestamp, kind - 1, message.key(), message.value(), headers))
    consumer.close()
    return sorted(messages, key=place_of)


def place_of(message):
    return message.topic, message.partition, message.offset


def end_of(bootstrap_servers, topic, isolation):
    """Where the only partition ends for a reader with this isolation level."""
    brokers = partial(fetch_fixtures.brokers_of, bootstrap_servers)
    with closing(BrokerClient(brokers, client_id="test", timeout_ms=10_000, isolation=isolation)) as client:
        return client.list_offsets({TopicPartition(topic, 0): LATEST}).found[topic, 0]


def read_to(one, end):
    """All of the only partition up to ``end``, where nothing is left. Silence alone may come from a slow machine."""
    messages = []
    eventually(
        lambda: messages.extend(one.read_all()) or list(one.control.positions(handed_out=False).values()) == [end]
    )
    eventually(lambda: [state.high_watermark for state in one.control.states()] == [end])
    return messages


def some_records(count, seed=0):
    draw = random.Random(seed)
    return [
        {
            "key": draw.choice([None, b"", b"key%d" % number]),
            "value": draw.choice(
                [None, b"", b"%d" % number, b"%d " % number * 50, draw.randbytes(draw.randrange(2000))]  # some compress
            ),
            "timestamp": 1_600_000_000_000 + number,
            "partition": number % 4,
            "headers": [(draw.choice("abc"), draw.choice([None, b"", b"x"])) for _ in range(draw.randrange(3))],
        }
        for number in range(count)
    ]


@with_and_without_pool
@pytest.mark.parametrize("most_in_a_batch", [pytest.param(1, marks=pytest.mark.slow), 10_000])
@pytest.mark.parametrize("codec", ["none", pytest.param("gzip", marks=pytest.mark.slow), "snappy", "lz4", "zstd"])
def test_every_record_is_what_confluent_kafka_reads(sandbox, topic_factory, produce, reader, codec, most_in_a_batch):
    count = 4000 if most_in_a_batch > 7 else 1000
    topic = topic_factory(partitions=4)
    produce(topic, some_records(count), compression_codec=codec, batch_size=50_000, batch_num_messages=most_in_a_batch)
    expected = confluent_reads(sandbox.bootstrap_servers, topic, 4)
    assert len(expected) == count
    by_record, by_batch = reader(fetch_message_max_bytes=100_000), reader(fetch_message_max_bytes=100_000)
    for one in (by_record, by_batch):
        one.start({(topic, number): None for number in range(4)})
    messages, rows = by_record.read(count), read_batches(by_batch, count)
    for found in (messages, rows):
        assert sorted(found, key=place_of) == expected
        for number in range(4):
            offsets = [m.offset for m in found if m.partition == number]
            assert offsets == sorted(offsets)
    assert by_batch.control.positions(handed_out=True) == {(topic, number): count // 4 for number in range(4)}


def read_batches(one, count):
    """So many records of a reader's stream, by batches."""
    rows = []
    for batch in one.streams[0].batches(headers=True):
        batch.validate(full=True)
        rows += messages_of(batch)
        if len(rows) >= count:
            break
    return rows


def test_log_append_time(sandbox, topic_factory, produce, reader):
    topic = topic_factory(config={"message.timestamp.type": "LogAppendTime"})
    produce(topic, [b"a", b"b"])
    one = reader()
    one.start({(topic, 0): 0})
    messages = one.read(2)
    assert messages == confluent_reads(sandbox.bootstrap_servers, topic, 1)
    assert {m.timestamp_type for m in messages} == {1}


def test_transactions_are_read_like_the_jvm_does_and_their_markers_are_skipped(sandbox, topic_factory, reader):
    topic = topic_factory()
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush()
        end()
    one = reader(consumer_timeout_ms=500)
    one.start({(topic, 0): 0})
    messages = read_to(one, 8)
    assert [m.value for m in messages] == [b"0", b"1", b"2", b"3"]
    assert messages == confluent_reads(sandbox.bootstrap_servers, topic, 1)


@pytest.fixture
def transactions(sandbox, topic_factory):
    """A topic into which two producers wrote 60 transactions that overlap, some of which were aborted."""
    topic = topic_factory()
    settings = {"bootstrap.servers": sandbox.bootstrap_servers, "compression.type": "lz4", "linger.ms": 0}
    producers = [Producer({**settings, "transactional.id": f"{topic}-{number}"}) for number in range(2)]
    plain = Producer(settings)
    draw = random.Random(5)
    for producer in producers:
        producer.init_transactions()
    is_open = [False, False]
    for number in range(120):
        which = draw.randrange(2)
        producer = producers[which]
        if is_open[which]:
            draw.choice([producer.commit_transaction, producer.abort_transaction])()
        else:
            producer.begin_transaction()
            for record in range(draw.randrange(1, 5)):
                producer.produce(topic, b"%d.%d" % (number, record), headers=[("h", b"x")])
            producer.flush()
        is_open[which] = not is_open[which]
        if draw.random() < 0.2:
            plain.produce(topic, b"plain %d" % number)
            plain.flush()
    for producer, unfinished in zip(producers, is_open, strict=True):
        if unfinished:
            producer.abort_transaction()

    def all_ended():  # the end of a transaction is acknowledged before its marker is in the log
        ends = {end_of(sandbox.bootstrap_servers, topic, isolation) for isolation in ISOLATION_LEVELS}
        return len(ends) == 1

    eventually(all_ended)
    return topic, producers[0]


@with_and_without_pool
@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
@pytest.mark.parametrize("fetch_bytes", [300, 1 << 20])
def test_transactions_are_read_like_by_confluent_kafka(sandbox, transactions, reader, isolation, fetch_bytes):
    topic, _ = transactions
    one = reader(isolation_level=isolation, fetch_message_max_bytes=fetch_bytes, consumer_timeout_ms=1000)
    one.start({(topic, 0): 0})
    messages = read_to(one, end_of(sandbox.bootstrap_servers, topic, isolation))
    assert messages == confluent_reads(sandbox.bootstrap_servers, topic, 1, isolation)
    assert len(messages) > 50


@with_and_without_pool
def test_an_open_transaction_holds_back_later_records(sandbox, transactions, produce, reader):
    topic, producer = transactions
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    ((_, after),) = produce(topic, [b"after"])
    one = reader(isolation_level="read_committed", consumer_timeout_ms=1000)
    one.start({(topic, 0): 0})
    messages = read_to(one, after - 1)
    assert messages == confluent_reads(sandbox.bootstrap_servers, topic, 1, "read_committed")
    producer.commit_transaction()
    assert [m.value for m in one.read(2)] == [b"open", b"after"]


def test_a_record_larger_than_the_fetch_size_is_read(topic_factory, produce, reader):
    topic = topic_factory(config={"max.message.bytes": "3000000"})
    produce(topic, [b"small", b"x" * 2_000_000, b"small"], message_max_bytes=3_000_000)
    one = reader(fetch_message_max_bytes=1000)
    one.start({(topic, 0): 0})
    assert [len(m.value) for m in one.read(3)] == [5, 2_000_000, 5]


@pytest.mark.parametrize(("policy", "start"), [("smallest", 0), ("largest", 5)])
@pytest.mark.parametrize("stored", [None, 10_000])
def test_without_a_usable_offset_the_policy_decides(topic_factory, produce, reader, policy, start, stored):
    topic = topic_factory()
    produce(topic, [b"old"] * 5)
    one = reader(auto_offset_reset=policy)
    one.start({(topic, 0): stored})
    position = {TopicPartition(topic, 0): start}
    # The position moves although no record is consumed, as in the JVM (jvm-consumer.md#fetch-loop).
    eventually(lambda: one.control.positions(handed_out=False) == position)
    produce(topic, [b"new"])
    assert [m.value for m in one.read(6 - start)] == [b"old"] * (5 - start) + [b"new"]


def test_a_stored_offset_is_where_reading_begins(topic_factory, produce, reader):
    topic = topic_factory()
    produce(topic, [b"%d" % number for number in range(10)])
    one = reader()
    one.start({(topic, 0): 7})
    assert [m.offset for m in one.read(3)] == [7, 8, 9]
    produce(topic, [b"later"])
    assert one.read(1)[0].offset == 10


def delete_records_before(bootstrap_servers, partition, offset):
    """What retention does, at once."""
    client = BrokerClient(lambda: fetch_fixtures.brokers_of(bootstrap_servers), client_id="test", timeout_ms=10_000)
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    chosen = topic.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    request = DeleteRecordsRequest(
        version=1, topics=[topic(name=partition.topic, partitions=[chosen])], timeout_ms=5000
    )
    leader = client.metadata([partition.topic]).leaders[partition]
    answer = client.ask(leader, lambda connection: connection.call(request))
    client.close()
    assert answer.topics[0].partitions[0].error_code == 0


def test_an_offset_that_retention_removed_is_replaced(sandbox, topic_factory, produce, reader):
    topic = topic_factory()
    produce(topic, [b"%d" % number for number in range(10)])
    delete_records_before(sandbox.bootstrap_servers, TopicPartition(topic, 0), 6)
    one = reader()
    one.start({(topic, 0): 2})
    assert [m.offset for m in one.read(4)] == [6, 7, 8, 9]


def test_a_topic_that_appears_later(topics, unique_name, produce, reader):
    one = reader(consumer_timeout_ms=300)
    one.start({(unique_name, 0): None})
    with pytest.raises(ConsumerTimeout):
        next(one.streams[0])
    topics.create(unique_name, 1)
    produce(unique_name, [b"here"])
    messages = []
    eventually(lambda: messages.extend(one.read_all()) or messages)
    assert [m.value for m in messages] == [b"here"]


def test_a_slow_stream_stops_only_itself(topic_factory, produce, reader):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"x" * 1000, "partition": number % 2} for number in range(4000)], batch_size=20_000)
    one = reader(streams=2, fetch_message_max_bytes=50_000)
    one.start({(topic, 0): 0, (topic, 1): 0})
    assert len(one.read(2000, stream=1)) == 2000  # the other stream is not read
    stuck = one.queues[one.threads[0]]
    eventually(lambda: len(stuck) >= 1)
    assert len(stuck) <= one.config.queued_max_message_chunks
    assert len(one.read(2000, stream=0)) == 2000


def test_an_idle_partition_does_not_slow_down_a_busy_one(topic_factory, produce, reader):
    """Both on one fetcher: the long poll for the idle one must not delay the busy one by fetch.wait.max.ms a round."""
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"x" * 1000, "partition": 0}] * 4000, batch_size=20_000)
    one = reader(fetch_message_max_bytes=50_000, fetch_wait_max_ms=30_000)
    one.start({(topic, 0): 0, (topic, 1): 0})
    began = time.monotonic()
    assert len(one.read(4000)) == 4000  # 80 chunks
    assert time.monotonic() - began < 25  # not even one whole poll


@pytest.mark.parametrize("fetchers", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_queue_stays_near_its_bound(topic_factory, produce, reader, fetchers):
    topic = topic_factory(partitions=20)
    # Small batches: a broker sends the first one whole, whatever is asked for.
    records = [{"value": b"x" * 1000, "partition": number % 20} for number in range(20_000)]
    produce(topic, records, batch_size=16_384)
    one = reader(queued_max_bytes=500_000, fetch_message_max_bytes=100_000, num_consumer_fetchers=fetchers)
    one.start({(topic, number): 0 for number in range(20)})
    queue = one.queues[one.threads[0]]
    eventually(lambda: queue.room.allowance() == 0)
    # Of each fetcher one answer may be on its way and another received while the others ask; and an answer is longer
    # than what was asked for by one batch, and by the columns beside the values.
    assert queue._waiting.nbytes < 500_000 + 2 * fetchers * 120_000
    messages = one.read(20_000)
    assert len({place_of(m) for m in messages}) == 20_000


def test_stopping_is_quick_even_in_a_long_poll_and_positions_stay(topic_factory, produce, reader):
    topic = topic_factory(partitions=3)
    produce(topic, [{"value": b"v", "partition": number % 3} for number in range(30)])
    one = reader(fetch_wait_max_ms=30_000)
    one.start({(topic, number): 0 for number in range(3)})
    assert len(one.read(30)) == 30
    fetching = [thread for thread in threading.enumerate() if "g_c" in thread.name]
    assert fetching
    one.control.stop()
    # One that hangs lives on for most of the 30 s.
    eventually(lambda: not any(thread.is_alive() for thread in fetching), 10)
    assert one.control.positions(handed_out=True) == {(topic, number): 10 for number in range(3)}
    one.control.stop()


@with_and_without_pool
def test_no_record_is_lost_or_repeated_over_many_rebalances(topic_factory, produce, reader):
    """Each generation starts at the positions of the one before: after everything handed out."""
    topic = topic_factory(partitions=4)
    produce(topic, [{"value": b"%d" % number, "partition": number % 4} for number in range(40_000)], batch_size=4000)
    one = reader(fetch_message_max_bytes=5000, consumer_timeout_ms=20_000)
    seen, done = [], threading.Event()
    rebalances = seen_before = 0

    def use():
        try:
            for message in one.streams[0]:
                seen.append((message.partition, message.offset))
                if len(seen) % 8_000 == 0:  # a fast reader would be done before a rebalance came
                    eventually(lambda: rebalances >= len(seen) // 8_000)
                if len(seen) == 40_000:
                    break
        finally:
            done.set()

    one.start({(topic, number): 0 for number in range(4)})
    user = threading.Thread(target=use)
    user.start()
    while not done.wait(0.02):
        if len(seen) > seen_before:  # otherwise generations could always be too short for a first record
            seen_before = len(seen)
            one.control.stop()
            one.start(one.control.positions(handed_out=True))
            rebalances += 1
    user.join()
    assert len(seen) == len(set(seen)) == 40_000
    assert rebalances >= 5


def test_partitions_that_stay_keep_their_fetcher_and_what_was_fetched(topic_factory, produce, reader):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"%d" % number, "partition": number % 2} for number in range(20)])
    one = reader(consumer_timeout_ms=2000)
    one.start({(topic, 0): 0, (topic, 1): 0})
    eventually(lambda: len(one.queues[one.threads[0]]) == 2)
    began = one.control.fetch_requests()
    one.control.release([TopicPartition(topic, 0)])
    assert [(message.partition, message.offset) for message in one.read_all()] == [(1, n) for n in range(10)]
    assert one.control.positions(handed_out=True) == {(topic, 0): 0, (topic, 1): 10}
    produce(topic, [{"value": b"more", "partition": number} for number in range(2)])
    one.start({(topic, 0): 4, (topic, 1): 0})
    read = []
    eventually(lambda: read.extend((m.partition, m.offset) for m in one.read_all()) or len(read) >= 8)
    assert sorted(read) == [*((0, n) for n in range(4, 11)), (1, 10)], "partition 1 does not start again"
    assert {name: since for name, (since, _) in one.control.fetch_requests().items()} == {
        name: since for name, (since, _) in began.items()
    }


@with_and_without_pool
def test_no_record_is_lost_or_repeated_where_some_partitions_come_and_go(topic_factory, produce, reader):
    topic = topic_factory(partitions=4)
    produce(topic, [{"value": b"%d" % number, "partition": number % 4} for number in range(20_000)], batch_size=2000)
    one = reader(fetch_message_max_bytes=5000, consumer_timeout_ms=20_000, refresh_leader_backoff_ms=20)
    everything = [TopicPartition(topic, number) for number in range(4)]
    seen, done, chance = [], threading.Event(), random.Random(3)
    rebalances = seen_before = 0

    def use():
        try:
            for message in one.streams[0]:
                seen.append((message.partition, message.offset))
                if len(seen) % 2_000 == 0:  # a fast reader would be done before a partition was released
                    eventually(lambda: rebalances >= len(seen) // 2_000)
                if len(seen) == 20_000:
                    break
        finally:
            done.set()

    one.start(dict.fromkeys(everything, 0))
    user = threading.Thread(target=use)
    user.start()
    while not done.wait(0.01):
        if len(seen) > seen_before:  # otherwise a slow machine could release partitions before their first record
            seen_before = len(seen)
            one.control.release(chance.sample(everything, chance.randint(1, 3)))
            one.start(one.control.positions(handed_out=True))
            rebalances += 1
    user.join()
    assert len(seen) == len(set(seen)) == 20_000
    for partition in everything:
        assert [n for number, n in seen if number == partition.partition] == list(range(5000))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_broker_that_dies_and_comes_back(private_sandbox, reader):
    from tests.fixtures.sandbox import Topics, produce_records

    box = private_sandbox()
    topic = Topics(box.bootstrap_servers).create("t", 2)
    produce_records(box.bootstrap_servers, topic, [{"value": b"a", "partition": n % 2} for n in range(10)])
    one = reader(box.bootstrap_servers, consumer_timeout_ms=60_000)
    one.start({(topic, 0): 0, (topic, 1): 0})
    assert len(one.read(10)) == 10
    box.brokers[0].kill()
    box.brokers[0].start()
    produce_records(box.bootstrap_servers, topic, [{"value": b"b", "partition": n % 2} for n in range(10)])
    assert sorted((m.partition, m.offset) for m in one.read(10)) == [(p, o) for p in (0, 1) for o in range(5, 10)]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_partitions_of_two_brokers_one_of_which_dies(private_sandbox, reader):
    from tests.fixtures.sandbox import Topics, produce_records

    box = private_sandbox(brokers=2)
    topic = Topics(box.bootstrap_servers).create("t", 4)
    client = BrokerClient(lambda: fetch_fixtures.brokers_of(box.bootstrap_servers), client_id="test", timeout_ms=10_000)
    leaders = client.metadata([topic]).leaders
    client.close()
    lasting = {tp.partition for tp, leader in leaders.items() if leader.id == 0}
    assert len(lasting) == 2
    records = [{"value": b"a", "partition": number % 4} for number in range(40)]
    produce_records(box.bootstrap_servers, topic, records)
    one = reader(box.bootstrap_servers, consumer_timeout_ms=60_000)
    one.start({(topic, number): 0 for number in range(4)})
    assert len(one.read(40)) == 40
    box.brokers[1].kill()
    produce_records(box.brokers[0].address, topic, [r for r in records if r["partition"] in lasting])
    assert {(m.partition, m.offset) for m in one.read(20)} == {(p, o) for p in lasting for o in range(10, 20)}
    box.brokers[1].start()
    produce_records(box.bootstrap_servers, topic, [r for r in records if r["partition"] not in lasting])
    rest = {0, 1, 2, 3} - lasting
    assert {(m.partition, m.offset) for m in one.read(20)} == {(p, o) for p in rest for o in range(10, 20)}


@pytest.fixture
def damaged(private_sandbox):
    """A broker with one record in each of three batches, where ``damage(data)`` was done to the log of partition 0."""

    def make(damage):
        from tests.fixtures.sandbox import Topics, produce_records

        box = private_sandbox()
        topic = Topics(box.bootstrap_servers).create("t", 1)
        for number in range(3):
            produce_records(box.bootstrap_servers, topic, [b"record number %d" % number])
        (segment,) = box.directory.glob("kafka-0/t-0/*.log")
        data = bytearray(segment.read_bytes())
        damage(data)
        segment.write_bytes(data)
        return box

    return make


def flip_a_value(number):
    def damage(data):
        data[data.index(b"record number %d" % number)] ^= 0x20

    return damage


@pytest.mark.slow
@pytest.mark.timeout(400)
@with_and_without_pool
def test_damage_on_the_broker_s_disk_is_raised_after_intact_records(damaged, reader):
    one = reader(damaged(flip_a_value(2)).bootstrap_servers, consumer_timeout_ms=20_000)
    one.start({("t", 0): 0})
    assert [m.offset for m in one.read(2)] == [0, 1]
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 2 .*checksum"):
        next(one.streams[0])
    assert one.control.positions(handed_out=False) == {("t", 0): 2}


def raise_an_offset(data):
    """That of the second batch, by 2^40."""
    data[12 + int.from_bytes(data[8:12], "big") + 2] = 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_damaged_offset_on_the_broker_s_disk_is_raised(damaged, reader):
    one = reader(damaged(raise_an_offset).bootstrap_servers, consumer_timeout_ms=20_000)
    one.start({("t", 0): 0})
    assert [m.offset for m in one.read(1)] == [0]
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 1 .* has the offsets 1099511627777 to 1099511627777"):
        next(one.streams[0])
    assert one.control.positions(handed_out=False) == {("t", 0): 1}


@pytest.mark.slow
@pytest.mark.timeout(400)
@with_and_without_pool
def test_damage_is_skipped_and_logged_if_configured(damaged, reader, caplog):
    one = reader(damaged(flip_a_value(1)).bootstrap_servers, consumer_timeout_ms=20_000, on_corrupt="skip")
    one.start({("t", 0): 0})
    assert [m.offset for m in one.read(2)] == [0, 2]
    assert one.control.positions(handed_out=True) == {("t", 0): 3}
    assert "offsets 1 to 1 of t-0 are skipped: t-0 at offset 1 (fetched from 1): checksum" in caplog.text


def test_states(topic_factory, produce, reader):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": 1}] * 5)
    one = reader()
    one.start({(topic, 1): 0, (topic, 0): None})
    one.read(3)
    # A fetcher queues a chunk first, and moves its position then.
    eventually(lambda: [(s.fetched, s.high_watermark) for s in one.control.states()] == [(0, 0), (5, 5)])
    first, second = one.control.states()
    assert (first.partition, first.fetched, first.consumed, first.high_watermark) == ((topic, 0), 0, 0, 0)
    assert (second.partition, second.fetched, second.consumed, second.high_watermark) == ((topic, 1), 5, 2, 5)
    assert second.thread == one.threads[0]
