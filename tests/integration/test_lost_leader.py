"""Three ZooKeeper servers, of which a follower stops hearing from the leader and answers what it knew."""

from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.process.boottime import boot_seconds
from zkconsumer.sandbox.ensemble import EnsembleMember
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.zookeeper.session import ZkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SESSION_MS = 3000
FENCE = "/members/c@1"
OWNER = "/consumers/g/owners/t/0"


class Servers:
    """Three servers; the first one follows, and reaches the others' quorum ports through proxies."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        ports = {number: (free_port(), free_port()) for number in (1, 2, 3)}
        self._proxies = [stack.enter_context(TcpProxy(f"{HOST}:{ports[number][0]}")) for number in (2, 3)]
        direct = {f"server.{number}": f"{HOST}:{quorum}:{election}" for number, (quorum, election) in ports.items()}
        behind = {
            f"server.{number}": f"{proxy.address}:{ports[number][1]}"
            for number, proxy in zip((2, 3), self._proxies, strict=True)
        }
        self.members = [
            EnsembleMember(directory, number, quorum, port=None, tick_time_ms=500, max_session_timeout_ms=None)
            for number, quorum in ((1, direct | behind), (2, direct), (3, direct))
        ]
        for member in self.members:
            stack.callback(member.kill)
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_serving()
        self.follower = self.members[0]
        self.leader = next(one for one in self.members if one.mode() == "leader")
        assert self.follower.mode() == "follower"

    def cut_off(self) -> None:
        """The follower hears nothing from the leader any more, and the leader nothing from it."""
        for proxy in self._proxies:
            proxy.cut()

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.heal()


def test_a_follower_without_its_leader_proves_no_session(tmp_path: Path) -> None:
    """Its clients can read what they own long after the leader has expired their sessions."""
    with ExitStack() as stack:
        servers = Servers(tmp_path, stack)
        reader = stack.enter_context(connected(servers.follower.address, 10))
        other = stack.enter_context(connected(servers.leader.address, 10))
        stack.callback(servers.heal)
        zk = ZkSession(servers.follower.address, session_timeout_ms=SESSION_MS, connection_timeout_ms=20_000)
        asked = boot_seconds()
        zk.open()
        stack.enter_context(closing(zk))
        session = zk.session_id
        zk.create_ephemerals([(FENCE, b"")], ["/members"])
        ownership = PartitionOwnership(zk, "g", lambda: FENCE, lambda: session, lambda: None)
        ownership.claim({TopicPartition("t", 0): ConsumerThreadId("g_c", 0)})
        lease = SessionLease(
            zk,
            SimpleNamespace(registered_session=session, session_timeout=SESSION_MS / 1000),
            lambda: FENCE,
            lambda: None,
            "group g",
        )
        lease.start(asked)
        stack.callback(lease.stop)
        eventually(lambda: lease.remaining() > 0.7 * SESSION_MS / 1000)  # probes are answered
        assert ownership.lose_taken() == []
        servers.cut_off()
        eventually(lambda: other.exists(FENCE) is None)
        assert not lease.holds()
        assert reader.exists(FENCE) is not None, "the follower answers, with what it knew"
        with pytest.raises(ZooKeeperUnavailable):
            ownership.lose_taken()
        assert other.exists(OWNER) is None
