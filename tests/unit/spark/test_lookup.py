"""Spark's look-up if the source cannot be imported: Spark 4.0 and 4.1 have no read limits for Python sources."""

import subprocess
import sys

import pytest

from zkconsumer.spark.lookup import find_source, why_unavailable
from zkconsumer.spark.source import ZkConsumerDataSource

OLD_SPARK = """
import sys, types
import pyspark
import pyspark.sql.streaming.datasource as newer

# The names that pyspark itself needs from the module, without those that Spark 4.2 added.
older = types.ModuleType(newer.__name__)
older.ReadLimit, older.ReadAllAvailable = newer.ReadLimit, newer.ReadAllAvailable
sys.modules[newer.__name__] = older
pyspark.__version__ = "4.1.4"
"""


def on_old_spark(tmp_path, script):
    done = subprocess.run(
        [sys.executable, "-c", OLD_SPARK + script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_an_old_spark_can_import_the_source_and_is_named_at_load(tmp_path):
    out = on_old_spark(
        tmp_path,
        """
import pickle
from pyspark.sql.datasource import DataSource
from pyspark_zkconsumer import DefaultSource

source = pickle.loads(pickle.dumps(DefaultSource))
print(issubclass(source, DataSource), source.name())
try:
    source({"zookeeper.connect": "h:1"})
except Exception as error:
    print(type(error).__name__, error)
""",
    )
    named, error = out.splitlines()
    assert named == "True zkconsumer"
    assert error.startswith(
        'UsageError format("zkconsumer") needs Spark 4.2 or later, but this is 4.1.4 (cannot import'
    )


def test_registering_with_an_old_spark_is_refused(tmp_path):
    out = on_old_spark(
        tmp_path,
        """
import zkconsumer.spark
from zkconsumer.errors import UsageError

try:
    zkconsumer.spark.register(None)
except UsageError as error:
    print(error)
""",
    )
    assert "needs Spark 4.2 or later, but this is 4.1.4" in out


def test_this_spark_finds_the_source():
    assert find_source() is ZkConsumerDataSource


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0.dev3", "3.5.6"])
def test_a_release_that_is_too_old_is_named(version):
    assert f"this is {version} (no datasource)" in why_unavailable(version, "no datasource")


@pytest.mark.parametrize("version", ["4.2.0", "4.10.0", "5.0.0rc1"])
def test_on_a_release_that_is_new_enough_the_cause_is_named(version):
    assert why_unavailable(version, "No module named 'x'").startswith(
        "format(\"zkconsumer\") cannot be imported: No module named 'x'; "
    )
