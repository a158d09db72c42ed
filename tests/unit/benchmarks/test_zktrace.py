import pytest

from benchmarks.zktrace import Sample, Settling, ZooKeeperTrace, settling
from zkconsumer.errors import SandboxError


def test_a_group_has_settled_with_its_last_write():
    samples = [
        Sample(at=9.0, packets=50, zxid=6),  # before the event
        Sample(at=10.0, packets=90, zxid=7),
        Sample(at=10.5, packets=120, zxid=7),
        Sample(at=11.0, packets=130, zxid=9),
        Sample(at=11.9, packets=140, zxid=9),
        Sample(at=12.0, packets=145, zxid=9),  # a second after the last write
        Sample(at=13.0, packets=900, zxid=9),
    ]
    assert settling(samples, since=9.5) == Settling(seconds=1.5, packets=95)


def test_without_writes_the_group_was_settled_at_once():
    samples = [Sample(at=number / 2, packets=number, zxid=3) for number in range(5)]
    assert settling(samples, since=0.5) == Settling(seconds=0.0, packets=2)


class Server:
    """Answers srvr as ZooKeeper does; counts the request itself, too."""

    def __init__(self, writes: int) -> None:
        self.asked = 0
        self._writes = writes

    def answer(self, word: str) -> str:
        assert word == "srvr"
        self.asked += 1
        self._writes -= self._writes > 0
        return f"Zookeeper version: 3.9.5\nReceived: {100 + self.asked}\nZxid: {0x500000 - self._writes:#x}\nMode: x\n"


def test_sampling_does_not_count_its_own_requests():
    server = Server(writes=5)
    with ZooKeeperTrace(server.answer) as trace:
        samples = trace.wait_until_quiet(0.1, 30)
    assert {sample.packets for sample in samples} == {100}
    assert [sample.zxid for sample in samples][:6] == [0x4FFFFC, 0x4FFFFD, 0x4FFFFE, 0x4FFFFF, 0x500000, 0x500000]


def test_a_gap_between_two_samples_is_not_quiet():
    trace = ZooKeeperTrace(Server(writes=0).answer)
    for sample, quiet in [
        (Sample(at=1.0, packets=1, zxid=6), 0.0),
        (Sample(at=4.0, packets=1, zxid=7), 0.0),  # written at any time in these three seconds
        (Sample(at=8.0, packets=1, zxid=7), 0.0),  # or in the next four: the answer may have been late
        (Sample(at=8.5, packets=1, zxid=7), 0.5),
    ]:
        trace._samples.append(sample)
        assert trace._quiet_for() == quiet


def test_a_server_that_is_never_quiet_is_an_error():
    with ZooKeeperTrace(Server(writes=10_000).answer) as trace, pytest.raises(SandboxError, match="does not settle"):
        trace.wait_until_quiet(30, 0.2)
