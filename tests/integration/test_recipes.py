"""The code of docs/recipes.md, with the packages that it names, on a real cluster."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pyarrow
import pytest

from tests.fixtures.documentexamples import Page
from tests.fixtures.documents import ROOT
from tests.fixtures.schemaregistry import running_schema_registry
from zkconsumer import ConsumerConfig, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

AVRO, PROTOBUF, TRACES, DELTA = range(4)
COUNT = 20
SCHEMA = {"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}


@pytest.fixture
def recipe(sandbox, topic_factory, unique_name):
    """``recipe(number) -> (page, its example of this number, a topic of two partitions)``."""

    def open_recipe(number):
        topic = topic_factory(partitions=2)
        page = Page("docs/recipes.md", sandbox, topic, unique_name)
        return page, page.blocks("python")[number], topic

    return open_recipe


@pytest.fixture
def registry():
    with running_schema_registry() as address:
        yield address


def serialized(serializer, topic, values):
    from confluent_kafka.serialization import MessageField, SerializationContext

    context = SerializationContext(topic, MessageField.VALUE)
    return [{"value": serializer(value, context), "partition": n % 2} for n, value in enumerate(values)]


def test_values_in_avro(recipe, registry, produce, capsys):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer

    page, code, topic = recipe(AVRO)
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry}), json.dumps(SCHEMA))
    produce(topic, serialized(serializer, topic, [{"user": f"u{n}"} for n in range(COUNT)]))
    page.run([code.replace("http://localhost:8081", registry)], lambda: None)
    printed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed) == sorted(f"u{n}" for n in range(COUNT))


def click_class():
    """What protoc makes of ``message Click { string user = 1; }``."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="click.proto", package="clicks", syntax="proto3")
    field = file.message_type.add(name="Click").field.add(name="user", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("clicks.Click"))


def test_values_in_protobuf(recipe, registry, produce, capsys, monkeypatch):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    page, code, topic = recipe(PROTOBUF)
    click = click_class()
    settings = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(click, SchemaRegistryClient({"url": registry}), settings)
    produce(topic, serialized(serializer, topic, [click(user=f"u{n}") for n in range(COUNT)]))
    monkeypatch.setitem(sys.modules, "clicks_pb2", SimpleNamespace(Click=click))
    page.run([code], lambda: None)
    printed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed) == sorted(f"u{n}" for n in range(COUNT))


def test_spans_continue_the_trace_of_the_headers(recipe, produce):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    page, code, topic = recipe(TRACES)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    traced = f"00-{7:032x}-{9:016x}-01".encode()
    produce(topic, [{"value": b"traced", "headers": [("traceparent", traced)]}, {"value": b"untraced"}])
    page.run([code], lambda: None)
    spans = {span.parent.span_id if span.parent else None: span for span in exporter.get_finished_spans()}
    assert spans.keys() == {9, None}
    assert spans[9].context.trace_id == 7
    assert spans[9].name == f"process {topic}"
    assert spans[9].attributes["messaging.destination.name"] == topic


def test_a_delta_table_has_each_record_once(recipe, produce, tmp_path):
    """The group's offsets are ignored, and a batch that comes again adds nothing."""
    from deltalake import DeltaTable

    page, code, topic = recipe(DELTA)
    path = str(tmp_path / "clicks-table")
    code = code.replace("clicks-table", path)
    assert path in code
    produce(topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(COUNT)])
    page.run([code], lambda: None)
    produce(topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(COUNT, 2 * COUNT)])
    names = page.run([code.replace("smallest", "largest")], lambda: None)
    rows = DeltaTable(path).to_pyarrow_table()
    assert Counter(rows["value"].to_pylist()) == {b"%d" % n: 1 for n in range(2 * COUNT)}
    sink = names["sink"]
    assert sink.table().transaction_version(sink.application(TopicPartition(topic, 0))) == COUNT
    batch = rows.filter([p == 0 for p in rows["partition"].to_pylist()]).combine_chunks().to_batches()[0]
    sink.store(batch)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2 * COUNT
    assert isinstance(names["config"], ConsumerConfig)


def test_of_two_consumers_that_store_a_partition_at_once_one_fails(recipe, produce, tmp_path, monkeypatch):
    """The other one stores between the first one's look at the table and its write."""
    import deltalake
    from deltalake.exceptions import CommitFailedError

    page, code, topic = recipe(DELTA)
    path = str(tmp_path / "clicks-table")
    produce(topic, [{"value": b"%d" % n, "partition": 0} for n in range(COUNT)])
    code, write, competing = code.replace("clicks-table", path), deltalake.write_deltalake, []

    def write_after_the_other(table, rows, **named):
        if competing:
            (batch,) = rows.to_batches()
            competing.pop().store(batch)
        write(table, rows, **named)

    monkeypatch.setattr(deltalake, "write_deltalake", write_after_the_other)
    names = page.run([code], lambda: None)
    sink, other = names["sink"], names["DeltaSink"](path, names["sink"].group)
    later = {"topic": topic, "partition": 0, "offset": COUNT, "key": None, "value": b"once"}
    batch = pyarrow.RecordBatch.from_pylist([later], schema=names["SCHEMA"])
    competing.append(other)
    with pytest.raises(CommitFailedError):
        sink.store(batch)
    sink.store(batch)  # as it is delivered again
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    assert Counter(rows["value"].to_pylist()) == {b"once": 1, **{b"%d" % n: 1 for n in range(COUNT)}}


KILLED = """
import os, signal, deltalake
from deltalake import write_deltalake as write

def write_and_end(table, *arguments, **named):
    write(table, *arguments, **named)
    if sum(1 for name in os.listdir(os.path.join({path!r}, "_delta_log")) if name.endswith(".json")) == {writes}:
        os.kill(os.getpid(), signal.SIGKILL)  # as kill -9 does, before any commit of the group

deltalake.write_deltalake = write_and_end
"""


def test_a_delta_table_has_each_record_once_after_a_crash(recipe, unique_name, produce, zookeeper, tmp_path):
    """The process ends after it has written, and before it commits, twice; the next one continues after its rows."""
    from deltalake import DeltaTable

    page, code, topic = recipe(DELTA)
    path = str(tmp_path / "clicks-table")
    code = code.replace("clicks-table", path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for times, writes in enumerate((2, 4)):
        produce(topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(COUNT * times, COUNT * (times + 1))])
        program = [sys.executable, "-c", KILLED.format(path=path, writes=writes) + code]
        ended = subprocess.run(program, env=environment, check=False, capture_output=True, timeout=200)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert 0 < DeltaTable(path).to_pyarrow_table().num_rows <= COUNT * (times + 1)
        assert not zookeeper.exists(f"/consumers/{unique_name}-delta/offsets/{topic}"), "nothing was committed"
    names = page.run([code], lambda: None)
    rows = DeltaTable(path).to_pyarrow_table()
    assert Counter(rows["value"].to_pylist()) == {b"%d" % n: 1 for n in range(2 * COUNT)}
    assert isinstance(names["config"], ConsumerConfig)
