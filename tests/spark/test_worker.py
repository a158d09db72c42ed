"""A Python worker that runs a user's function and tasks of the source in turn, without effects on each other."""

import json
import socket
from pathlib import Path

import pytest

from tests.fixtures.spark import await_until

ESTABLISHED = "01"

pytestmark = [
    pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="needs Linux"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def function_of_a_user(port):
    """Connects to a database at its first call in a process, keeps the connection, and returns its observations.

    A closure, which is pickled by value: workers cannot import this module.
    """

    def look(_):
        import gc
        import json
        import socket
        import sys

        option = socket.IPPROTO_TCP, socket.TCP_QUICKACK
        has_source = "zkconsumer.spark.worker" in sys.modules
        if not hasattr(sys, "users_connection"):
            sys.users_connection = socket.create_connection(("127.0.0.1", port))
            sys.users_connection.setsockopt(*option, 0)
            sys.user_came_first = not has_source
        return json.dumps(
            {
                "shared": has_source and sys.user_came_first,
                "quick": sys.users_connection.getsockopt(*option),
                "frozen": gc.get_freeze_count(),
            }
        )

    return look


def keeping_connections_for(seconds):
    """A closure as above: the process id of the worker, whose idle connections are closed after these seconds."""

    def set_limit(_):
        import os

        from zkconsumer.spark import worker

        worker.connections._idle_s = seconds
        return os.getpid()

    return set_limit


def connections_of(pid, ports):
    """How many connections a process has to these ports."""
    links = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:] for kind in ("tcp", "tcp6")]
    found = 0
    for line in (line for table in tables for line in table):
        _, _, remote, state, *rest = line.split()
        is_to_a_broker = state == ESTABLISHED and int(remote.rpartition(":")[2], 16) in ports
        found += is_to_a_broker and f"socket:[{rest[5]}]" in links
    return found


def test_a_worker_closes_idle_connections_while_no_task_comes(spark, sandbox, unique_name, topic_factory, produce):
    from pyspark.sql.functions import udf

    from zkconsumer.spark.source import ZkConsumerDataSource

    topic = topic_factory(partitions=1)
    produce(topic, [b"v"] * 3)
    ports = {int(server.rpartition(":")[2]) for server in sandbox.bootstrap_servers.split(",")}
    options = {
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": unique_name,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    session = spark.newSession()
    session.dataSource.register(ZkConsumerDataSource)  # as above
    session.conf.set("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "false")
    limited = udf(keeping_connections_for(5.0), "int")

    def reader():
        """A worker that has read, and keeps its connections."""
        (row,) = session.range(1, numPartitions=1).select(limited("id")).collect()
        assert session.read.format("zkconsumer").options(**options).load().count() == 3
        return row[0] if connections_of(row[0], ports) else None

    pid = await_until(reader, "a worker reads")
    await_until(lambda: connections_of(pid, ports) == 0, "they are closed, and the worker waits for its next task")


def test_a_reused_worker_keeps_the_users_socket_options_and_frees_its_objects(
    spark, sandbox, unique_name, topic_factory, produce
):
    from pyspark.sql.functions import udf

    from zkconsumer.spark.source import ZkConsumerDataSource

    topic = topic_factory(partitions=1)
    produce(topic, [b"v"] * 3)
    options = {
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": unique_name,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    session = spark.newSession()
    # A source found by the look-up has separate workers; a registered one shares those of functions.
    session.dataSource.register(ZkConsumerDataSource)
    # Part of the environment of workers, so that these are not shared with other tests.
    session.conf.set("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true")
    with socket.create_server(("127.0.0.1", 0), backlog=100) as database:
        look = udf(function_of_a_user(database.getsockname()[1]))

        def seen_in_shared_worker():
            """The function's observations in a worker that ran it before a task of the source."""
            (row,) = session.range(1, numPartitions=1).select(look("id")).collect()
            assert session.read.format("zkconsumer").options(**options).load().count() == 3
            seen = json.loads(row[0])
            return seen if seen["shared"] else None

        seen = await_until(seen_in_shared_worker, "a worker runs the function, the source, and the function")
    assert (seen["quick"], seen["frozen"]) == (0, 0)
