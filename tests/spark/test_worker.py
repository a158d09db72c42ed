"""A Python worker that runs a user's function and tasks of the source in turn, without effects on each other."""

import json
import socket

import pytest

from tests.fixtures.spark import await_until

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
