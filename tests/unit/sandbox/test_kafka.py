"""Starting a broker again: its former session must have expired."""

import contextlib
import itertools
import socket
import threading

import pytest

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox import KafkaBroker, ZooKeeperServer

DUMP = "SessionTracker dump:\nSession Sets (1)/(0):\nephemeral nodes dump:\nSessions with Ephemerals (1):\n"
HELD = f"{DUMP}0x1:\n\t/brokers/ids/0\n"
GONE = f"{DUMP}0x2:\n\t/brokers/ids/1\nConnections dump:\n"
NOT_SERVING = "This ZooKeeper instance is not currently serving requests"


@pytest.fixture
def make_broker(tmp_path):
    """Broker 0 of a ZooKeeper that gives these answers to ``dump``, on a socket."""
    with contextlib.ExitStack() as stack:

        def make(answers):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve():
                with contextlib.suppress(OSError):  # the test has ended
                    for answer in answers:
                        connection, _ = listener.accept()
                        with connection:
                            connection.recv(len(b"dump"))
                            connection.sendall(answer.encode())

            threading.Thread(target=serve, daemon=True).start()
            zookeeper = ZooKeeperServer(tmp_path, port=listener.getsockname()[1])
            return KafkaBroker(tmp_path, zookeeper, [])

        yield make


def test_a_former_session_is_over_once_zookeeper_reports_so(make_broker):
    answered = []

    def answers():
        # The last one repeatedly: on a machine that stands still an answer comes too late to be read.
        for answer in itertools.chain((HELD, "", NOT_SERVING, HELD), itertools.repeat(GONE, 100)):
            answered.append(answer)
            yield answer

    make_broker(answers()).await_end_of_former_session()
    assert GONE in answered


@pytest.mark.parametrize(
    ("answer", "reported"), [(HELD, "check for another broker"), ("", "ZooKeeper does not answer")]
)
def test_the_wait_for_a_former_session_is_bounded(make_broker, answer, reported):
    clock = itertools.count(0, 10)
    broker = make_broker(itertools.repeat(answer, 100))
    with pytest.raises(SandboxError, match=f"Kafka broker 0: .*{reported}"):
        broker.await_end_of_former_session(lambda: next(clock))
