"""A job of ``format("kafka")`` whose brokers require TLS and a login keeps its ``kafka.*`` options."""

import shutil
import subprocess

import pytest

from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.secured import SECRET, Secured, add_scram_user
from tests.fixtures.spark import DEADLINE_S, Sink
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool")]

PASSWORD = "hunter2"
PLAIN = ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule")
SCRAM = ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule")


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    made = Secured(tmp_path_factory.mktemp("certificates"))
    with Sandbox(brokers=0, **{**PATIENT, "kafka_properties": made.properties}) as box:
        box.add_brokers(port=made.ports["PLAINTEXT"])
        add_scram_user(f"{HOST}:{made.ports['PLAINTEXT']}")
        made.sandbox = box
        yield made


@pytest.fixture(scope="module")
def sandbox(secured):
    """In the place of the sandbox that other tests share."""
    return secured.sandbox


@pytest.fixture
def options(secured, store, login, tmp_path):
    """Of the job: nothing about security but what Spark's own source understands."""
    trust, (mechanism, module) = tmp_path / "trust", login
    imported = ("keytool", "-importcert", "-file", secured.ca, "-alias", "ca", "-keystore", trust, "-noprompt")
    subprocess.run([*imported, "-storetype", store, "-storepass", PASSWORD], check=True, capture_output=True)
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="alice" password="{SECRET}";',
        "kafka.ssl.truststore.location": str(trust),
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.ssl.truststore.type": store,
    }


@pytest.mark.parametrize(("store", "login"), [("JKS", SCRAM), ("PKCS12", PLAIN)], ids=["JKS-SCRAM", "PKCS12-PLAIN"])
def test_a_batch_read_and_a_stream_log_in_with_the_options_of_sparks_own_source(
    spark, start_query, secured, group, options, unique_name
):
    servers = f"{HOST}:{secured.ports['PLAINTEXT']}"
    topic = Topics(servers).create(unique_name, partitions=2)
    produced = produce_records(servers, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(100)])

    where = {"zookeeper.connect": secured.sandbox.zookeeper_connect, "group.id": group.group, "subscribe": topic}
    frame = spark.read.format("zkconsumer").options(**where, **options, startingOffsets="earliest").load()
    assert sorted(tuple(row) for row in frame.select("partition", "offset").collect()) == sorted(produced)

    sink = Sink()
    query = start_query(topic, sink, options=options, trigger={"availableNow": True})
    assert query.awaitTermination(DEADLINE_S)
    assert sorted((partition, offset) for partition, offset, _ in sink.rows()) == sorted(produced)
    assert group.offsets(topic) == {0: 50, 1: 50}

    wrong = {**options, "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace(SECRET, "wrong")}
    with pytest.raises(Exception, match="AuthenticationFailed") as caught:
        spark.read.format("zkconsumer").options(**where, **wrong, startingOffsets="earliest").load().count()
    assert SECRET not in str(caught.value)
