"""A member as a process of its own, which writes what it is handed out to a ledger.

SIGTERM ends it: no more is handed out, it commits and leaves the group.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.broken import break_consumer
from tests.chaos.environment import SteppedClocks, clock_file, order_file, reach_brokers_at, read_order
from tests.chaos.outoforder import OutOfOrderWork
from tests.chaos.stalls import LOOK_S, StallWatch
from zkconsumer import ConsumerConfig, ConsumerConnector, TopicPartition
from zkconsumer.cli.ending import Ending
from zkconsumer.errors import BrokerUnavailable, ConsumerClosed, ZkConsumerError
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.zookeeper.zookeeperbase import ZooKeeperBase
from zkconsumer.model import ConsumerThreadId
from zkconsumer.testing.ledger import Delivered
from zkconsumer.testing.ledgerfile import SUFFIX, LedgerFile

_COMMIT_EVERY = 20
"""Records between explicit commits."""
_RESTART_S = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """What the process is to do.

    Attributes:
        name: of its files.
        directory: where they are.
        properties: of the consumer.
        topic: what it reads.
        brokers: of each broker where it is reached, both as ``host:port``; others are reached where they are.
        streams: number of its streams.
        manual: True if it commits explicitly.
        listens: True if its rebalance listener follows orders.
        out_of_order: True if several threads declare the records of a stream done, with ``commit.on=done``.
        record_s: how long the application works on one record, in seconds.
        broken: what is switched off in this consumer, see ``tests/chaos/broken.py``.
    """

    name: str
    directory: str
    properties: Mapping[str, str]
    topic: str
    brokers: Mapping[str, str] = field(default_factory=dict)
    streams: int = 1
    manual: bool = False
    listens: bool = False
    out_of_order: bool = False
    record_s: float = 0.004
    broken: tuple[str, ...] = ()


def identity_file(directory: Path, name: str) -> Path:
    """Where a member writes the id and the password of its ZooKeeper session."""
    return directory / f"{name}.session"


class Application(ConsumerRebalanceListener):
    """Streams, each read by a thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._directory = Path(options.directory)
        self._orders = order_file(self._directory, options.name)
        self._clocks = SteppedClocks(clock_file(self._directory, options.name))
        self._ledger = LedgerFile(self._directory / f"{options.name}{SUFFIX}")
        self._connector = ConsumerConnector(ConsumerConfig.from_properties(dict(options.properties)))
        if options.manual or options.listens:
            self._connector.set_rebalance_listener(self)
        self._work: OutOfOrderWork | None = None
        if options.out_of_order:
            self._work = OutOfOrderWork(self._ledger, self._connector.consumer_id, options.record_s)
        self._ending = Ending()
        self._ended = threading.Event()
        self._identity: tuple[int, bytes] | None = None
        self._pause = threading.Event()  # never set: what the application's work is made of

    def before_releasing_partitions(self, owned: Set[TopicPartition]) -> None:
        """The next owner continues where the application stopped; and what was ordered."""
        if owned and self._options.manual:
            self._commit()
        self._follow("hang")

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, ConsumerThreadId]
    ) -> Mapping[TopicPartition, int] | None:
        """What was ordered."""
        self._follow("late")
        return None

    def _follow(self, hanging: str) -> None:
        order = read_order(self._orders)
        if order is None:
            return
        logging.getLogger(__name__).info("the listener follows %s", order)
        if order.mode == hanging:
            self._pause.wait(order.until - time.monotonic())
        elif order.mode == "commit":
            self._commit()
        elif order.mode == "shutdown":
            self._connector.shutdown()
            self._ending.ask()

    def run(self) -> None:
        """Until SIGTERM."""
        with self._ending.by_signals():
            self._run()

    def _run(self) -> None:
        made = self._connector.create_message_streams({self._options.topic: self._options.streams})
        threads = [
            threading.Thread(target=self._read, args=[stream], name=stream.name, daemon=True)
            for stream in made[self._options.topic]
        ]
        observer = threading.Thread(target=self._observe, name="observer", daemon=True)
        for thread in (*threads, observer):
            thread.start()
        self._ending.wait(lambda: None)
        self._connector.end_streams()
        for thread in threads:
            thread.join()
        if self._work is not None:
            self._work.finish()
        if self._options.manual:
            self._commit()
        self._connector.shutdown()
        self._ended.set()
        observer.join()

    def _observe(self) -> None:
        stalls = StallWatch(self._connector.consumer_id, self._ledger)
        while not self._ended.wait(LOOK_S):
            stalls.look()
            self._publish_identity()
            self._clocks.look()

    def _read(self, stream: Any) -> None:
        asked, unstored = time.monotonic(), 0
        for message in stream:
            at = time.monotonic()
            now = self._connector.describe()
            self._ledger.append(
                Delivered(
                    number=int(message.value),
                    topic=message.topic,
                    partition=message.partition,
                    offset=message.offset,
                    owner=self._connector.consumer_id,
                    session=now.session,
                    generation=now.generation,
                    asked=asked,
                    at=at,
                )
            )
            if self._work is None:
                self._pause.wait(self._options.record_s)
            else:
                self._work.begin(stream, message)
            unstored += 1
            if self._options.manual and unstored >= _COMMIT_EVERY:
                self._commit()
                unstored = 0
            asked = time.monotonic()

    def _commit(self) -> None:
        try:
            self._connector.commit_offsets()
        except ConsumerClosed:
            pass
        except ZkConsumerError as error:
            logging.getLogger(__name__).warning("not committed: %s", error)

    def _publish_identity(self) -> None:
        """Write id and password of the ZooKeeper session, if there is one, with which another client can end it."""
        if self._options.properties.get("group.protocol") in ("kafka", "consumer"):
            return
        protocol = self._connector._member._protocol
        assert isinstance(protocol, ZooKeeperBase)
        identity = protocol.zk._client.client_id
        if identity is not None and identity != self._identity:
            self._identity = identity
            path = identity_file(self._directory, self._options.name)
            unfinished = path.with_suffix(".new")
            unfinished.write_text(json.dumps([identity[0], identity[1].hex()]), encoding="utf-8")
            unfinished.replace(path)


def run_member(options: Options, log: Path) -> None:
    """The process, whose output goes to the end of a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(threadName)s %(message)s", datefmt="%T")
    break_consumer(options.broken)
    if options.brokers:
        reach_brokers_at(options.brokers)
    _begin(options).run()


def _begin(options: Options) -> Application:
    """Begin again where the broker restarts, as what supervises a process does: a consumer fails if none answers."""
    while True:
        try:
            return Application(options)
        except BrokerUnavailable as error:
            logging.getLogger(__name__).warning("starting again: %s", error)
            time.sleep(_RESTART_S)
