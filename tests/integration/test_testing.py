"""The fixtures for users: the examples of docs/testing.md run, as a user's tests."""

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from zkconsumer.testing.cluster import KafkaCluster

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_examples_of_the_documentation_pass(tmp_path):
    examples = re.findall(r"^```python (\S+\.py)\n(.*?)^```", (ROOT / "docs/testing.md").read_text(), re.M | re.S)
    assert [name for name, _ in examples] == ["conftest.py", "test_consumer.py", "test_program.py", "test_ledger.py"]
    for program in ("two_threads.py", "handler.py"):
        shutil.copy(ROOT / "examples" / program, tmp_path)
    for name, text in examples:
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_produced_values_have_the_present_time(sandbox, topic_factory, unique_name):
    """A broker deletes records by their age; the records of a test would have that of 1970."""
    topic, began = topic_factory(), time.time()
    cluster = KafkaCluster(sandbox.zookeeper_connect, f" {sandbox.bootstrap_servers} ")
    cluster.produce(topic, [b"v"])
    with closing(Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": unique_name})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
    assert began - 1 <= message.timestamp()[1] / 1000 <= time.time()
