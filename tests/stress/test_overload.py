"""More than a member can take, and what no member should get: memory stays bounded, the other partitions continue.

Members are processes of their own where their memory is measured, on the bound that docs/operations.md ("Sizing") has.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import suppress

import pytest

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.consumers import IN_BROKER_GROUP
from tests.fixtures.measuredmember import SLACK, digest, measured_member
from tests.fixtures.sandbox import PATIENT
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector

MIB = 1 << 20
IN_ZOOKEEPER = {"rebalance_backoff_ms": 600, "rebalance_max_retries": 20, "zookeeper_session_timeout_ms": 30_000}
PROTOCOLS = pytest.mark.parametrize("protocol", ["zookeeper", "kafka"])


def properties(sandbox, group, protocol="zookeeper", **values):
    found = {name.replace(".", "_"): value for name, value in sandbox.connection.items()}
    if protocol == "kafka":
        found = {"bootstrap_servers": sandbox.bootstrap_servers, **IN_BROKER_GROUP}
    else:
        found |= IN_ZOOKEEPER
    return {**found, "group_id": group, "auto_offset_reset": "smallest", "decode_threads": 0, **values}


def numbered(count, partition, size):
    return ({"value": b"%d" % number * (size // 8), "partition": partition} for number in range(10**7, 10**7 + count))


# -- slow and failing applications --------------------------------------------------------------------------------


@PROTOCOLS
def test_a_slow_stream_costs_the_other_ones_nothing(sandbox, topic_factory, produce, unique_name, tmp_path, protocol):
    """40 MB wait for a stream that reads 20 records a second, and 20 MB for another one of the same member."""
    topic, fast, queued, fetched = topic_factory(partitions=2), 20_000, 2 * MIB, MIB // 4
    produce(topic, numbered(2 * fast, 0, 1000), batch_size=100_000)
    produce(topic, numbered(fast, 1, 1000), batch_size=100_000)
    bounds = {"queued_max_bytes": queued, "fetch_message_max_bytes": fetched}

    def seconds_of_the_fast_one(group, **work):
        with measured_member(tmp_path, properties(sandbox, group, protocol, **bounds), {topic: 2}, **work) as member:
            member.joined()
            began = time.monotonic()
            eventually(lambda: member.count(partition=1) >= fast)
            took = time.monotonic() - began
            print(f"{took:.1f} s for the fast stream with {work}")
            assert member.growth() < 2 * (queued + fetched) + SLACK
            if work:
                slow = member.count(partition=0)
                assert slow < 2 * fast / 10
                member.work(s0=0, s1=0)
                eventually(lambda: member.count(partition=0) == 2 * fast)
                assert member.growth() < 2 * (queued + fetched) + SLACK
            for number in (0, 1):
                offsets = [one.offset for one in member.received if one.partition == number]
                assert offsets == [*range(len(offsets))]
            assert not member.errors
            return took

    undisturbed = seconds_of_the_fast_one(f"{unique_name}-0")
    assert seconds_of_the_fast_one(f"{unique_name}-1", s0=0.05) < 2 * undisturbed + 2


class ApplicationFailed(Exception):
    """Not one of the package's."""


@PROTOCOLS
def test_an_application_that_raises_skips_nothing(sandbox, topic_factory, produce, unique_name, protocol):
    """It raises at each 101st record. The stream continues after that record, and a new consumer with it."""
    topic, count, every = topic_factory(partitions=2), 1000, 101
    produce(topic, [{"value": b"v", "partition": number % 2} for number in range(count)])
    seen, processed = Counter(), []

    def read(stream, *, again):
        for message in stream:
            place = message.partition, message.offset
            seen[place] += 1
            if sum(seen.values()) % every == 0 and seen[place] == 1:
                raise ApplicationFailed(place)
            processed.append(place)
            if len(processed) + again == count:
                return

    def restarted():
        with suppress(ApplicationFailed), ConsumerConnector(config) as connector:
            (stream,) = connector.create_message_streams({topic: 1})[topic]
            read(stream, again=0)

    config = ConsumerConfig(**properties(sandbox, unique_name, protocol))
    while len(processed) < count:
        restarted()
    # What raised was not released: it came again, and nothing else did.
    assert sorted(processed) == sorted(seen)
    assert sum(seen.values()) == count + sum(times > 1 for times in seen.values())
    assert {times for times in seen.values()} == {1, 2}

    seen, processed, failed = Counter(), [], 0
    config = ConsumerConfig(**properties(sandbox, f"{unique_name}-again", protocol))
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        while len(processed) + failed < count:
            try:
                read(stream, again=failed)
            except ApplicationFailed:
                failed += 1
    assert failed == count // every
    assert {*seen.values()} == {1}
    assert len(seen) == count


# -- much of everything -------------------------------------------------------------------------------------------


def test_one_of_a_thousand_partitions_has_nearly_all_data(sandbox, topic_factory, produce, unique_name, tmp_path):
    partitions, large, queued, fetched = 1000, 40_000, 4 * MIB, MIB
    topic = topic_factory(partitions=partitions)
    produce(topic, numbered(large, 0, 1000), batch_size=100_000)
    produce(topic, [{"value": b"small", "partition": number} for number in range(1, partitions)])
    bounds = {"queued_max_bytes": queued, "fetch_message_max_bytes": fetched}
    with measured_member(tmp_path, properties(sandbox, unique_name, **bounds), {topic: 1}, s0=0.0002) as member:
        eventually(lambda: member.count() == large + partitions - 1)
        places = [one.partition for one in member.received]
        last_small = max(at for at, number in enumerate(places) if number)
        assert last_small < large / 2
        assert member.growth() < queued + 2 * fetched + SLACK
        assert not member.errors


SMALL_FETCHES = {"fetch_message_max_bytes": 1000, "fetch_max_bytes": 64 << 10, "queued_max_bytes": 2 * MIB}
LARGE = 10_000_000


def produce_large(produce, topic):
    """Three records of 10 MB in partition 0 with small ones between them, and a hundred small ones in partition 1."""
    sizes = [5, LARGE, 5, LARGE, LARGE, 5]
    values = [b"%d" % number * (size // 5) for number, size in zip(range(10_000, 10_006), sizes, strict=True)]
    produce(topic, [{"value": value, "partition": 0} for value in values], message_max_bytes=LARGE + 1000, linger_ms=0)
    produce(topic, numbered(100, 1, 8))
    return [digest(value) for value in values]


@pytest.mark.parametrize("settings", [{}, SMALL_FETCHES], ids=["default", "small"])
def test_records_of_10_mb_are_read_with_any_fetch_size(
    sandbox, topic_factory, produce, unique_name, tmp_path, settings
):
    """Brokers since 0.10.1 send the first batch whole."""
    topic = topic_factory(partitions=2, config={"max.message.bytes": str(LARGE + 1000)})
    sent = produce_large(produce, topic)
    with measured_member(tmp_path, properties(sandbox, unique_name, **settings), {topic: 1}) as member:
        eventually(lambda: member.count() >= len(sent) + 100)
        assert [one.digest for one in member.received if one.partition == 0] == sent
        assert member.count() == len(sent) + 100
        assert not member.errors
        # One that is handed out, one that waits, one that is received; each with the copy that its bytes object is.
        assert member.growth() < settings.get("queued_max_bytes", 32 * MIB) + 4 * LARGE + SLACK


def test_a_record_that_an_old_broker_cuts_is_an_error_that_names_the_property(private_sandbox, tmp_path):
    """Before 0.10.1 a record has to fit into a fetch."""
    broker = VersionedBroker(private_sandbox(kafka_version="0.8.2.2", **PATIENT))
    topic = broker.create_topic("t", 2, {"max.message.bytes": str(LARGE + 1000)})
    sent = produce_large(broker.produce, topic)
    limited = properties(broker.sandbox, "g", fetch_max_bytes=4 * MIB, auto_commit_interval_ms=200)
    with measured_member(tmp_path, limited, {topic: 1}) as member:
        eventually(lambda: member.errors and member.count() == 101)
        broker.produce(topic, numbered(100, 1, 8))
        eventually(lambda: member.count(partition=1) == 200)
        message = r"RecordTooLarge: t-0 at offset 1: a record is longer than fetch\.max\.bytes \(4194304\); raise it"
        assert all(re.match(message, error) for error in member.errors)
        assert member.growth() < 2 * 4 * MIB + SLACK
    with measured_member(tmp_path, {**limited, "fetch_max_bytes": 16 * MIB}, {topic: 1}) as member:
        eventually(lambda: member.count() == len(sent) - 1)
        assert [one.digest for one in member.received] == sent[1:]
        assert not member.errors


def test_a_batch_that_decompresses_to_too_much_stops_its_partition_only(
    sandbox, topic_factory, produce, unique_name, tmp_path
):
    topic, size = topic_factory(partitions=2), 60_000_000
    produce(topic, [{"value": b"before", "partition": 0}])
    produce(topic, [{"value": bytes(size), "partition": 0}], compression_type="gzip", message_max_bytes=size + 1000)
    produce(topic, [{"value": b"after", "partition": 0}])
    produce(topic, numbered(100, 1, 8))
    limited = properties(sandbox, unique_name, decompressed_max_bytes=4 * MIB, auto_commit_interval_ms=200)
    with measured_member(tmp_path, limited, {topic: 1}) as member:
        eventually(lambda: member.errors and member.count() == 101)
        produce(topic, numbered(100, 1, 8))
        eventually(lambda: member.count(partition=1) == 200)
        message = rf"RecordTooLarge: {topic}-0 at offset 1 .* more than 4194304 bytes; raise decompressed\.max\.bytes"
        assert all(re.match(message, error) for error in member.errors)
        assert member.growth() < 2 * 4 * MIB + SLACK
    raised = {**limited, "decompressed_max_bytes": size + 1000}
    with measured_member(tmp_path, raised, {topic: 1}) as member:
        eventually(lambda: member.count() == 2)
        assert [one.digest for one in member.received] == [digest(bytes(size)), digest(b"after")]
        assert not member.errors
