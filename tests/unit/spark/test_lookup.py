"""Spark's look-up of the source, also in an environment that cannot import it."""

import subprocess
import sys

from zkconsumer.spark.lookup import find_source
from zkconsumer.spark.source import ZkConsumerDataSource

BROKEN = """
import pickle, sys
sys.modules["zkconsumer.spark.source"] = None

from pyspark.sql.datasource import DataSource
from pyspark_zkconsumer import DefaultSource

source = pickle.loads(pickle.dumps(DefaultSource))
print(issubclass(source, DataSource), source.name())
try:
    source({"zookeeper.connect": "h:1"})
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_source_that_cannot_be_imported_is_found_and_raises_the_cause_at_load(tmp_path):
    done = subprocess.run([sys.executable, "-c", BROKEN], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    named, error = done.stdout.splitlines()
    assert named == "True zkconsumer"
    assert error.startswith('UsageError format("zkconsumer") cannot be imported: import of zkconsumer.spark.source')


def test_this_spark_finds_the_source():
    assert find_source() is ZkConsumerDataSource
