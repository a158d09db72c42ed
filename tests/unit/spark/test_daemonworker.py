"""Workers forked by pyspark's own daemon, to which a test sends tasks as the JVM does."""

import gc
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from zkconsumer.spark.daemonworker import is_first_task, jvm_socket
from zkconsumer.spark.worker import acknowledge_quickly, collect_less

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="needs Linux")

TASKS = '''
import gc, json, os, socket

users = []

def quick(connection, value=None):
    """Set the option, or return it."""
    option = socket.IPPROTO_TCP, socket.TCP_QUICKACK
    return connection.getsockopt(*option) if value is None else connection.setsockopt(*option, value)

def function_of_a_user(infile, port):
    """Keeps a connection to a database, and a cycle."""
    users.append(socket.create_connection(("127.0.0.1", port)))
    users.append(users)
    return {}

def read(infile, _):
    """Act as a task of the source does at its beginning and end."""
    from zkconsumer.spark.daemonworker import jvm_socket
    from zkconsumer.spark.worker import acknowledge_quickly, collect_less

    with socket.socket(fileno=os.dup(infile.fileno())) as to_jvm:
        connections = {"jvm": to_jvm, **{"user": each for each in users[:1]}}
        is_tcp = to_jvm.family != socket.AF_UNIX
        for each in connections.values():
            if is_tcp:
                quick(each, 0)
        acknowledge_quickly()
        collect_less()
        return {
            "family": jvm_socket().family.name,
            "quick": {name: quick(each) for name, each in connections.items() if is_tcp},
            "frozen": gc.get_freeze_count() > 0,
        }

def main(infile, outfile):
    name, argument = json.loads(infile.readline())
    outfile.write(json.dumps({"pid": os.getpid(), **globals()[name](infile, argument)}).encode() + b"\\n")
    outfile.flush()
'''


class Jvm:
    """Starts the daemon, and one worker to which it sends one task after the other."""

    def __init__(self, directory, unix_socket):
        (directory / "pyspark_tasks.py").write_text(TASKS)
        # A separate path, because a Unix socket's is limited to about 100 bytes, less than that of a test's directory.
        self._sockets = tempfile.TemporaryDirectory(prefix="zkconsumer-")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(directory), *sys.path]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": self._sockets.name,
            "PYTHON_UNIX_DOMAIN_ENABLED": str(unix_socket).lower(),
            "SPARK_REUSE_WORKER": "1",
        }
        self._daemon = subprocess.Popen(
            [sys.executable, "-m", "pyspark.daemon", "pyspark_tasks"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        number = self._number(self._daemon.stdout)
        if unix_socket:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(self._daemon.stdout.read(number))
        else:
            self._socket = socket.create_connection(("127.0.0.1", number))
        self._answers = self._socket.makefile("rb")
        self.worker = self._number(self._answers)
        if not unix_socket:
            self._socket.sendall(struct.pack(">i", 6) + b"secret")
            assert self._answers.read(self._number(self._answers)) == b"ok"

    @staticmethod
    def _number(stream):
        return struct.unpack(">i", stream.read(4))[0]

    def run(self, task, argument=None):
        self._socket.sendall(json.dumps([task, argument]).encode() + b"\n")
        answer = json.loads(self._answers.readline())
        assert answer.pop("pid") == self.worker, "the worker is reused"
        return answer

    def close(self):
        self._answers.close()
        self._socket.close()
        self._daemon.stdin.close()
        self._daemon.wait(60)
        self._daemon.stdout.close()
        self._sockets.cleanup()


@pytest.fixture
def start(tmp_path):
    started = []

    def start(unix_socket=False):
        started.append(Jvm(tmp_path, unix_socket))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def database():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_only_the_socket_to_the_jvm_is_touched(start, database):
    jvm = start()
    jvm.run("function_of_a_user", database)
    for _ in range(2):
        assert jvm.run("read")["quick"] == {"jvm": 1, "user": 0}


def test_a_socket_of_the_user_that_comes_later_is_not_touched(start, database):
    jvm = start()
    assert jvm.run("read")["quick"] == {"jvm": 1}
    jvm.run("function_of_a_user", database)
    assert jvm.run("read")["quick"] == {"jvm": 1, "user": 0}


def test_objects_of_a_users_function_are_not_excluded_from_collections(start, database):
    jvm = start()
    jvm.run("function_of_a_user", database)
    for _ in range(2):
        assert not jvm.run("read")["frozen"]


def test_a_worker_that_begins_with_the_source_collects_less(start):
    jvm = start()
    for _ in range(2):
        assert jvm.run("read")["frozen"]


def test_a_unix_socket_to_the_jvm_is_not_changed(start):
    assert start(unix_socket=True).run("read") == {"family": "AF_UNIX", "quick": {}, "frozen": True}


def test_a_process_that_is_no_worker_is_not_changed():
    frozen = gc.get_freeze_count()
    acknowledge_quickly()
    collect_less()
    assert (jvm_socket(), is_first_task(), gc.get_freeze_count()) == (None, False, frozen)


def worker(sock):
    return jvm_socket()


def test_a_function_of_the_same_name_elsewhere_is_not_the_daemons():
    assert Path(worker.__code__.co_filename).name != "daemon.py"
    with socket.socket() as other:
        assert worker(other) is None
