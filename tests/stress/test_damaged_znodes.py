"""Bytes of a live group's znodes are damaged at random: no member ends, other topics continue, and the group recovers.

``ZKCONSUMER_STRESS_SEED`` repeats a run, ``ZKCONSUMER_STRESS_SECONDS`` sets how long each of them takes.
"""

from __future__ import annotations

import logging
import os
import random
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

import pytest
from kazoo.exceptions import BadVersionError, NoNodeError

from tests.fixtures.consumers import consumers
from tests.fixtures.damage import damaged
from tests.fixtures.waiting import eventually
from zkconsumer.errors import ZkConsumerError

SECONDS = float(os.environ.get("ZKCONSUMER_STRESS_SECONDS", "30"))
SEED = int(os.environ.get("ZKCONSUMER_STRESS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
PARTITIONS = 3
GROUP = "g"
MARK = f"/consumers/{GROUP}/zkconsumer/migrated"
PATIENCE_S, SOON_S = 120.0, 3.0
LONGEST = 1000
"""Characters of a message."""


class DamagedGroup:
    """Members that read two topics by the znodes of a chroot; the topics are those of a real broker.

    Attributes:
        received: places of all records that members were handed out, by topic.
        failures: what their streams raised.
        refusals: what they raised when they joined.
    """

    def __init__(self, make, zookeeper, root, topics, produce):
        self._make, self._zookeeper, self._root, self._produce = make, zookeeper, root, produce
        self._pool = ThreadPoolExecutor()
        self._mark = f"{root}{MARK}"
        self.topics = topics
        self.received = {topic: set() for topic in topics}
        self._sent = {topic: set() for topic in topics}
        self.failures = []
        self.refusals = []

    def join(self):
        """A member, or None if it was refused with an error of the package."""
        member = self._make()
        try:
            made = member.create_message_streams(dict.fromkeys(self.topics, 1))
        except ZkConsumerError as error:
            self.refusals.append(str(error))
            member.shutdown()
            return None
        for streams in made.values():
            threading.Thread(target=self._read, args=streams, daemon=True).start()
        return member

    def begin_join(self):
        """Join on a thread of its own; returns soon, since a member waits while there is no broker that it can read."""
        joining = self._pool.submit(self.join)
        wait([joining], SOON_S)
        return joining

    def _read(self, stream):
        try:
            for message in stream:
                self.received[message.topic].add((message.partition, message.offset))
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            self.failures.append(error)

    def send(self):
        """Produce a record to each partition."""
        for topic in self.topics:
            records = [{"value": b"v", "partition": number} for number in range(PARTITIONS)]
            self._sent[topic].update(self._produce(topic, records))

    def arrives(self, *topics):
        """Wait for all that was sent to topics, or to all of them."""
        for topic in topics or self.topics:
            eventually(lambda topic=topic: self.failures or self._sent[topic] <= self.received[topic])
        assert not self.failures

    def nodes(self):
        """All that may be damaged: the group's znodes, and those of the broker and of the first topic."""
        found = [f"{self._root}/brokers/ids/0", f"{self._root}/brokers/topics/{self.topics[0]}", self._mark]
        below = [f"{self._root}/consumers/{GROUP}"]
        while below:
            path = below.pop()
            with suppress(NoNodeError):
                below += [f"{path}/{name}" for name in sorted(self._zookeeper.get_children(path))]
                if self._zookeeper.get(path)[0]:
                    found.append(path)
        return found

    @contextmanager
    def damage(self, path, chance):
        """A znode has other bytes until the end of the block, where what its owner has written meanwhile stays."""
        print(f"damages {path}", file=sys.stderr)
        if path == self._mark:
            self._zookeeper.create(path, chance.randbytes(chance.randrange(300)), makepath=True)
            yield
            self._zookeeper.delete(path)
            return
        try:
            data, stat = self._zookeeper.get(path)
            other = damaged(data, chance)
            if "/offsets/" in path and other.strip().isdigit():
                other += b"x"  # a number is an offset that an operator may have stored
            version = self._zookeeper.set(path, other, stat.version).version
        except (NoNodeError, BadVersionError):
            version = None
        yield
        if version is not None:
            with suppress(NoNodeError, BadVersionError):
                self._zookeeper.set(path, data, version)


@pytest.fixture
def damaged_group(sandbox, zookeeper, topic_factory, produce, unique_name, request):
    topics = [topic_factory(partitions=PARTITIONS) for _ in range(2)]
    root = f"/{unique_name}"
    for path in ["/brokers/ids/0", *(f"/brokers/topics/{topic}" for topic in topics)]:
        zookeeper.create(root + path, zookeeper.get(path)[0], makepath=True)
    connection = {"zookeeper.connect": sandbox.zookeeper_connect + root}
    settings = {"group_protocol": request.param, "rebalance_backoff_ms": 300, "rebalance_max_retries": 60}
    settings |= {"zookeeper_session_timeout_ms": 10_000, "auto_commit_interval_ms": 200}
    with consumers(connection, GROUP, **settings) as make:
        yield DamagedGroup(make, zookeeper, root, topics, produce)


def check_reports(caplog, group):
    """What was logged and raised is short, names the znode or the way out, and is no defect of the package's own."""
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("zkconsumer")] + group.refusals
    assert not [record for record in caplog.records if record.exc_info]
    assert not [text for text in texts if "unexpected" in text]
    unnamed = [
        text for text in texts if re.search("not JSON|not UTF-8|not a|malformed", text) and "znode /" not in text
    ]
    assert not unnamed
    assert not [text for text in texts if len(text) > LONGEST]
    assert all("migrate unmark" in text or "znode /" in text for text in group.refusals)


each_protocol = pytest.mark.parametrize("damaged_group", ["zookeeper", "coordinator"], indirect=True)


@pytest.mark.timeout(SECONDS + 300)
@each_protocol
def test_members_survive_damaged_znodes(damaged_group, caplog):
    """While two members run, and a third one joins and leaves."""
    print(f"ZKCONSUMER_STRESS_SEED={SEED}", file=sys.stderr)
    caplog.set_level(logging.WARNING)
    chance, group = random.Random(SEED), damaged_group
    for _ in range(2):
        assert group.join()
    group.send()
    group.arrives()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        path, joined = chance.choice(group.nodes()), None
        with group.damage(path, chance):
            if chance.random() < 0.5:
                joined = group.begin_join()
            group.send()
            if group.topics[0] in path:
                group.arrives(group.topics[1])
        group.arrives()
        if joined is not None and (member := joined.result(PATIENCE_S)) is not None:
            group.arrives()
            member.shutdown()
    check_reports(caplog, group)


@pytest.mark.timeout(400)
@each_protocol
def test_a_member_joins_a_group_with_damaged_znodes(damaged_group, caplog):
    """Each znode in turn that the members before it have left."""
    print(f"ZKCONSUMER_STRESS_SEED={SEED}", file=sys.stderr)
    caplog.set_level(logging.WARNING)
    chance, group = random.Random(SEED), damaged_group
    member = group.join()
    group.send()
    group.arrives()
    member.shutdown()
    for path in group.nodes():
        with group.damage(path, chance):
            joining = group.begin_join()
            group.send()
            if group.topics[0] in path:
                group.arrives(group.topics[1])
        member = joining.result(PATIENCE_S) or group.join()
        group.arrives()
        member.shutdown()
    check_reports(caplog, group)
