"""Bits are turned over at random in what a broker sends, from the first byte of a login on.

``ZKCONSUMER_STRESS_SEED`` repeats the damages as far as the order of events is the same.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from tests.fixtures.damage import DamagingProxy, a_bit_of, any_bit
from tests.fixtures.measuredmember import SLACK, digest, measured_member
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.secured import PLAIN, Secured
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST

SEED = int(os.environ.get("ZKCONSUMER_STRESS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
SECONDS = float(os.environ.get("ZKCONSUMER_STRESS_SECONDS", "30"))
PARTITIONS, RECORDS = 4, 40_000
MIB = 1 << 20
FILLING = b"v" * 20
RECORD_BYTES = 1000
STUCK = r"-(\d+) at offset .*; its stream raises this error"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    made = Secured(tmp_path_factory.mktemp("certificates"))
    with Sandbox(brokers=0, **{**PATIENT, "kafka_properties": made.properties}) as box:
        box.add_brokers(port=made.ports["PLAINTEXT"])
        made.sandbox = box
        yield made


@pytest.fixture
def zookeeper_of(secured):
    with connected(secured.sandbox.zookeeper_connect) as client:
        yield client


def place_of(received):
    return received.partition, received.offset


def arrive(member, places):
    """Wait until a member has received all of these places."""

    def missing():
        return places - {*map(place_of, member.look().received)}

    with suppress(AssertionError):
        eventually(lambda: not missing(), 60)
    assert not missing(), f"{len(missing())} are missing, the first is {min(missing())}"


def record(number):
    return {"value": b"%08d" % number + FILLING * (RECORD_BYTES // len(FILLING)), "partition": number % PARTITIONS}


def produce(servers, topic, numbers):
    """Produce records; returns the digest of each value by its place."""
    records = [record(number) for number in numbers]
    places = produce_records(servers, topic, records, batch_size=50_000)
    return {place: digest(one["value"]) for place, one in zip(places, records, strict=True)}


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("harm", [any_bit, a_bit_of(FILLING)], ids=["anything", "values"])
def test_damaged_responses(secured, zookeeper_of, unique_name, tmp_path, harm):
    """Nothing that was not produced is delivered, and everything is, once the broker's answers arrive intact.

    Where anything may be damaged, records may come twice (an answer may be damaged to OFFSET_OUT_OF_RANGE), and a
    partition may be damaged three times at one place: then its stream raises CorruptRecord until a member joins again.
    Each partition has a fetcher, since nothing protects the numbers of partitions in an answer.
    """
    print(f"ZKCONSUMER_STRESS_SEED={SEED}", file=sys.stderr)
    servers, port = f"{HOST}:{secured.ports['PLAINTEXT']}", secured.ports["SASL_PLAINTEXT"]
    topic = Topics(servers).create(unique_name, partitions=PARTITIONS)
    sent = produce(servers, topic, range(RECORDS))
    for number in range(PARTITIONS):  # neither does anything protect the first offset of a partition that has none
        zookeeper_of.create(f"/consumers/{unique_name}/offsets/{topic}/{number}", b"0", makepath=True)
    properties = {
        **secured.connection("SASL_PLAINTEXT"),
        "group_id": unique_name,
        "auto_offset_reset": "smallest",
        "security_protocol": "SASL_PLAINTEXT",
        **PLAIN,
        "refresh_leader_backoff_ms": 50,
        "socket_timeout_ms": 3000,
        "num_consumer_fetchers": PARTITIONS,
        "queued_max_bytes": 2 * MIB,
        "fetch_message_max_bytes": MIB // 16,
        "decode_threads": 0,
    }
    with DamagingProxy(f"{HOST}:{port}", random.Random(SEED)) as proxy:
        start = partial(measured_member, tmp_path, properties, {topic: 1}, brokers={f"{HOST}:{port}": proxy.address})
        proxy.throttle(RECORDS * RECORD_BYTES / PARTITIONS / SECONDS)
        proxy.harm = harm
        with start() as member:
            deadline = time.monotonic() + SECONDS
            eventually(lambda: time.monotonic() > deadline or member.count() >= RECORDS, SECONDS + 60)
            proxy.harm = None
            proxy.throttle(0)
            sent |= produce(servers, topic, range(RECORDS, RECORDS + 400))
            # Not by what its stream raises: that is the first of several such errors.
            stuck = {int(found[1]) for found in re.finditer(STUCK, member.log())}
            print(f"{proxy.harmed} damages, stuck {stuck}, {set(member.errors)}", file=sys.stderr)
            arrive(member, {place for place in sent if place[0] not in stuck})
            received = list(member.received)
            assert member.growth() < 2 * MIB + 2 * PARTITIONS * MIB // 16 + SLACK
        if stuck:
            with start() as member:
                arrive(member, {place for place in sent if place[0] in stuck} - {*map(place_of, received)})
                received += member.received
    assert proxy.harmed > SECONDS / 2
    assert [one for one in received if sent.get(place_of(one)) != one.digest] == []
    if harm is not any_bit and not stuck:
        assert len(received) == len(sent)
