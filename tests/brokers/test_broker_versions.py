"""The brokers themselves: each serves an independent client, and stores its release's message format."""

import pytest

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.waiting import eventually
from zkconsumer.sandbox import Sandbox

_MAGIC_AT = 16  # in a log segment, after offset, size and, by format, checksum or leader epoch


def stored_formats(broker: VersionedBroker, topic: str) -> set[int]:
    directory = broker.sandbox.directory / "kafka-0" / f"{topic}-0"
    return {segment.read_bytes()[_MAGIC_AT] for segment in directory.glob("*.log")}


def test_an_independent_client_reads_its_own_records(broker: VersionedBroker, unique_name: str) -> None:
    for codec in broker.codecs:
        topic = broker.create_topic(f"{unique_name[-20:]}-{codec}")
        written = [(b"k%d" % n, b"value %d " % n * 5) for n in range(200)]
        positions = broker.produce(topic, written, compression_type=codec)
        assert positions == [(0, n) for n in range(200)]
        assert [(m.key(), m.value()) for m in broker.consume(topic, 200)] == written


def test_each_release_stores_its_own_message_format(broker: VersionedBroker, unique_name: str) -> None:
    topic = broker.create_topic(unique_name)
    broker.produce(topic, [b"x"])
    expected = 0 if broker.release < (0, 10) else 1 if broker.release < (0, 11) else 2
    assert stored_formats(broker, topic) == {expected}


@pytest.mark.parametrize("version", ["0.8.2.2"])
def test_two_brokers_of_the_oldest_release_agree(version: str) -> None:
    with Sandbox(kafka_version=version, brokers=2) as box:
        eventually(lambda: box.brokers[0].known_brokers() == box.brokers[1].known_brokers() == {0, 1})
