"""Groups that brokers coordinate, beside the tool of Kafka 4.2 on the same groups, without a ZooKeeper."""

import json
import re
import subprocess
import threading
from contextlib import ExitStack, closing

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from tests.fixtures.consumers import collect, consumers, owned
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer import TopicPartition as P
from zkconsumer.cli.main import command
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def box():
    with Sandbox(kafka_version="4.2.0", zookeepers=0, progress=Progress()) as started:
        yield started


@pytest.fixture
def theirs(box, newest_command):
    """Lines that Kafka's tool prints."""

    def lines(*arguments):
        line = newest_command(TOOL, "--bootstrap-server", box.bootstrap_servers, "--timeout", "60000", *arguments)
        printed = subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout
        return [line for line in printed.splitlines() if line]

    return lines


@pytest.fixture
def ours(box):
    def lines(*arguments):
        ended = CliRunner().invoke(command, ["groups", *arguments, "--bootstrap-server", box.bootstrap_servers])
        assert ended.exit_code == 0, ended.output
        return [line for line in ended.stdout.splitlines() if line]

    return lines


@pytest.fixture(params=["kafka", "consumer"])
def consumed(request, box, unique_name):
    """A topic with 10 records in each of 3 partitions, and two members that have committed all of them; the names."""
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 3)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v", "partition": n % 3} for n in range(30)])
    settings = {"group_protocol": request.param, "auto_offset_reset": "smallest", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        received = [collect(make().create_message_streams({topic: 2})[topic]) for _ in range(2)]
        eventually(lambda: sum(map(len, received)) >= 30)
        yield unique_name, topic


def committed(ours, group):
    (described,) = [json.loads("".join(ours("describe", "--group", group, "--json")))]
    return [row["committed"] for row in described["partitions"]] == [10, 10, 10] and described["state"] == "Stable"


@pytest.mark.parametrize("table", [(), ("--members",), ("--state",)])
def test_the_tables_are_those_of_kafkas_tool(consumed, ours, theirs, table):
    group, _ = consumed
    eventually(lambda: committed(ours, group))
    heading, *rows = ours("describe", "--group", group, *table)
    expected, *expected_rows = theirs("--describe", "--group", group, *table)
    assert heading == expected
    # Kafka's tool has the partitions of a member in the order of a Java set.
    assert sorted(rows) == sorted(expected_rows)
    assert len(rows) == (1 if table == ("--state",) else 2 if table else 3)


def test_a_group_without_members(box, unique_name, ours, theirs):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 2)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v", "partition": n % 2} for n in range(6)])
    settings = {"bootstrap.servers": box.bootstrap_servers, "group.id": unique_name, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    received = []
    eventually(lambda: received.append(consumer.poll(0.1)) or len([one for one in received if one]) == 6)
    consumer.close()
    shown = [line for line in theirs("--describe", "--group", unique_name) if "no active members" not in line]
    assert sorted(ours("describe", "--group", unique_name)) == sorted(shown)
    assert unique_name in ours("list")
    assert ours("list", "--topic", topic) == [unique_name]
    assert ours("list", "--topic", f"{topic}-other") == []


def test_a_group_is_watched_and_has_a_status(consumed, ours):
    group, _ = consumed
    eventually(lambda: committed(ours, group))
    lines = ours("watch", "--group", group, "--for", "1s", "--interval", "200ms", "--json")
    watched = [json.loads(line) for line in lines]
    assert [(one["group"], one["kind"], one["subject"]) for one in watched] == [(group, "watching", "OK, lag 0")]
    status = json.loads(
        "".join(ours("status", "--group", group, "--interval", "50ms", "--samples", "2", "--without-verdict", "--json"))
    )
    assert (status["status"], status["lag"], len(status["partitions"])) == ("OK", 0, 3)


def test_a_static_member_and_a_member_without_partitions(box, unique_name, ours, theirs):
    """Two topics, of which one has no record, and a member more than the group needs."""
    topics = [Topics(box.bootstrap_servers).create(f"{unique_name}-{name}", 1) for name in ("a", "b")]
    produce_records(box.bootstrap_servers, topics[0], [{"value": b"v"}] * 5)
    settings = {"group_protocol": "kafka", "auto_offset_reset": "smallest", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        one = make(group_instance_id="static-1")
        received = [collect(streams) for streams in one.create_message_streams(dict.fromkeys(topics, 1)).values()]
        eventually(lambda: sum(map(len, received)) == 5 and len(owned(one)) == 2)
        make().create_message_streams({topics[0]: 1})
        make().create_message_streams({topics[0]: 1})
        eventually(lambda: len(ours("describe", "--group", unique_name, "--members")) == 4)
        for table in ((), ("--members",)):
            eventually(
                lambda table=table: (
                    sorted(ours("describe", "--group", unique_name, *table))
                    == sorted(theirs("--describe", "--group", unique_name, *table))
                )
            )


def test_the_lists_are_equal(consumed, ours, theirs):
    assert sorted(ours("list")) == sorted(theirs("--list"))


def test_members_of_ours_show_their_streams(box, unique_name, ours):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 2)
    with ExitStack() as stack:
        settings = {"group_protocol": "kafka", "partition_assignment_strategy": "zkconsumer"}
        make = stack.enter_context(consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings))
        one = make()
        collect(one.create_message_streams({topic: 2})[topic])
        eventually(lambda: len(owned(one)) == 2)
        (member,) = json.loads("".join(ours("describe", "--group", unique_name, "--json")))["members"]
        assert (member["client"], member["threads"], member["partitions"]) == ("zkconsumer", {topic: 2}, 2)
        assert member["host"] == "/127.0.0.1"


def test_a_group_that_falls_behind_is_judged(box, unique_name, ours):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    settings = {"group_protocol": "kafka", "auto_offset_reset": "smallest", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        collect(make().create_message_streams({topic: 1})[topic])
        produce_records(box.bootstrap_servers, topic, [{"value": b"v"}] * 5)
        eventually(
            lambda: (
                "OK"
                in ours("status", "--group", unique_name, "--interval", "50ms", "--samples", "2", "--without-verdict")[
                    1
                ]
            )
        )
    produce_records(box.bootstrap_servers, topic, [{"value": b"v"}] * 5)
    arguments = [
        "groups",
        "status",
        "--group",
        unique_name,
        "--interval",
        "50ms",
        "--samples",
        "2",
        "--without-verdict",
        "--json",
    ]
    ended = CliRunner().invoke(command, [*arguments, "--bootstrap-server", box.bootstrap_servers])
    found = json.loads(ended.stdout)
    assert (ended.exit_code, found["status"], found["lag"]) == (3, "NO MEMBERS", 5)


def test_a_group_is_verified_and_explained(box, consumed):
    group, _ = consumed
    options = ("--group", group, "--bootstrap-server", box.bootstrap_servers)
    eventually(lambda: CliRunner().invoke(command, ["groups", "verify", *options]).exit_code == 0)
    verified = CliRunner().invoke(command, ["groups", "verify", *options])
    assert (verified.exit_code, verified.stdout) == (0, "Rebalance operation successful !\n")
    explained = CliRunner().invoke(command, ["groups", "explain", *options])
    assert explained.exit_code == 0
    assert explained.stdout.startswith(f"{group}: nothing was found that keeps it from consuming\n")


def test_a_topic_that_does_not_exist_is_reported(box, unique_name):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    gone = f"{unique_name}-gone"
    settings = {"group_protocol": "kafka"}
    options = ("--group", unique_name, "--bootstrap-server", box.bootstrap_servers)
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        one = make()
        one.create_message_streams({topic: 1, gone: 1})
        eventually(lambda: len(owned(one)) == 1)
        ended = CliRunner().invoke(command, ["groups", "explain", *options, "--json"])
        assert [(f["kind"], f["subject"]) for f in json.loads(ended.stdout)["findings"]] == [("unknown-topic", gone)]
        assert ended.exit_code == 3
        verified = CliRunner().invoke(command, ["groups", "verify", *options])
        assert (verified.exit_code, f"topic {gone} does not exist" in verified.stderr) == (3, True)
        described = CliRunner().invoke(command, ["groups", "describe", *options])
        assert f"log ends of {gone} are unknown: no such topic" in described.stderr


def test_the_page_has_groups_of_brokers(box, consumed):
    """Lag and members are those of describe, and the findings those of explain."""
    group, _ = consumed
    options = ("--bootstrap-server", box.bootstrap_servers, "--interval", "100ms", "--samples", "2")
    with serving(None, *options) as served:

        def line():
            return (served.document(f"/api/groups?search={group}").get("groups") or [{}])[0]

        eventually(lambda: (line().get("status"), line().get("state")) == ("OK", "Stable"))
        fields = ("layout", "members", "partitions", "owned", "lag")
        assert [line()[field] for field in fields] == ["kafka", 2, 3, 3, 0]
        assert [member["host"] for member in served.group(group)["members"]] == ["/127.0.0.1"] * 2
        assert served.group(group, "/findings")["findings"] == []
        eventually(lambda: f'kafka_consumergroup_members{{consumergroup="{group}"}} 2' in served.get("/metrics")[1])


@pytest.fixture(params=["commits alone", "consumer"])
def ended(request, box, unique_name):
    """A topic with 10 records in each of 2 partitions, and a group that has committed 4 and 7 and has ended."""
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 2)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v", "partition": n % 2} for n in range(20)])
    if request.param == "consumer":
        settings = {"group_protocol": "consumer", "auto_commit_enable": False, "auto_offset_reset": "smallest"}
        with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
            member = make()
            collect(member.create_message_streams({topic: 1})[topic])
            eventually(lambda: len(owned(member)) == 2)
            member.commit_offsets({P(topic, 0): 4, P(topic, 1): 7})
        return unique_name, topic
    client = Consumer({"bootstrap.servers": box.bootstrap_servers, "group.id": unique_name})
    client.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 7)], asynchronous=False)
    client.close()
    return unique_name, topic


@pytest.fixture
def offsets(box, tmp_path, monkeypatch):
    """Run ``zkconsumer offsets`` on the brokers alone, where it may write snapshots; its result."""
    monkeypatch.chdir(tmp_path)
    named = ("--bootstrap-server", box.bootstrap_servers)
    return lambda *arguments: CliRunner().invoke(command, ["offsets", *arguments, *named])


def stored(box, group, topic):
    client = Consumer({"bootstrap.servers": box.bootstrap_servers, "group.id": group})
    found = client.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=30)
    client.close()
    return [one.offset for one in found]


def test_offsets_are_reset_and_restored(box, ended, offsets, tmp_path):
    group, topic = ended
    snapshot = str(tmp_path / "snapshot")
    reset = ("reset", "--group", group, "--all-topics", "--to-earliest")
    assert "dry run" in offsets(*reset).stderr
    assert stored(box, group, topic) == [4, 7]
    done = offsets(*reset, "--execute", "--snapshot", snapshot)
    assert (done.exit_code, stored(box, group, topic)) == (0, [0, 0]), done.output
    undone = offsets("restore", snapshot, "--execute")
    assert (undone.exit_code, stored(box, group, topic)) == (0, [4, 7]), undone.output
    assert offsets("reset", "--group", group, "--topic", f"{topic}:1", "--shift-by", "-2", "--execute").exit_code == 0
    assert stored(box, group, topic) == [4, 5]


def test_offsets_are_exported_imported_and_copied(box, ended, offsets, tmp_path):
    group, topic = ended
    file = tmp_path / "offsets.csv"
    assert offsets("export", "--group", group, "--format", "csv", "--output", str(file)).exit_code == 0
    assert sorted(file.read_text().splitlines()) == [f"{topic},0,4", f"{topic},1,7"]
    imported = offsets("import", str(file), "--group", f"{group}-2", "--execute")
    assert (imported.exit_code, stored(box, f"{group}-2", topic)) == (0, [4, 7]), imported.output
    copied = offsets("copy", "--from-group", group, "--to-group", f"{group}-3", "--topic", f"{topic}:1", "--execute")
    assert (copied.exit_code, stored(box, f"{group}-3", topic)) == (0, [-1001, 7]), copied.output


def test_offsets_of_a_group_with_members_are_not_written(consumed, ours, offsets):
    group, topic = consumed
    eventually(lambda: committed(ours, group))
    refused = offsets("reset", "--group", group, "--all-topics", "--to-earliest", "--execute", "--force-live")
    assert (refused.exit_code, f"group {group} has members at the brokers" in refused.stderr) == (3, True)
    exported = offsets("export", "--group", group, "--format", "csv")
    assert exported.stdout.count(topic) == 3
    wrong = offsets("reset", "--group", group, "--all-topics", "--to-earliest", "--store", "both")
    assert (wrong.exit_code, "no ZooKeeper is named" in wrong.stderr) == (2, True)


def test_a_name_with_a_slash_has_a_page(box, unique_name):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v"}] * 3)
    name = f"{unique_name}/b"
    client = Consumer({"bootstrap.servers": box.bootstrap_servers, "group.id": name})
    client.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    client.close()
    with serving(None, "--bootstrap-server", box.bootstrap_servers, "--interval", "200ms") as served:
        eventually(lambda: served.group(name))
        assert served.group(name)["lag"] == 2
        assert served.group(name, "/findings")["findings"][0]["kind"] == "no-member"
        assert served.group(name, "/history")["partition_count"] == 1


def test_a_group_that_does_not_exist_is_an_error(box, unique_name):
    arguments = ["groups", "describe", "--group", unique_name, "--bootstrap-server", box.bootstrap_servers]
    ended = CliRunner().invoke(command, arguments)
    assert "does not exist at the brokers" in str(ended.exception)


def test_groups_whose_coordinator_is_gone_are_missing_and_that_is_said():
    """A broker that has ended is not in the metadata any more, and nobody else lists its groups."""
    with Sandbox(brokers=2, kafka_version="4.2.0", zookeepers=0, progress=Progress()) as pair:
        topic = Topics(pair.bootstrap_servers).create("t", 1)
        produce_records(pair.bootstrap_servers, topic, [{"value": b"v"}])
        for number in range(6):
            client = Consumer({"bootstrap.servers": pair.bootstrap_servers, "group.id": f"g{number}"})
            client.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            client.close()

        def run(*words):
            return CliRunner().invoke(command, [*words, "--bootstrap-server", pair.bootstrap_servers])

        assert "are missing" not in run("groups", "list").stderr
        pair.brokers[1].kill()
        eventually(
            lambda: "groups are missing whose coordinator would be the leader of" in run("groups", "list").stderr
        )
        exported = run("offsets", "export", "--format", "json")
        assert (exported.exit_code, "not exported: groups are missing" in exported.stderr) == (3, True)

        explained = [json.loads(run("groups", "explain", "--group", f"g{n}", "--json").stdout) for n in range(6)]
        findings = {document["group"]: [*document["findings"]] for document in explained}
        of_gone = [found for found in findings.values() if found[0]["kind"] == "no-coordinator"]
        assert of_gone
        for first, *others in of_gone:
            assert re.search(r"leader of __consumer_offsets-\d+: none; replicas 1, in sync", first["evidence"])
            assert "--topic __consumer_offsets" in first["to_do"]
            assert "broker-unreachable" in [finding["kind"] for finding in others]


@pytest.mark.parametrize("protocol", ["kafka", "consumer"])
def test_a_group_is_deleted_once_its_members_are_gone_and_can_be_restored(box, unique_name, tmp_path, protocol):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v"}] * 4)

    def run(*words):
        return CliRunner().invoke(command, [*words, "--bootstrap-server", box.bootstrap_servers])

    snapshot = str(tmp_path / "before.json")
    delete = ("groups", "delete", "--group", unique_name)
    settings = {"group_protocol": protocol, "auto_offset_reset": "smallest", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        received = collect(make().create_message_streams({topic: 1})[topic])
        eventually(lambda: len(received) == 4)
        refused = run(*delete)
        assert (refused.exit_code, "has members at the brokers" in refused.stderr) == (3, True)
    listed = ("groups", "list", "--match", unique_name)
    dry = run(*delete)
    assert (dry.exit_code, "dry run" in dry.stderr, run(*listed).stdout) == (0, True, f"{unique_name}\n")
    deleted = run(*delete, "--execute", "--snapshot", snapshot)
    assert (deleted.exit_code, run(*listed).stdout) == (0, ""), deleted.exception
    missing = run(*delete)
    assert (missing.exit_code, "does not exist at the brokers" in missing.stderr) == (3, True)
    restored = run("offsets", "restore", snapshot, "--execute", "--snapshot", str(tmp_path / "undo.json"))
    assert restored.exit_code == 0
    (row,) = json.loads(run("groups", "describe", "--group", unique_name, "--json").stdout)["partitions"]
    assert row["committed"] == 4


def test_members_that_own_nothing_are_named_where_only_they_are_unhealthy(box, unique_name):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    options = ["--group", unique_name, "--bootstrap-server", box.bootstrap_servers]
    settings = {"group_protocol": "kafka", "auto_commit_interval_ms": 100}
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        both = [make() for _ in range(2)]
        for one in both:
            collect(one.create_message_streams({topic: 1})[topic])

        def shown():
            ended = CliRunner().invoke(command, ["groups", "describe", *options, "--unhealthy"])
            return ended.exit_code, ended.stdout, f"{unique_name}: 1 member owns nothing: " in ended.stderr

        eventually(lambda: shown() == (3, "", True))


def test_a_group_without_offsets_is_deleted(box, unique_name):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    with closing(Consumer({"bootstrap.servers": box.bootstrap_servers, "group.id": unique_name})) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.2) or consumer.assignment())
    words = ["groups", "delete", "--group", unique_name, "--bootstrap-server", box.bootstrap_servers, "--execute"]
    deleted = CliRunner().invoke(command, words)
    assert (deleted.exit_code, "is deleted" in deleted.stderr) == (0, True), deleted.output
    assert CliRunner().invoke(command, words).exit_code == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "comes", "verdict", "reason"),
    [
        ("classic", False, "WARN", "members have committed nothing for 66 s, and 1 of 1 partitions have records"),
        ("consumer", True, "STALL", "no offset was committed for 66 s, in which 1 record came"),
    ],
)
def test_a_member_that_commits_nothing_is_a_problem_after_a_window(box, unique_name, protocol, comes, verdict, reason):
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", 1)
    record = [{"value": b"v"}]
    produce_records(box.bootstrap_servers, topic, record)
    settings = {"bootstrap.servers": box.bootstrap_servers, "group.id": unique_name, "enable.auto.commit": False}
    group = ("--group", unique_name, "--bootstrap-server", box.bootstrap_servers)
    with closing(Consumer({**settings, "auto.offset.reset": "earliest", "group.protocol": protocol})) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.2) is not None)
        explained = CliRunner().invoke(command, ["groups", "explain", *group, "--json"])
        assert [one["kind"] for one in json.loads(explained.stdout)["findings"]] == ["no-commit"]
        assert explained.exit_code == 3
        status = ["groups", "status", *group, "--interval", "6s", "--samples", "12", "--json"]
        later = threading.Timer(20, produce_records, (box.bootstrap_servers, topic, record if comes else []))
        later.start()
        ended = CliRunner().invoke(command, status)
        later.join()
        found = json.loads(ended.stdout)
        assert (ended.exit_code, found["status"], found["problem"]) == (3, verdict, True), found
        assert reason in found["reason"]


def test_a_subscription_to_what_does_not_exist_ends_status_with_3(box, unique_name):
    gone = f"{unique_name}-gone"
    group = ["--group", unique_name, "--bootstrap-server", box.bootstrap_servers]
    settings = {"bootstrap.servers": box.bootstrap_servers, "group.id": unique_name, "group.protocol": "consumer"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([gone])
        short = ["--interval", "50ms", "--samples", "2", "--without-verdict"]

        def status():
            consumer.poll(0.2)
            ended = CliRunner().invoke(command, ["groups", "status", *group, *short, "--json"])
            return ended.exit_code, json.loads(ended.stdout or "{}").get("reason")

        eventually(lambda: status() == (3, f"members subscribe to what does not exist: {gone}"))
