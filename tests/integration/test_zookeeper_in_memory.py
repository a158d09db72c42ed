"""ZooKeeper in memory answers as a real server does: random operations on both, compared one by one."""

import threading
import uuid

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import Callback, ZnodeStat

from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.zookeeper.multiread import ArmWatches, MultiRead

pytestmark = pytest.mark.integration

PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/1"]
CLIENTS = st.integers(0, 1)
ANY_PATH = st.sampled_from(PATHS)
DATA = st.sampled_from([None, b"", b"1", b"two"])
VERSIONS = st.sampled_from([-1, -1, 0, 1])
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), ANY_PATH, st.booleans()),
    st.tuples(st.just("delete"), ANY_PATH, VERSIONS),
    st.tuples(st.just("set"), ANY_PATH, VERSIONS),
    st.tuples(st.just("check"), ANY_PATH, VERSIONS),
)


class Client:
    """One client of kazoo, whichever server it has, and the watches that have fired for it."""

    def __init__(self, client: KazooClient) -> None:
        self.kazoo = client
        self.fired: list[tuple[str, str]] = []
        client.start_async().wait(60)

    def watch(self, event) -> None:
        self.fired.append((event.type, event.path))

    def ask(self, request: object) -> object:
        answer = self.kazoo.handler.async_result()
        self.kazoo._call(request, answer)
        return answer.get(timeout=30)

    def settle(self) -> None:
        """Return when every watch that has fired on the server has been called."""
        self.kazoo.exists_async("/").get(timeout=30)  # what fired before comes before this answer
        if isinstance(self.kazoo, KazooInMemory):
            self.kazoo.deliver()
            return
        done = threading.Event()
        self.kazoo.handler.dispatch_callback(Callback("watch", done.set, ()))
        assert done.wait(30)

    def end(self) -> None:
        self.kazoo.stop()
        self.kazoo.close()


class BothServers(RuleBasedStateMachine):
    """Sends each operation to both servers and compares what comes back."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.chroot = f"/memory-{uuid.uuid4().hex[:12]}"
        self.memory = ZooKeeperInMemory()
        self.addresses = (address, "memory:1")
        outsiders = self._connect(chroot="")
        for outsider in outsiders:
            outsider.kazoo.create_async(self.chroot, b"").get(timeout=30)
        self.outsiders = outsiders
        self.pairs = [self._connect(self.chroot), self._connect(self.chroot)]
        self.sessions: dict[int, int] = {}
        self.zxids: dict[int, int] = {}
        self._note_sessions()
        self.known = None

    def _connect(self, chroot: str) -> tuple[Client, Client]:
        real, memory = (f"{address}{chroot}" for address in self.addresses)
        return Client(KazooClient(real, timeout=60)), Client(KazooInMemory(self.memory, hosts=memory, timeout=10))

    def _note_sessions(self) -> None:
        for real, memory in self.pairs:
            self.sessions[real.kazoo.client_id[0]] = memory.kazoo.client_id[0]

    def teardown(self) -> None:
        for pair in self.pairs:
            for client in pair:
                client.end()
        for client in self.outsiders:
            client.end()

    # -- what is sent to both ---------------------------------------------------------------------------------------

    @rule(number=CLIENTS, path=ANY_PATH, data=DATA, ephemeral=st.booleans())
    def create(self, number, path, data, ephemeral):
        self._both(number, lambda one: one.kazoo.create_async(path, data, ephemeral=ephemeral).get(timeout=30))

    @rule(number=CLIENTS, path=ANY_PATH, version=VERSIONS)
    def delete(self, number, path, version):
        self._both(number, lambda one: one.kazoo.delete_async(path, version).get(timeout=30))

    @rule(number=CLIENTS, path=ANY_PATH, data=DATA, version=VERSIONS)
    def set(self, number, path, data, version):
        self._both(number, lambda one: one.kazoo.set_async(path, data, version).get(timeout=30))

    @rule(number=CLIENTS, path=ANY_PATH, watched=st.booleans())
    def get(self, number, path, watched):
        self._both(number, lambda one: one.kazoo.get_async(path, one.watch if watched else None).get(timeout=30))

    @rule(number=CLIENTS, path=ANY_PATH, watched=st.booleans())
    def exists(self, number, path, watched):
        self._both(number, lambda one: one.kazoo.exists_async(path, one.watch if watched else None).get(timeout=30))

    @rule(number=CLIENTS, path=st.sampled_from(["/", *PATHS]), watched=st.booleans())
    def children(self, number, path, watched):
        def ask(one):
            return sorted(one.kazoo.get_children_async(path, one.watch if watched else None).get(timeout=30))

        self._both(number, ask)

    @rule(number=CLIENTS, operations=st.lists(OPERATIONS, min_size=1, max_size=5))
    def transaction(self, number, operations):
        def ask(one):
            made = one.kazoo.transaction()
            for kind, path, more in operations:
                if kind == "create":
                    made.create(path, b"made", ephemeral=more)
                elif kind == "set":
                    made.set_data(path, b"set", more)
                else:
                    getattr(made, kind)(path, more)
            return made.commit_async().get(timeout=30)

        self._both(number, ask)

    @rule(number=CLIENTS, paths=st.lists(ANY_PATH, min_size=1, max_size=4, unique=True))
    def read_many(self, number, paths):
        self._both(number, lambda one: one.ask(MultiRead([one.kazoo.chroot + path for path in paths])))

    @rule(number=CLIENTS)
    def remember_the_last_transaction(self, number):
        self._both(number, lambda one: one.kazoo.exists_async("/").get(timeout=30))
        self.known = [one.kazoo.last_zxid for one in self.pairs[number]]

    @rule(number=CLIENTS, existing=st.sets(ANY_PATH, max_size=2), missing=st.sets(ANY_PATH, max_size=2))
    def arm_watches(self, number, existing, missing):
        if self.known is None:
            return
        known = iter(self.known)

        def ask(one):
            full = [[one.kazoo.chroot + path for path in sorted(paths)] for paths in (existing, missing - existing)]

            def register():
                for path in (*full[0], *full[1]):
                    one.kazoo._data_watchers[path].add(one.watch)

            return one.ask(ArmWatches(next(known), *full, register))

        self._both(number, ask)

    @rule(number=CLIENTS)
    def end_a_session_and_begin_another(self, number):
        for client in self.pairs[number]:
            client.end()
        self.pairs[number] = self._connect(self.chroot)
        self._note_sessions()
        self._compare_watches()

    # -- what is compared -------------------------------------------------------------------------------------------

    def _both(self, number, ask):
        real, memory = (self._answer(ask, one) for one in self.pairs[number])
        self._compare(real, memory)
        self._compare_watches()

    @staticmethod
    def _answer(ask, one):
        try:
            return ask(one)
        except KazooException as error:
            return error

    def _compare(self, real, memory):
        if isinstance(real, KazooException):
            assert type(real) is type(memory), (real, memory)
        elif isinstance(real, ZnodeStat):
            self._compare_stats(real, memory)
        elif isinstance(real, list | tuple):
            assert len(real) == len(memory), (real, memory)
            for one, other in zip(real, memory, strict=True):
                self._compare(one, other)
        else:
            assert real == memory

    def _compare_stats(self, real, memory):
        assert isinstance(memory, ZnodeStat), (real, memory)
        for name in ("version", "cversion", "aversion", "dataLength", "numChildren"):
            assert getattr(real, name) == getattr(memory, name), (name, real, memory)
        assert self.sessions.get(real.ephemeralOwner, real.ephemeralOwner) == memory.ephemeralOwner
        for name in ("czxid", "mzxid", "pzxid"):
            assert self.zxids.setdefault(getattr(real, name), getattr(memory, name)) == getattr(memory, name), name
        assert [self.zxids[zxid] for zxid in sorted(self.zxids)] == sorted(set(self.zxids.values()))

    def _compare_watches(self):
        for pair in self.pairs:
            for client in pair:
                client.settle()
        for real, memory in self.pairs:
            assert real.fired == memory.fired


@pytest.mark.timeout(300)
def test_a_server_in_memory_answers_as_a_real_one(sandbox):
    run_state_machine_as_test(
        lambda: BothServers(sandbox.zookeeper_connect),
        settings=settings(
            max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
