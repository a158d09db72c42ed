"""Starting a broker again: its former session must be gone, for certain."""

from types import SimpleNamespace

import pytest

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox import KafkaBroker, ZooKeeperServer
from zkconsumer.sandbox.server import LocalServer

DUMP = "SessionTracker dump:\nSession Sets (1)/(0):\nephemeral nodes dump:\nSessions with Ephemerals (1):\n"
HELD = f"{DUMP}0x1:\n\t/brokers/ids/0\n"
GONE = f"{DUMP}0x2:\n\t/brokers/ids/1\nConnections dump:\n"
NOT_SERVING = "This ZooKeeper instance is not currently serving requests"


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Launch broker 0 of a ZooKeeper that gives these answers to ``dump``."""

    def run(answers, **arguments):
        monkeypatch.setattr(LocalServer, "launch", lambda server: None)
        zookeeper = ZooKeeperServer(tmp_path, **arguments)
        monkeypatch.setattr(zookeeper, "ask", lambda word: next(answers))
        KafkaBroker(tmp_path, zookeeper, []).launch()

    return run


def test_a_broker_starts_once_zookeeper_says_that_its_former_session_is_gone(launch):
    answers = iter([HELD, "", NOT_SERVING, HELD, GONE, "one too many"])
    launch(answers)
    assert list(answers) == ["one too many"]


@pytest.mark.parametrize(("answer", "told"), [(HELD, "check for another broker"), ("", "ZooKeeper does not tell")])
def test_that_is_not_waited_for_for_ever(launch, monkeypatch, answer, told):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(
        "zkconsumer.sandbox.kafka.time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    )
    with pytest.raises(SandboxError, match=f"Kafka broker 0: .*{told}"):
        launch(iter([answer] * 100))
