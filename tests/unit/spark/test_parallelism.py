from types import SimpleNamespace

import pytest

from zkconsumer.spark.parallelism import known_parallelism, publish_parallelism


def session(directory, parallelism):
    """What is used of a SparkSession whose driver has this directory."""
    disk = SimpleNamespace(localDirs=lambda: [SimpleNamespace(getPath=lambda: str(directory))])
    manager = SimpleNamespace(blockManager=lambda: SimpleNamespace(diskBlockManager=lambda: disk))
    environment = SimpleNamespace(get=lambda: manager)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(SparkEnv=environment))))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, defaultParallelism=parallelism))


@pytest.fixture
def directory(tmp_path, monkeypatch):
    made = tmp_path / "blockmgr-1"
    made.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(made))
    return made


def test_sources_of_the_driver_find_the_newest_number(directory):
    assert known_parallelism() is None
    for parallelism in (2, 300):
        publish_parallelism(session(directory, parallelism))
        assert known_parallelism() == parallelism
    assert len(list(directory.iterdir())) == 1


def test_without_a_context_or_a_driver_it_is_unknown(directory, monkeypatch):
    publish_parallelism(SimpleNamespace())
    assert known_parallelism() is None
    (directory / "zkconsumer-parallelism").write_text("")
    assert known_parallelism() is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert known_parallelism() is None
