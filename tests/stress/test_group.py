"""A group under random events: every call returns within its bound, and stored offsets never move back.

Each consumer has workers that consume and commit, a listener and a before_commit that wait for other threads' commits,
and ends by a shutdown from any of these threads. Meanwhile members come and go, topics grow and sessions expire.
"""

import faulthandler
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError, SessionExpiredError

from tests.fixtures.members import Cluster
from tests.fixtures.zookeeper import session_of, take_over
from zkconsumer.errors import ConsumerClosed, ZkConsumerError
from zkconsumer.fetch.rules.fetchcontrol import FetchAssignment
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition

SECONDS = float(os.environ.get("ZKCONSUMER_STRESS_SECONDS", "120"))
SEED = int(os.environ.get("ZKCONSUMER_STRESS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
BOUND_S = 180.0
"""For any one call on a busy machine; what hangs would take forever."""
SESSION_MS = 4000
TOPIC = "t"
CONSUMERS = 3


class Calls:
    """Calls that are under way, with the time at which each began, and what went wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[object, tuple[str, float]] = {}
        self.failures: list[str] = []
        self.done = 0

    def make(self, name: str, call: Callable[[], object]) -> bool:
        """True if it succeeded; errors of this package are expected."""
        token = object()
        with self._lock:
            self._running[token] = (name, time.monotonic())
        try:
            call()
            return True
        except ConsumerClosed:
            return False
        except ZkConsumerError:
            return False
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            self.failures.append(f"{name}: {error!r}")
            return False
        finally:
            with self._lock:
                del self._running[token]
                self.done += 1

    def overdue(self) -> list[str]:
        now = time.monotonic()
        with self._lock:
            return [name for name, since in self._running.values() if now - since > BOUND_S]

    def idle(self) -> bool:
        with self._lock:
            return not self._running


class ConsumedPositions:
    """A data plane whose records are numbers: consuming one moves a position."""

    needs_topics = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._assignment = FetchAssignment(0, {})
        self._positions: dict[TopicPartition, int] = {}
        self._running = False
        self._freezing = threading.Lock()
        self._frozen = False

    def stop(self, *, drain: bool = True) -> None:
        with self._lock:
            self._running = False

    def start(self, assignment: FetchAssignment) -> None:
        with self._lock:
            self._assignment = assignment
            self._positions = {p: one.offset or 0 for p, one in assignment.partitions.items()}
            self._running = True

    def withhold(self) -> None:
        """Nothing is handed out to be taken back."""

    def deliver(self) -> None:
        """Nothing was taken back."""

    def superseded(self) -> list[tuple[TopicPartition, int]]:
        return []

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        with self._lock:
            return dict(self._positions)

    def consume(self, chance: random.Random) -> None:
        with self._lock:
            if self._running and not self._frozen:
                self._positions = {p: n + chance.randrange(3) for p, n in self._positions.items()}

    @contextmanager
    def frozen(self) -> Iterator[tuple[int, dict[TopicPartition, int]]]:
        """Generation and positions. Nothing is consumed meanwhile: what an explicit commit of them stores is not older
        than what is committed by timer.
        """
        with self._freezing:
            with self._lock:
                self._frozen = True
                snapshot = self._assignment.generation, dict(self._positions)
            try:
                yield snapshot
            finally:
                with self._lock:
                    self._frozen = False


class Consumer(ConsumerRebalanceListener):
    """One member with its workers, from its join to the end of all its threads."""

    def __init__(self, cluster: Cluster, name: str, calls: Calls, chance: random.Random) -> None:
        self._calls = calls
        self._chance = chance
        self._fetch = ConsumedPositions()
        self._to_end = ""
        self.ended = threading.Event()
        self.name = name
        self.member = cluster.member(
            name,
            self._fetch,
            self._before_commit,
            zookeeper_session_timeout_ms=SESSION_MS,
            zookeeper_connection_timeout_ms=60_000,
            rebalance_backoff_ms=300,
            auto_commit_interval_ms=50,
        )
        self.member.set_listener(self)
        self.threads = [threading.Thread(target=self._live, name=f"{name}-main", daemon=True)]
        self.threads += [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(2)]
        self._flushes = [threading.Semaphore(0) for _ in self.threads[1:]]
        self._flushed = [threading.Semaphore(0) for _ in self.threads[1:]]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def shutdown(self) -> None:
        self._calls.make(f"{self.name}: shutdown", self.member.leave)
        self.ended.set()

    def _live(self) -> None:
        if not self._calls.make(f"{self.name}: join", lambda: self.member.join(Subscription.static({TOPIC: 1}))):
            self.shutdown()
            return
        self.ended.wait(self._chance.uniform(1, 8))
        self._end_somewhere()
        self.ended.wait(BOUND_S)
        self.shutdown()

    def _end_somewhere(self) -> None:
        """Let one of several threads call shutdown."""
        where = self._chance.choice(["here", "worker", "listener", "before_commit", "friend"])
        if where == "here":
            self.shutdown()
        else:
            self._to_end = where
        # A listener may not be called for a while: after some time any thread will do.
        if not self.ended.wait(5):
            self.shutdown()

    def _ends_in(self, where: str) -> bool:
        if self._to_end == where:
            self._to_end = ""
            return True
        return False

    # -- workers ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        number = int(threading.current_thread().name[-1])
        while not self.ended.is_set():
            self._fetch.consume(self._chance)
            if self._chance.random() < 0.5:
                self._calls.make(f"{self.name}: commit", self.member.commit)
            else:
                self._commit_snapshot()
            if self._flushes[number].acquire(timeout=self._chance.uniform(0, 0.02)):
                self._calls.make(f"{self.name}: flush", self.member.commit)
                self._flushed[number].release()
            if self._ends_in("worker"):
                self.shutdown()
        self._flushed[number].release()  # the listener may wait for one that does not come any more

    def _commit_snapshot(self) -> None:
        with self._fetch.frozen() as (generation, offsets):
            self._calls.make(f"{self.name}: commit map", lambda: self.member.commit(offsets, generation=generation))

    # -- user code on the rebalance thread or a stand-in ------------------------------------------------------------

    def before_releasing_partitions(self, owned) -> None:
        self._wait_for_workers()

    def before_starting_fetchers(self, consumer_id, assignment) -> None:
        self._wait_for_workers()

    def _wait_for_workers(self) -> None:
        """As MirrorMaker does; also for one that has just called shutdown, which must return nevertheless."""
        if self._ends_in("listener"):
            self.shutdown()
        for flush, flushed, worker in zip(self._flushes, self._flushed, self.threads[1:], strict=True):
            if self._chance.random() < 0.5 and worker.is_alive() and not self.ended.is_set():
                flush.release()
                while not flushed.acquire(timeout=0.05) and worker.is_alive():
                    pass
        if self._ends_in("friend"):
            self._with_friend(self.shutdown)

    def _before_commit(self) -> None:
        if self._ends_in("before_commit"):
            self.shutdown()
        if self._chance.random() < 0.1:
            self._with_friend(lambda: self._calls.make(f"{self.name}: friend's commit", self.member.commit))

    def _with_friend(self, act: Callable[[], object]) -> None:
        """Let a new thread do something, and wait for it."""
        friend = threading.Thread(target=act, name=f"{self.name}-friend", daemon=True)
        friend.start()
        friend.join()


class Watcher:
    """Reads all stored offsets all the time, and notes those that moved back."""

    def __init__(self, cluster: Cluster) -> None:
        self._zookeeper = cluster.zookeeper
        self._path = f"{cluster.root}/consumers/g/offsets/{TOPIC}"
        self._highest: dict[str, int] = {}
        self.moved_back: list[str] = []

    def look(self) -> None:
        retry = self._zookeeper.retry  # on a machine that stands still this client loses its connection, too
        if retry(self._zookeeper.exists, self._path) is None:
            return
        for name in retry(self._zookeeper.get_children, self._path):
            offset = int(retry(self._zookeeper.get, f"{self._path}/{name}")[0])
            if offset < self._highest.get(name, 0):
                self.moved_back.append(f"partition {name}: from {self._highest[name]} to {offset}")
            self._highest[name] = offset

    @property
    def total(self) -> int:
        return sum(self._highest.values())


def try_to_expire(cluster: Cluster, victim: Consumer) -> None:
    """End a consumer's session from elsewhere; its own connection may win the race, or it may have left."""
    identity = session_of(victim.member)._client.client_id
    if identity is not None and not victim.ended.is_set():
        take_over(cluster.connect, identity, 5)


def disturb(cluster: Cluster, consumers: list[Consumer], chance: random.Random) -> None:
    """One of the events that make a group rebalance."""
    event = chance.choice(["stranger", "stranger", "expiry", "nothing", "nothing"])
    if event == "stranger":
        # If the machine stands still in here, the stranger's session ends, or it stays until the next time.
        with suppress(ConnectionLoss, SessionExpiredError, NodeExistsError):
            cluster.register_stranger("stranger", "no-topic")
        time.sleep(chance.uniform(0, 0.2))
        with suppress(ConnectionLoss, SessionExpiredError, NoNodeError):
            cluster.zookeeper.delete(f"{cluster.root}/consumers/g/ids/g_stranger")
    elif event == "expiry":
        try_to_expire(cluster, chance.choice(consumers))


@pytest.mark.timeout(SECONDS + 4 * BOUND_S)
def test_a_group_survives_random_events(sandbox, zookeeper, unique_name):
    print(f"ZKCONSUMER_STRESS_SEED={SEED}", file=sys.stderr)
    chance, calls = random.Random(SEED), Calls()
    cluster = Cluster(sandbox, zookeeper, unique_name)
    cluster.create_topics(TOPIC, partitions=4)
    watcher, made = Watcher(cluster), 0
    consumers: list[Consumer] = []
    retired: list[Consumer] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or not all(one.ended.is_set() for one in consumers):
        retired += [one for one in consumers if one.ended.is_set()]
        consumers = [one for one in consumers if not one.ended.is_set()]
        while len(consumers) < CONSUMERS and time.monotonic() < end:
            consumers.append(Consumer(cluster, f"c{made}", calls, random.Random(chance.random())))
            consumers[-1].start()
            made += 1
        watcher.look()
        if consumers and chance.random() < 0.05:
            disturb(cluster, consumers, chance)
        assert not watcher.moved_back, SEED
        assert not calls.failures, SEED
        if calls.overdue():
            faulthandler.dump_traceback()
            pytest.fail(f"seed {SEED}: not returned after {BOUND_S} s: {calls.overdue()}")
    for one in retired + consumers:
        for thread in one.threads:
            thread.join(BOUND_S)
            assert not thread.is_alive(), f"{thread.name}, seed {SEED}"
    watcher.look()
    assert not watcher.moved_back
    assert calls.idle()
    print(f"{made} consumers, {calls.done} calls, {watcher.total} records committed", file=sys.stderr)
    assert watcher.total > 0
