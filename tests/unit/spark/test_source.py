import pickle
import subprocess
import sys
import traceback

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StringType, StructField, StructType

from zkconsumer.errors import ConfigError
from zkconsumer.spark.rows import spark_schema
from zkconsumer.spark.source import ZkConsumerDataSource

OPTIONS = {"zookeeper.connect": "h:1", "group.id": "g", "subscribe": "t"}


def source(**more: str) -> ZkConsumerDataSource:
    return ZkConsumerDataSource(OPTIONS | more)


def test_options_are_checked_at_load():
    with pytest.raises(ConfigError, match="numStreams must be a positive integer"):
        source(numStreams="0")


@pytest.mark.parametrize(
    "call",
    [
        lambda: source(numStreams="0", no="1"),
        lambda: source(startingOffsets="latest").reader(spark_schema(False)),
        lambda: source(endingOffsets="latest").streamReader(spark_schema(False)).initialOffset(),
        lambda: source(endingOffsets="latest").streamReader(spark_schema(False)).latestOffset({}, ReadAllAvailable()),
    ],
)
def test_a_failing_option_ends_in_a_traceback_of_few_lines(call):
    with pytest.raises(ConfigError) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames][-1] == "call"
    assert sum("zkconsumer/spark" in frame.filename and "tests" not in frame.filename for frame in frames) == 1
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("kind", ["reader", "streamReader"])
def test_readers_travel_pickled_without_connecting_to_anything(kind):
    ours = source(includeHeaders="true")
    reader = getattr(ours, kind)(ours.schema())
    again = pickle.loads(pickle.dumps(reader))
    assert list(again.read(InputPartition(None))) == []


def test_the_initial_offset_is_a_constant_and_the_limit_comes_from_the_options():
    ours = source(maxOffsetsPerTrigger="7")
    reader = ours.streamReader(ours.schema())
    offset = {"group": "g", "known": {}, "n": 0, "q": None, "topics": {}, "v": 3}
    assert reader.initialOffset() == reader.initialOffset() == offset
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert source().streamReader(ours.schema()).getDefaultReadLimit() == ReadAllAvailable()
    assert source(minOffsetsPerTrigger="3").streamReader(ours.schema()).getDefaultReadLimit() == ReadMinRows(3)
    reader.stop()


def test_a_batch_read_refuses_a_schema_at_planning():
    with pytest.raises(ConfigError, match="value is string, not binary"):
        source().reader(StructType([StructField("value", StringType())]))


def test_a_stream_refuses_a_schema_at_its_first_call():
    reader = source().streamReader(StructType([StructField("value", StringType())]))
    for first_call in (reader.initialOffset, lambda: reader.partitions({}, {"n": 1})):
        with pytest.raises(ConfigError, match="value is string, not binary"):
            first_call()
    reader.stop()


def test_it_is_found_from_any_directory_by_the_name_of_its_module(tmp_path):
    """As in Spark's look-up (notes.md#sparks-data-source-api); fails if an editable install hides top-level modules."""
    script = (
        "import importlib, pkgutil, sys\n"
        "names = [m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')]\n"
        "assert 'pyspark_zkconsumer' in names, names\n"
        "source = importlib.import_module('pyspark_zkconsumer').DefaultSource\n"
        "heavy = {'kazoo', 'kafka', 'pyarrow', 'crc32c', 'cramjam', 'numpy'} & sys.modules.keys()\n"
        "print(source.name(), sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("zkconsumer []\n", "")


def test_a_stream_reports_wrong_options_at_its_first_call():
    ours = source(endingOffsets="latest")
    reader = ours.streamReader(ours.schema())
    for first_call in (reader.initialOffset, reader.latestOffset, lambda: reader.read(InputPartition(None))):
        with pytest.raises(ConfigError, match=r"only apply to spark\.read"):
            first_call()
    reader.stop()
