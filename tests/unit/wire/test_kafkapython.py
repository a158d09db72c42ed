"""kafka-python without its clients, which are still there for those who ask."""

import subprocess
import sys

import pytest

LOAD = """
import sys
from zkconsumer.wire.kafkapython import load_kafka_python
load_kafka_python()
from kafka.protocol.consumer import OffsetFetchRequest
"""
WITHOUT_CLIENTS = """
assert not {"kafka.admin", "kafka.consumer", "kafka.producer"} & sys.modules.keys()
"""
FROM_THREADS = """
import threading, kafka
threads = [threading.Thread(target=lambda: kafka.KafkaConsumer) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
kafka.KafkaConsumer
"""


def run(code, *options):
    command = [sys.executable, *options, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "use",
    [
        "from kafka import KafkaConsumer",
        "from kafka import *; KafkaConsumer, KafkaProducer",
        "import kafka; assert kafka.__version__",
        "import kafka.consumer; kafka.consumer.KafkaConsumer",
        "from kafka import errors, structs; errors.KafkaError",
        "import kafka; assert not hasattr(kafka, 'Missing'); kafka.KafkaAdminClient",
        FROM_THREADS,
    ],
)
def test_the_clients_are_imported_when_they_are_used(use):
    run(LOAD + WITHOUT_CLIENTS + use, "-W", "error")


def test_a_library_that_is_imported_already_is_used():
    run(f"import kafka; former = kafka.KafkaConsumer\n{LOAD}import kafka; assert kafka.KafkaConsumer is former")


def test_clients_are_imported_before_any_message():
    loading = LOAD.partition("from kafka.")[0]
    run(f"{loading}import kafka.consumer; kafka.KafkaConsumer", "-W", "error")


def test_filters_that_were_set_since_do_not_break_the_messages():
    again = "import warnings; warnings.resetwarnings(); warnings.simplefilter('error'); load_kafka_python()"
    run(f"{LOAD}{again}; from kafka.protocol.admin import CreateTopicsRequest")
