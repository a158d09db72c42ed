"""What a release of Spark lacks is said in one sentence: 4.0 and 4.1 have no read limits for Python sources."""

import subprocess
import sys

import pytest
from pyspark.errors import AnalysisException

from zkconsumer.spark.release import register_source, why_no_streams, why_unavailable
from zkconsumer.spark.source import ZkConsumerDataSource

SPARK_41 = """
import sys, types
import pyspark
import pyspark.sql.streaming.datasource as newer

# The names that pyspark itself needs from the module, without those that Spark 4.2 added.
older = types.ModuleType(newer.__name__)
older.ReadLimit, older.ReadAllAvailable = newer.ReadLimit, newer.ReadAllAvailable
sys.modules[newer.__name__] = older
pyspark.__version__ = "4.1.4"
"""
SPARK_35 = """
import sys
import pyspark
sys.modules["pyspark.sql.datasource"] = None
pyspark.__version__ = "3.5.9"
"""


def run(tmp_path, script):
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_release_without_read_limits_has_batch_reads_and_refuses_streams_at_any_first_call(tmp_path):
    kind, batch, *refusals = run(
        tmp_path,
        SPARK_41
        + """
import pickle
from pyspark_zkconsumer import DefaultSource

source = pickle.loads(pickle.dumps(DefaultSource))({"zookeeper.connect": "h:1", "group.id": "g", "subscribe": "t"})
print(type(source).__name__)
print(type(pickle.loads(pickle.dumps(source.reader(source.schema())))).__name__)
stream = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
for call in (stream.initialOffset, stream.latestOffset, lambda: stream.partitions({}, {"n": 1})):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
stream.stop()
""",
    )
    assert (kind, batch) == ("ZkConsumerDataSource", "ZkConsumerReader")
    assert len(refusals) == 3
    assert set(refusals) == {f"UsageError {why_no_streams('4.1.4', '')}"}


def test_registering_with_a_spark_that_has_no_python_sources_is_refused(tmp_path):
    (error,) = run(
        tmp_path,
        SPARK_35
        + """
import zkconsumer.spark
from zkconsumer.errors import UsageError

try:
    zkconsumer.spark.register(None)
except UsageError as error:
    print(error)
""",
    )
    assert error.startswith('format("zkconsumer") needs Spark 4.0 or later, and 4.2 for streams, but this is 3.5.9 (')


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0.dev3", "3.5.6"])
def test_a_release_that_has_no_streams_is_named(version):
    assert f"need Spark 4.2 or later, but this is {version}, with which batch" in why_no_streams(version, "no module")


@pytest.mark.parametrize("version", ["4.2.0", "4.10.0", "5.0.0rc1"])
def test_on_a_release_that_is_new_enough_the_cause_is_named(version):
    for why in (why_unavailable, why_no_streams):
        assert "zkconsumer\") cannot be imported: No module named 'x'; " in why(version, "No module named 'x'")


class Refusal(AnalysisException):
    def __init__(self, condition):
        self.condition = condition

    def getCondition(self):  # noqa: N802 - Spark's name
        return self.condition


class Session:
    """A session whose registry refuses a source with an error condition."""

    def __init__(self, condition):
        self.dataSource = self
        self.condition = condition
        self.registered = []

    def register(self, source):
        self.registered.append(source)
        if self.condition:
            raise Refusal(self.condition)


@pytest.mark.parametrize("condition", [None, "DATA_SOURCE_ALREADY_EXISTS"])
def test_a_source_that_the_session_has_already_is_no_error(condition):
    session = Session(condition)
    register_source(session, ZkConsumerDataSource)
    assert session.registered == [ZkConsumerDataSource]


def test_other_errors_of_the_registry_are_raised():
    with pytest.raises(AnalysisException):
        register_source(Session("DATA_SOURCE_NOT_FOUND"), ZkConsumerDataSource)
