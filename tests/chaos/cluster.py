"""Cluster: several brokers with replicated topics, whose leaders are moved, stopped, killed and started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.chaos.members import await_condition
from tests.fixtures.sandbox import answer_of_leaders
from zkconsumer.sandbox import KafkaBroker, Sandbox

_ANSWER_S: Final = 10.0
_LOOK_S: Final = 2.0
_CHANGE_S: Final = 90.0
"""How long brokers may take to elect a leader, or to be in sync again, on a busy machine."""
_ALONE_S: Final = 1.5
"""How long a leader gets records alone, which the next one lacks."""


class Cluster:
    """The brokers of a sandbox. Used by one thread.

    Args:
        box: the sandbox.
    """

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._paused: set[int] = set()

    def _partitions(self, topic: str) -> dict[int, Any]:
        """Leader and replicas of each partition, as a broker that answers knows them; none if none answers."""
        addresses = [one.address for one in self._box.brokers if one.running and one.broker_id not in self._paused]
        admin = AdminClient({"bootstrap.servers": ",".join(addresses), "log_level": 1})
        with suppress(KafkaException, TimeoutError):  # the client may ask a broker that is paused
            described = admin.describe_topics(TopicCollection([topic]), request_timeout=_LOOK_S)
            return {one.id: one for one in described[topic].result(_LOOK_S).partitions}
        return {}

    def _await(self, topic: str, holds: Callable[[dict[int, Any]], bool], what: str) -> None:
        def look() -> bool:
            partitions = self._partitions(topic)
            return bool(partitions) and holds(partitions)

        await_condition(look, f"{topic}: {what}", _CHANGE_S)

    def _led(self, topic: str, number: int) -> Any:
        """A partition from this number on whose leader may be missed: the others elect none without a controller."""
        unmissable = {0} if self._box.has_brokers_without_zookeeper else set()
        found: list[Any] = []

        def look(partitions: dict[int, Any]) -> bool:
            order = sorted(partitions, key=lambda one: (one < number, one))
            found[:] = [partitions[one] for one in order if (leader := partitions[one].leader) and leader.id >= 0]
            found[:] = [one for one in found if not unmissable & {replica.id for replica in _possible(one)}]
            return bool(found)

        self._await(topic, look, "a partition has a leader")
        return found[0]

    def end_leader(self, topic: str, number: int, *, hard: bool) -> None:
        """Stop or kill the broker that leads a partition."""
        leader = self._box.brokers[self._led(topic, number).leader.id]
        if hard:
            leader.kill()
        else:
            leader.stop()

    def complete(self, topic: str) -> None:
        """Start the brokers that do not run, and wait until all replicas are in sync."""
        self.restore()
        self._await(
            topic,
            lambda partitions: all(len(one.isr) == len(one.replicas) for one in partitions.values()),
            "all replicas are in sync",
        )

    def restore(self) -> None:
        """Let all brokers run."""
        for number in tuple(self._paused):
            self._box.brokers[number].resume()
            self._paused.discard(number)
        for broker in self._box.brokers:
            if not broker.running:
                broker.start()

    def elect_preferred(self, topic: str) -> None:
        """Let the first replica of each partition lead it, as after an operator's command."""

        def elect(described: dict[int, Any]) -> bool:
            partitions = [TopicPartition(topic, number) for number in described]
            admin = AdminClient({"bootstrap.servers": self._box.bootstrap_servers, "log_level": 1})
            # Without a timeout, which confluent-kafka 2.16 refuses.
            with suppress(KafkaException, TimeoutError):
                answers = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(_ANSWER_S)
                return all(one is None or one.code() == KafkaError.ELECTION_NOT_NEEDED for one in answers.values())
            return False

        self._await(topic, elect, "the preferred replicas lead")

    def elect_unclean(self, topic: str, number: int) -> None:
        """Let a broker lead that lacks records which its leader has acknowledged; the leader is killed then."""
        partition = self._led(topic, number)
        leader = self._box.brokers[partition.leader.id]
        (follower,) = [self._box.brokers[one.id] for one in partition.replicas if one.id != leader.broker_id]
        self.pause(follower)
        self._await(
            topic,
            lambda partitions: [one.id for one in partitions[partition.id].isr] == [leader.broker_id],
            "the leader is alone",
        )
        time.sleep(_ALONE_S)  # what is produced meanwhile is what the election loses
        leader.kill()
        follower.resume()
        self._paused.discard(follower.broker_id)
        self._await(
            topic,
            lambda partitions: getattr(partitions[partition.id].leader, "id", -1) == follower.broker_id,
            "the other replica leads",
        )

    def pause(self, broker: KafkaBroker) -> None:
        """Stop a broker's process: it accepts connections, and answers nothing."""
        self._paused.add(broker.broker_id)
        broker.pause()

    def numbers(self, topic: str) -> set[int]:
        """The numbers of all records that the topic has."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._box.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        try:
            return {number for one in self._partitions(topic) for number in _numbers(consumer, topic, one)}
        finally:
            consumer.close()


def _possible(partition: Any) -> list[Any]:
    """The brokers that an unclean election may end; of a topic on all brokers the leader only."""
    return list(partition.replicas) if len(partition.replicas) == 2 else [partition.leader]


def _numbers(consumer: Consumer, topic: str, partition: int) -> set[int]:
    low, end = answer_of_leaders(
        lambda: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S),
        f"the log of {topic}-{partition} is unknown",
    )
    if low == end:
        return set()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    numbers = set()
    while consumer.position([TopicPartition(topic, partition)])[0].offset < end:
        message = consumer.poll(_ANSWER_S)
        assert message is not None, f"{topic}-{partition} was not read to its end {end}"
        assert message.error() is None, message.error()
        numbers.add(int(message.value() or b""))
    return numbers
