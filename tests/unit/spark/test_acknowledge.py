"""Acknowledgements over a real Unix socket."""

import json
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fixtures.threads import threads_refused
from zkconsumer.spark.acknowledge import AcknowledgementServer, acknowledge, open_server, request_report


@pytest.fixture
def received():
    return []


def note_in(received):
    """Notes acknowledgements in a list; there is nothing to commit after batch 0."""

    def acknowledged(number, parallelism):
        received.append((number, parallelism))
        return number > 0

    return acknowledged


@pytest.fixture
def server(received):
    made = AcknowledgementServer(note_in(received), lambda: None, lambda: received)
    yield made
    made.close()


def test_a_number_arrives_before_the_sender_continues(server, received):
    acknowledge(server.path, 17)
    acknowledge(server.path, 18, 300)
    assert received == [(17, None), (18, 300)]


def test_a_report_is_made_when_it_is_requested(server, received):
    assert json.loads(request_report(server.path)) == []
    acknowledge(server.path, 17)
    assert json.loads(request_report(server.path)) == [[17, None]]


def test_only_this_user_may_send(server):
    assert stat.S_IMODE(Path(server.path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(server.path).parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("nonsense", [b"\n", b"{}\n", b'{"n":"x"}\n', b"x" * 500, b""])
def test_malformed_acknowledgements_are_ignored(server, received, nonsense):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.path)
        connection.sendall(nonsense)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    acknowledge(server.path, 19)
    assert received == [(19, None)]


def test_neither_others_nor_closing_wait_for_a_commit(received):
    committing, end = threading.Event(), threading.Event()

    def commit():
        committing.set()
        assert end.wait(30)

    server = AcknowledgementServer(note_in(received), commit, lambda: received)
    with ThreadPoolExecutor(1) as sender:
        first = sender.submit(acknowledge, server.path, 1)
        assert committing.wait(30)
        acknowledge(server.path, 0)
        server.close()
        assert received == [(1, None), (0, None)]
        end.set()
        with suppress(TimeoutError):  # after 2 s
            first.result(30)


def test_after_closing_no_files_remain_and_senders_fail(received):
    server = AcknowledgementServer(note_in(received), lambda: None, lambda: received)
    server.close()
    server.close()
    assert not Path(server.path).parent.exists()
    with pytest.raises(OSError, match="No such file"):
        acknowledge(server.path, 1)


def test_a_path_that_is_too_long_disables_only_acknowledgements(tmp_path, caplog):
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert open_server(lambda *_: False, lambda: None, dict, deep) is None
    assert "set TMPDIR to a short path" in caplog.text
    assert list(deep.iterdir()) == []


def test_without_a_thread_nothing_is_left_in_the_temporary_directory(tmp_path):
    with threads_refused(lambda name: name == "zkconsumer-acknowledgements"):
        assert open_server(lambda *_: False, lambda: None, dict, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
