"""A broker's container without an engine for containers."""

import pytest

from zkconsumer.testing import containers
from zkconsumer.testing.containers import KafkaContainer


class Container:
    """A broker that ends as often as given after it was started, since ZooKeeper has its former session."""

    def __init__(self, ends):
        self.status, self.starts, self._ends = "exited", 0, ends

    def restart(self):
        self.starts += 1
        self.status = "exited" if self.starts <= self._ends else "running"

    def reload(self):
        pass

    def logs(self, tail):
        return b"NodeExists"


@pytest.fixture
def broker():
    def make(ends):
        made = object.__new__(KafkaContainer)
        container = Container(ends)
        made.get_wrapped_container = lambda: container
        made._ready = containers._Ready("kafka-0", lambda: True)
        return made

    return make


def test_a_killed_broker_is_started_until_its_former_session_has_expired(broker):
    killed = broker(2)
    killed.restart()
    assert killed.get_wrapped_container().starts == 3


def test_a_broker_that_keeps_ending_is_reported(broker, monkeypatch):
    ending = broker(10**6)
    monkeypatch.setattr(containers, "_READY_TIMEOUT_S", 0)
    with pytest.raises(RuntimeError) as caught:
        ending.restart()
    assert "kafka-0 has ended: NodeExists" in str(caught.value.__cause__)
