"""The same job with Spark's own Kafka source and with this one; and the examples, which migrate such jobs."""

import json
import os
import shutil
import sqlite3
import sys
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.spark import ObservedGroup, run_in_time
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.cli.main import command
from zkconsumer.sandbox import java_home_for_spark
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.progress import Progress

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(1800)  # several Spark applications, one after the other

JOBS = """
import json, sys

from pyspark.sql import SparkSession

def job(spark, source, where, topics, directory):
    options = {"subscribe": topics, "startingOffsets": "earliest", "includeHeaders": "true"}
    batch = spark.read.format(source).options(**where, **options).load()
    batch.write.mode("overwrite").parquet(f"{directory}/{source}-batch")
    stream = spark.readStream.format(source).options(**where, **options).option("maxOffsetsPerTrigger", 7).load()
    query = (
        stream.writeStream.format("parquet").option("path", f"{directory}/{source}-stream")
        .option("checkpointLocation", f"{directory}/{source}-checkpoint")
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()
    results = {"batch": batch.schema.json(), "stream": stream.schema.json()}
    for kind in ("batch", "stream"):
        rows = spark.read.parquet(f"{directory}/{source}-{kind}").orderBy("topic", "partition", "offset")
        results[f"{kind} rows"] = [json.loads(row) for row in rows.toJSON().collect()]
    return results

directory, topics, *sources = sys.argv[1:]
spark = SparkSession.builder.config("spark.sql.jsonGenerator.ignoreNullFields", "false").getOrCreate()
pairs = zip(sources[::2], sources[1::2])
results = {source: job(spark, source, json.loads(where), topics, directory) for source, where in pairs}
open(f"{directory}/results.json", "w").write(json.dumps(results))
"""


def run_application(*arguments: str, jars: str = "", **environment: str) -> str:
    """Run a Python file as a separate Spark application, in ``local[2]``; it can be run again after a failure.

    Returns:
        What it has printed.
    """
    confs = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    confs |= {"spark.jars": jars} if jars else {}
    submit = " ".join(f"--conf {name}={value}" for name, value in confs.items())
    variables = {
        **os.environ,
        "JAVA_HOME": str(java_home_for_spark()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {submit} pyspark-shell",
        **environment,
    }
    done = run_in_time([sys.executable, *arguments], env=variables)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def compared(sandbox, tmp_path_factory):
    """The results of both sources for the same topics, and the directory of their checkpoints."""
    directory = tmp_path_factory.mktemp("comparison")
    topics = Topics(sandbox.bootstrap_servers)
    for name, config in (("compared-a", {}), ("compared-b", {"message.timestamp.type": "LogAppendTime"})):
        topics.create(name, 2, config=config)
        records = [
            {"value": b"v%d" % n, "key": b"k%d" % n, "partition": n % 2, "timestamp": 1_700_000_000_000 + n}
            for n in range(20)
        ]
        records += [
            {"value": None, "key": b"", "partition": 0},
            {"value": b"", "key": None, "partition": 1},
            {"value": bytes(range(256)), "partition": 0, "headers": [("a", b"1"), ("a", None), ("", b"")]},
        ]
        produce_records(sandbox.bootstrap_servers, name, records, compression_type="lz4")
    jars = JarSource.from_environment().provide(read_lock("spark-kafka"), Progress())
    kafka = {"kafka.bootstrap.servers": sandbox.bootstrap_servers}
    ours = {"zookeeper.connect": sandbox.zookeeper_connect, "group.id": "compared"}
    script = directory / "jobs.py"
    script.write_text(JOBS, encoding="utf-8")
    run_application(
        str(script),
        str(directory),
        "compared-a,compared-b",
        "kafka",
        json.dumps(kafka),
        "zkconsumer",
        json.dumps(ours),
        jars=",".join(map(str, jars)),
    )
    return json.loads((directory / "results.json").read_text(encoding="utf-8")), directory


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_the_same_job_gives_equal_rows_types_and_nullability(compared, kind):
    results, _ = compared
    kafka, ours = results["kafka"], results["zkconsumer"]
    assert json.loads(ours[kind]) == json.loads(kafka[kind])
    assert len(kafka[f"{kind} rows"]) == 46
    assert ours[f"{kind} rows"] == kafka[f"{kind} rows"]


def test_the_example_continues_a_checkpoint_and_restarts_without_it(compared, sandbox, zookeeper, tmp_path):
    _, directory = compared
    produced = produce_records(sandbox.bootstrap_servers, "compared-a", [b"later"] * 5)
    checkpoint = directory / "kafka-checkpoint"
    one_topic = json.loads((checkpoint / "offsets" / _newest(checkpoint)).read_text(encoding="utf-8").splitlines()[-1])
    old = tmp_path / "old"
    # Besides the last finished batch: an older one, and an unfinished one.
    for number, text in ((9, {}), (10, {"compared-a": one_topic["compared-a"]}), (11, {"compared-a": {"0": 99}})):
        for name, last_line in (("commits", "{}"), ("offsets", json.dumps(text))):
            (old / name).mkdir(parents=True, exist_ok=True)
            (old / name / str(number)).write_text(f"v1\n{{}}\n{last_line}", encoding="utf-8")
    (old / "commits" / "11").unlink()
    output = tmp_path / "output"
    arguments = [
        str(PROJECT / "examples" / "from_kafka_source.py"),
        *("--zookeeper", sandbox.zookeeper_connect, "--group", "archive", "--topic", "compared-a"),
        # URIs, as those of HDFS and S3 are.
        *("--old-checkpoint", old.as_uri(), "--checkpoint", (tmp_path / "new").as_uri(), "--output", output.as_uri()),
    ]
    run_application(*arguments)
    ObservedGroup(zookeeper, "archive").await_left()
    shutil.rmtree(old)
    produced += produce_records(sandbox.bootstrap_servers, "compared-a", [b"later"] * 5)
    run_application(*arguments)
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(output, columns=["partition", "offset", "value"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == sorted(produced)
    assert {row["value"] for row in rows} == {"later"}


def test_the_example_of_the_receiver_continues_its_group(
    sandbox, zookeeper, topic_factory, produce, unique_name, tmp_path
):
    """Each word is counted once, except those of records that the group has read before."""
    topic = topic_factory(partitions=2)
    database = tmp_path / "counts.sqlite"
    arguments = [
        str(PROJECT / "examples" / "from_receiver.py"),
        *("--zookeeper", sandbox.zookeeper_connect, "--group", unique_name, "--topic", topic),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--database", str(database)),
    ]
    ids = iter(range(1000))

    def produce_some():
        produce(topic, [b"%d to be or not to be" % number for number in islice(ids, 10)])

    produce_some()
    read = consume(sandbox, unique_name, topic, 3)
    run_application(*arguments)
    produce_some()
    ObservedGroup(zookeeper, unique_name).await_left()
    run_application(*arguments)
    with sqlite3.connect(database) as connection:
        counts = dict(connection.execute("SELECT word, count FROM counts"))
    connection.close()
    rest = sorted(set(range(next(ids))) - set(read))
    assert {int(word): counts.pop(word) for word in list(counts) if word.isdigit()} == dict.fromkeys(rest, 1)
    assert counts == {"to": 2 * len(rest), "be": 2 * len(rest), "or": len(rest), "not": len(rest)}


def test_the_example_continues_a_group_with_sparks_own_source_and_back(
    sandbox, topic_factory, produce, unique_name, tmp_path
):
    """Numbered records: each is read once, by the group's member or by the query."""
    topic = topic_factory(partitions=2)
    starting, checkpoint, output = tmp_path / "starting.json", tmp_path / "checkpoint", tmp_path / "output"
    jars = ",".join(map(str, JarSource.from_environment().provide(read_lock("spark-kafka"), Progress())))
    arguments = [
        str(PROJECT / "examples" / "to_kafka_source.py"),
        *("--bootstrap-server", sandbox.bootstrap_servers, "--topic", topic, "--starting-offsets", str(starting)),
        *("--checkpoint", str(checkpoint), "--output", str(output)),
    ]
    ids = iter(range(1000))

    def produce_some():
        produce(topic, [{"value": b"%d" % number, "partition": number % 2} for number in islice(ids, 20)])

    def migrate(source, target, plan):
        made = ["plan", "--from", source, "--to", target, "--output", plan, "--missing", "earliest"]
        for words in (made, ["run", plan, "--execute"]):
            options = ["--zookeeper", sandbox.zookeeper_connect]
            done = CliRunner().invoke(command, ["migrate", *map(str, words), *options])
            assert done.exit_code == 0, done.output

    produce_some()
    read = consume(sandbox, unique_name, topic, 7)
    migrate(f"zookeeper:{unique_name}", f"spark-options:{starting}", tmp_path / "there.json")
    for _ in range(2):  # the second start has a checkpoint
        run_application(*arguments, jars=jars)
        produce_some()
    migrate(f"spark:{checkpoint}", f"zookeeper:{unique_name}", tmp_path / "back.json")
    read += consume(sandbox, unique_name, topic, 20)
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(output, columns=["value"]).to_pylist()
    assert sorted(read + [int(row["value"]) for row in rows]) == list(range(next(ids)))


def consume(sandbox, group, topic, count):
    """What a member of the group reads first, so many records; it commits them."""
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect,
        group_id=group,
        auto_offset_reset="smallest",
        zookeeper_session_timeout_ms=30_000,
        zookeeper_connection_timeout_ms=60_000,
    )
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        found = [int(message.value.split()[0]) for message in islice(stream, count)]
        connector.commit_offsets()
    return found


def test_the_notebook_runs(sandbox, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [(b"k%d" % (n % 3), b"v") for n in range(30)])
    printed = run_application(
        str(PROJECT / "examples" / "notebook.py"), ZOOKEEPER=sandbox.zookeeper_connect, TOPIC=topic
    )
    assert "by_key of group notebook: 30 rows, lag 0 of 2 partitions" in printed


def _newest(checkpoint: Path) -> str:
    return str(max(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit()))
