"""``zkconsumer serve`` as the process that an operator runs, on real servers."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.groupnodes import GroupNodes, tree
from tests.fixtures.sandbox import PATIENT, Topics
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected

pytestmark = pytest.mark.integration

HOSTILE = "<script>alert(1)<img src=x onerror=alert(1)>&\"'\\%2F"
"""As far as ZooKeeper allows it: names of znodes have no control characters. What znodes hold may have any."""
HOSTILE_OWNER = "\x1b[2J\u202eevil\n<img src=x onerror=alert(1)>-0"


@pytest.fixture
def serve(sandbox):
    """Serve the sandbox until the end of the test: ``serve("--interval", "1s")``."""
    with ExitStack() as running:
        yield lambda *options: running.enter_context(
            serving(sandbox.zookeeper_connect, "--interval", "200ms", *options)
        )


@pytest.fixture
def group(group_nodes):
    return group_nodes


@pytest.fixture
def lagging(group, filled_topic):
    """A topic of two partitions with three records each, of which a member has consumed one each; the topic."""
    topic = filled_topic(3)
    group.consume(topic, (0, 1), 1)
    return topic


def command(sandbox, *arguments):
    """The JSON of a command of ``zkconsumer groups``."""
    full = [
        sys.executable,
        "-m",
        "zkconsumer",
        "groups",
        *arguments,
        "--zookeeper",
        sandbox.zookeeper_connect,
        "-p",
        "zookeeper.session.timeout.ms=30000",
        "--json",
    ]
    return json.loads(subprocess.run(full, capture_output=True, text=True, timeout=120, check=False).stdout)


def series(page, name):
    """Labels and values of a metric."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]


def page_with(served, name, count=1):
    """The metrics, as soon as so many series have this name; unknown and outdated values have none."""
    pages = []

    def has_series():
        pages.append(served.get("/metrics")[1])
        return len(series(pages[-1], name)) == count

    eventually(has_series)
    return pages[-1]


def test_the_api_has_what_describe_prints(serve, sandbox, group, lagging):
    served = serve("--match", group.name)
    eventually(lambda: served.group(group.name))
    answers = []

    def lags():  # unknown while a broker is slow to answer
        answers[:] = [served.group(group.name), command(sandbox, "describe", "--group", group.name)]
        return {partition["lag"] for answer in answers for partition in answer["partitions"]}

    eventually(lambda: lags() == {2})
    found, described = answers
    assert found["members"] == described["members"]
    assert [{name: one[name] for name in described["partitions"][0]} for one in found["partitions"]] == (
        described["partitions"]
    )
    assert {one["lag"] for one in found["partitions"]} == {2}


def test_the_api_has_what_status_prints(serve, sandbox, group, lagging):
    served = serve("--match", group.name, "--samples", "3")
    # Without traffic both see the same forever: lag, an owner and no commit.
    eventually(lambda: (found := served.group(group.name)) and found["lag"] is not None)
    documents = []

    def has_lag():
        printed = command(
            sandbox, "status", "--group", group.name, "--interval", "100ms", "--samples", "3", "--without-verdict"
        )
        documents.append(printed)
        return printed["lag"] is not None

    eventually(has_lag)
    printed = documents[-1]
    found = served.group(group.name)
    changing = ("lag_s", "unmoved_s", "consumed_per_s", "produced_per_s", "reason")
    for document in (printed, found):
        assert ", and a verdict needs 3 that cover 65 s" in document.pop("reason")
        for one in document["partitions"]:
            for name in changing:
                one.pop(name)
    assert {name: found[name] for name in printed} == printed
    assert printed["status"] == "UNKNOWN", "windows of less than a second cannot judge"


def test_groups_are_listed_with_their_lag(serve, group, lagging):
    served = serve("--match", group.name)
    eventually(lambda: served.get("/readyz")[0] == 200)

    def line():  # its lag is unknown while a broker is slow to answer
        (found,) = served.document("/api/groups")["groups"]
        return found["group"], found["lag"], found["members"], found["owned"]

    eventually(lambda: line() == (group.name, 4, 1, 2))


def test_lag_in_time_is_that_of_the_oldest_record_that_is_not_consumed(serve, group, topic_factory, produce):
    """It was written before the first sample; its timestamp tells when."""
    topic = topic_factory()
    hour_ago = round(time.time() * 1000) - 3_600_000
    produce(topic, [{"value": b"v", "timestamp": hour_ago + 1000 * number} for number in range(3)])
    group.consume(topic, (0,), 1)
    served = serve("--match", group.name)
    eventually(lambda: (found := served.group(group.name)) and found["partitions"][0]["lag_s"] is not None)
    assert 3590 < served.group(group.name)["partitions"][0]["lag_s"] < 3700
    (line,) = served.document("/api/groups")["groups"]
    assert 3590 < line["lag_s"] < 3700
    page_with(served, "zkconsumer_consumergroup_lag_seconds")


def test_findings_are_those_of_explain(serve, sandbox, group, lagging):
    served = serve("--match", group.name, "-p", "zookeeper.session.timeout.ms=30000")
    group.disown(lagging, 1)
    eventually(lambda: served.group(group.name))
    found = served.group(group.name, "/findings")
    assert found == command(sandbox, "explain", "--group", group.name)
    kinds = {one["kind"]: one["next_command"] for one in found["findings"]}
    assert sandbox.zookeeper_connect in kinds["no-owner"], "the command can be pasted"


def test_history_has_a_point_for_each_sample(serve, group, lagging):
    served = serve("--match", group.name, "--history", "1s")
    eventually(lambda: (found := served.group(group.name, "/history")) and len(found["at_ms"]) == 5)
    group.commit(lagging, 1, 2)
    eventually(lambda: served.group(group.name, "/history")["partitions"][1]["lag"][-2:] == [1, 1])
    found = served.group(group.name, "/history")
    assert found["at_ms"] == sorted(found["at_ms"])
    assert [len(one["lag"]) for one in found["partitions"]] == [5, 5]
    assert set(found["partitions"][0]["lag"]) == {2}


@pytest.mark.slow
def test_a_restart_continues_the_history(serve, group, lagging, tmp_path):
    options = ("--match", group.name, "--history-file", str(tmp_path / "history"))
    served = serve(*options)
    eventually(lambda: (found := served.group(group.name, "/history")) and len(found["at_ms"]) > 3)
    before = served.group(group.name, "/history")
    served.process.terminate()
    assert served.process.wait(30) == 0
    again = serve(*options)
    eventually(lambda: again.group(group.name))
    found = again.group(group.name, "/history")
    known = len(before["at_ms"])
    assert found["at_ms"][:known] == before["at_ms"]
    assert [one["lag"][:known] for one in found["partitions"]] == [one["lag"] for one in before["partitions"]]
    assert len(found["at_ms"]) > known


def test_another_owner_is_marked_as_a_rebalance(serve, group, lagging):
    served = serve("--match", group.name)
    eventually(lambda: served.group(group.name))
    assert served.group(group.name, "/history")["rebalances"] == []
    group.register("d", {lagging: 1})
    group.own(lagging, 1, "d")
    eventually(lambda: served.group(group.name, "/history")["rebalances"])
    found = served.group(group.name, "/history")["rebalances"]
    assert sum(one["partitions"] for one in found) == 1
    assert [name for one in found for name in one["joined"]] in ([f"{group.name}_d"], [])


def test_metrics_have_the_names_of_kafka_exporter(serve, group, lagging):
    served = serve("--match", group.name)
    page = page_with(served, "kafka_consumergroup_lag", 2)  # unknown while a broker is slow to answer
    labels = {"consumergroup": group.name, "topic": lagging}
    both = [{**labels, "partition": number} for number in ("0", "1")]
    assert series(page, "kafka_consumergroup_lag") == [(one, 2) for one in both]
    assert series(page, "kafka_consumergroupzookeeper_lag_zookeeper") == [(one, 2) for one in both]
    assert series(page, "kafka_consumergroup_current_offset") == [(one, 1) for one in both]
    assert series(page, "kafka_consumergroup_lag_sum") == [(labels, 4)]
    assert series(page, "kafka_consumergroup_current_offset_sum") == [(labels, 2)]
    assert series(page, "kafka_consumergroup_members") == [({"consumergroup": group.name}, 1)]
    of_log = [{"topic": lagging, "partition": number} for number in ("0", "1")]
    assert series(page, "kafka_topic_partition_current_offset") == [(one, 3) for one in of_log]
    assert series(page, "kafka_topic_partition_oldest_offset") == [(one, 0) for one in of_log]


def test_what_is_unknown_has_no_series(serve, group):
    group.commit("no-such-topic", 0, 5)
    served = serve("--match", group.name)
    eventually(lambda: served.get("/readyz")[0] == 200)
    page = page_with(served, "kafka_consumergroup_current_offset")
    assert series(page, "kafka_consumergroup_lag") == series(page, "kafka_consumergroup_lag_sum") == []
    assert [value for _, value in series(page, "kafka_consumergroup_current_offset")] == [5]
    assert served.group(group.name)["partitions"][0]["lag"] is None


def test_burrows_status_and_lag(serve, group, lagging):
    served = serve("--match", group.name, "--samples", "2", "--cluster", "c1", "--interval", "1s")
    eventually(lambda: (found := served.group(group.name)) and found["lag"] == 4)
    root = f"/v3/kafka/c1/consumer/{group.name}"
    assert served.document("/v3/kafka")["clusters"] == ["c1"]
    assert served.document("/v3/kafka/c1/consumer")["consumers"] == [group.name]
    status = served.document(f"{root}/lag")["status"]
    assert (status["status"], status["totallag"], status["partition_count"]) == ("OK", 4, 2)
    assert [one["status"] for one in status["partitions"]] == ["OK", "OK"]
    assert served.get("/v3/kafka/c2/consumer/x/lag")[0] == 404


def test_hostile_names_are_passed_on_as_they_are(serve, zookeeper, unique_name):
    group = GroupNodes(zookeeper, f"{unique_name}{HOSTILE}")
    group.commit(HOSTILE, 0, 1)
    group.write(f"owners/{HOSTILE}/0", HOSTILE_OWNER)
    group.register("c", {"\ud800": 1})
    served = serve("--match", f"{unique_name}.*")
    eventually(lambda: served.group(group.name))
    found = served.group(group.name)
    assert (found["group"], found["partitions"][0]["topic"]) == (group.name, HOSTILE)
    assert found["partitions"][0]["owner"] == HOSTILE_OWNER
    page = page_with(served, "kafka_consumergroup_current_offset")
    (labels, value) = series(page, "kafka_consumergroup_current_offset")[0]
    assert (labels["consumergroup"], labels["topic"], value) == (group.name, HOSTILE, 1)
    zookeeper.delete(group.root, recursive=True)


@pytest.fixture
def offsets_in_kafka(sandbox, topic_factory, unique_name):
    """A group has committed to Kafka, so the coordinator of each group is asked."""
    topic = topic_factory()
    with closing(Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": f"{unique_name}-k"})) as one:
        one.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)


@pytest.mark.usefixtures("offsets_in_kafka")
def test_a_name_of_64_kib_can_be_asked_for(serve, zookeeper, unique_name):
    """Longer than a request to a broker can carry: of the group, and of a topic."""
    long = "\u00fc" * (1 << 15)
    groups = [GroupNodes(zookeeper, unique_name + long), GroupNodes(zookeeper, f"{unique_name}-short")]
    try:
        for group, topic in zip(groups, ("t", long), strict=True):
            group.commit(topic, 0, 1)
        served = serve("--match", f"{unique_name}.*")
        for group in groups:
            eventually(lambda group=group: served.group(group.name))
            assert served.group(group.name)["partitions"][0]["committed"] == 1
    finally:
        for group in groups:
            zookeeper.delete(group.root, recursive=True)


def test_another_host_is_refused(serve, group, lagging):
    served = serve("--allow-host", "lag.example.org")
    assert served.get("/metrics", {"Host": "evil.example.org"})[0] == 400
    assert served.get("/metrics", {"Host": "lag.example.org"})[0] == 200


@pytest.mark.slow
def test_nothing_is_written_to_zookeeper(private_sandbox, unique_name):
    box = private_sandbox(**PATIENT)
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t")
    with connected(box.zookeeper_connect) as zookeeper:
        group = GroupNodes(zookeeper, unique_name)
        group.register("c", {topic: 1})
        group.own(topic, 0, "c")
        group.commit(topic, 0, 0)
        before = tree(zookeeper, "/consumers"), tree(zookeeper, "/brokers/topics")
        with serving(box.zookeeper_connect, "--interval", "100ms") as served:
            eventually(lambda: (found := served.group(unique_name, "/history")) and len(found["at_ms"]) > 3)
            for path in ("/", "/metrics", "/api/groups", f"/v3/kafka/local/consumer/{unique_name}/lag"):
                eventually(lambda path=path: served.get(path)[0] == 200)
        assert (tree(zookeeper, "/consumers"), tree(zookeeper, "/brokers/topics")) == before


def test_without_zookeeper_it_starts_and_is_not_ready_and_recovers(start_zookeeper):
    server = start_zookeeper()
    with connected(server.address) as zookeeper:
        GroupNodes(zookeeper, "g").commit("t", 0, 1)
    timeouts = ("session.timeout.ms=2000", "connection.timeout.ms=30000")
    options = [f"--property=zookeeper.{one}" for one in timeouts]
    with serving(server.address, "--interval", "300ms", *options) as served:
        eventually(lambda: served.get("/readyz")[0] == 200)
        eventually(lambda: series(served.get("/metrics")[1], "kafka_consumergroup_members"))
        server.pause()
        try:
            eventually(lambda: served.get("/readyz")[0] == 503)
            assert served.get("/healthz")[0] == 200, "a restart would not help"
            with serving(server.address, "--interval", "300ms", *options) as another:
                assert (another.get("/healthz")[0], another.get("/readyz")[0]) == (200, 503)
                server.resume()
                eventually(lambda: another.get("/readyz")[0] == 200)
                server.pause()
            eventually(lambda: served.get("/readyz")[0] == 503)
            assert served.document("/api/groups")["stale"]
            assert not series(served.get("/metrics")[1], "kafka_consumergroup_members")
        finally:
            server.resume()
        eventually(lambda: served.get("/readyz")[0] == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(serve, number):
    served = serve()
    eventually(lambda: served.get("/readyz")[0] == 200)
    served.process.send_signal(number)
    assert served.process.wait(120) == 0
