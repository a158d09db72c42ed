"""The commands that read groups, as the processes that an operator runs, on real servers."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import closing, suppress

import confluent_kafka as kafka
import pytest
from kazoo.security import make_acl

from tests.fixtures.commands import run_command
from tests.fixtures.groupnodes import GroupNodes, tree
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.groups.zookeepergroups import ZooKeeperGroups
from zkconsumer.zookeeper.session import ZkSession

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-m", "zkconsumer", "groups")
EVIL = "\x1b[2J\u202eevil\n"


@pytest.fixture
def run(sandbox):
    """Run a command of ``zkconsumer groups`` to its end: ``run("list", ..., code=0)``, None for any code.

    Again where a broker was slow to answer, unless ``answered`` is False.
    """

    def command(*arguments, code=0, answered=True):
        patience = ("-p", "zookeeper.session.timeout.ms=30000")
        attempts = []

        def is_answered():
            attempts.append(run_command(["groups", *arguments, "--zookeeper", sandbox.zookeeper_connect, *patience]))
            last = attempts[-1]
            return not answered or not ("are unknown" in last.stderr or "broker-unreachable" in last.stdout)

        eventually(is_answered)
        last = attempts[-1]
        assert code in (None, last.returncode), f"{last.returncode} {last.stdout} {last.stderr}"
        return last

    return command


@pytest.fixture
def group(group_nodes):
    return group_nodes


@pytest.fixture
def healthy(group, filled_topic):
    """A topic of two partitions with three records each, of which a member has consumed all; returns the topic."""
    topic = filled_topic(3)
    group.consume(topic, (0, 1), 3)
    return topic


EVERY_READING_COMMAND = [
    ("list", "--long", "--json"),
    ("list", "--all-chroots"),
    *(("describe", "{group}", "--offsets", storage) for storage in ("auto", "zookeeper", "kafka", "both")),
    ("describe", "--all", "--unhealthy"),
    ("describe", "{group}", "--members"),
    ("verify", "{group}"),
    ("status", "{group}", "--interval", "10ms", "--samples", "2", "--without-verdict"),
    ("explain", "{group}"),
    ("watch", "{group}", "--interval", "50ms", "--for", "200ms", "--json"),
]


@pytest.mark.slow
def test_reading_commands_write_nothing(private_sandbox, unique_name):
    box = private_sandbox(**PATIENT)
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t")
    with connected(box.zookeeper_connect) as zookeeper:
        group = GroupNodes(zookeeper, unique_name)
        group.register("c", {topic: 1})
        group.own(topic, 0, "c")
        group.commit(topic, 0, 0)
        before = tree(zookeeper, "/consumers"), tree(zookeeper, "/brokers/topics")
        for words in EVERY_READING_COMMAND:
            arguments = [
                each for word in words for each in (("--group", unique_name) if word == "{group}" else (word,))
            ]
            ended = run_command(["groups", *arguments, "--zookeeper", box.zookeeper_connect])
            assert ended.returncode in (0, 3), f"{words}: {ended.stderr}"
        assert (tree(zookeeper, "/consumers"), tree(zookeeper, "/brokers/topics")) == before


def test_groups_are_listed(run, group, healthy):
    assert group.name in run("list").stdout.splitlines()
    assert run("list", "--match", group.name).stdout == f"{group.name}\n"
    assert run("list", "--match", group.name[:-1]).stdout == ""
    assert json.loads(run("list", "--match", group.name, "--json").stdout) == [{"group": group.name}]
    run("list", "--match", "(", code=2)


def test_the_long_list_has_members_lag_and_layout(run, group, healthy, produce):
    produce(healthy, [{"value": b"v", "partition": 1}] * 4)
    (listed,) = json.loads(run("list", "--long", "--match", group.name, "--json").stdout)
    assert listed.pop("newest_commit_ms") > 1_700_000_000_000
    assert listed == {
        "group": group.name,
        "layout": "consumer",
        "members": 1,
        "topics": 1,
        "lag": 4,
        "unknown": 0,
        "status": "UNKNOWN",
        "reason": f"{healthy}-1: lag 4; 1 sample covers 0 s, and a verdict needs 2 that cover 65 s",
        "protocol": None,
        "state": None,
        "strategy": None,
    }
    heading, row = run("list", "--long", "--match", group.name).stdout.splitlines()
    assert heading.split()[:5] == ["GROUP", "LAYOUT", "#MEMBERS", "#TOPICS", "LAG"]
    assert row.split()[:5] == [group.name, "consumer", "1", "1", "4"]


@pytest.mark.parametrize(
    ("paths", "layout"), [(["offsets/t/0"], "offsets"), (["offsets/t/0-3"], "kafka-0.7"), (["ids"], "empty")]
)
def test_layouts(run, group, paths, layout):
    for path in paths:
        group.write(path, "5")
    (listed,) = json.loads(run("list", "--long", "--match", group.name, "--json").stdout)
    assert listed["layout"] == layout


def test_groups_of_all_chroots_are_listed(run, zookeeper, group, healthy, unique_name):
    zookeeper.ensure_path(f"/{unique_name}/deep/consumers/elsewhere")
    lines = run("list", "--all-chroots").stdout.splitlines()
    assert f"/{unique_name}/deep elsewhere" in lines
    assert f"/ {group.name}" in lines
    found = json.loads(run("list", "--all-chroots", "--long", "--json", "--match", "elsewhere").stdout)
    assert [(one["chroot"], one["group"]) for one in found] == [(f"/{unique_name}/deep", "elsewhere")]
    zookeeper.delete(f"/{unique_name}", recursive=True)


def test_several_groups_are_described(run, zookeeper, group, healthy, unique_name):
    other = GroupNodes(zookeeper, f"{unique_name}-other")
    other.commit(healthy, 0, 1)
    both = ("--group", group.name, "--group", other.name)
    first, second = json.loads(run("describe", *both, "--json").stdout)
    assert [p["lag"] for p in first["partitions"]] == [0, 0]
    assert [(p["committed"], p["lag"]) for p in second["partitions"]] == [(1, 2), (None, None)]
    rows = [line.split() for line in run("describe", *both).stdout.splitlines() if line]
    assert {row[0] for row in rows} == {"GROUP", group.name, other.name}
    # Groups of other tests may have topics that do not exist any more.
    everything = json.loads(run("describe", "--all", "--json", answered=False).stdout)
    assert {one["group"] for one in everything} >= {group.name, other.name}
    zookeeper.delete(other.root, recursive=True)


def test_members_are_described(run, group, healthy):
    heading, row = run("describe", "--group", group.name, "--members").stdout.splitlines()
    assert heading.split() == ["GROUP", "CONSUMER-ID", "CLIENT", "PATTERN", "#PARTITIONS", "REGISTERED", "THREADS"]
    assert row.split()[:5] == [group.name, f"{group.name}_c", "jvm", "static", "2"]
    assert row.split()[6] == f"{healthy}:1"


def test_what_is_unhealthy_is_selected(run, group, healthy):
    assert run("describe", "--group", group.name, "--unhealthy", "--json").stdout == "[]\n"
    group.disown(healthy, 1)
    found = json.loads(run("describe", "--group", group.name, "--unhealthy", "--json", code=3).stdout)
    assert [p["partition"] for p in found["partitions"]] == [1]


def test_brokers_can_be_named(run, sandbox, group, healthy):
    given = ("describe", "--group", group.name, "--json", "--bootstrap-server")
    named = json.loads(run(*given, sandbox.bootstrap_servers).stdout)
    assert [p["log_end"] for p in named["partitions"]] == [3, 3]
    ended = run(*given, "127.0.0.1:1", code=3, answered=False)
    assert [p["log_end"] for p in json.loads(ended.stdout)["partitions"]] == [None, None]
    assert "log ends are unknown" in ended.stderr
    assert f"a part of group {group.name} cannot be read" in ended.stderr
    run(*given, "nonsense", code=2)


def test_a_group_without_offsets_in_kafka_shows_both_stores(run, group, healthy):
    found = json.loads(run("describe", "--group", group.name, "--offsets", "both", "--json").stdout)
    assert [(p["in_zookeeper"], p["in_kafka"]) for p in found["partitions"]] == [(3, None)] * 2
    found = json.loads(run("describe", "--group", group.name, "--offsets", "kafka", "--json").stdout)
    assert [p["committed"] for p in found["partitions"]] == [None] * 2


def commit_to_kafka(sandbox, group, topic, offset):
    """Commit an offset of partition 1 of a topic."""
    settings = {"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group.name}
    with closing(kafka.Consumer(settings)) as consumer:
        consumer.commit(offsets=[kafka.TopicPartition(topic, 1, offset)], asynchronous=False)


@pytest.mark.parametrize("storage", ["kafka", "both"])
def test_a_topic_that_only_kafka_has_for_the_group_is_described(run, sandbox, group, healthy, topic_factory, storage):
    elsewhere = topic_factory(2)
    produce_records(sandbox.bootstrap_servers, elsewhere, [{"value": b"v", "partition": 1}] * 3)
    commit_to_kafka(sandbox, group, elsewhere, 2)

    def committed(*words):
        found = json.loads(run("describe", "--group", group.name, "--json", *words).stdout)["partitions"]
        return {(p["topic"], p["partition"]): (p["committed"], p["lag"]) for p in found if p["topic"] == elsewhere}

    assert committed("--offsets", storage) == {(elsewhere, 1): (2, 1)}
    assert committed() == committed("--offsets", "zookeeper") == {}, "as the JVM's tool"
    words = (
        "status",
        "--group",
        group.name,
        "--interval",
        "20ms",
        "--samples",
        2,
        "--without-verdict",
        "--json",
        "--offsets",
        storage,
    )
    found = json.loads(run(*words).stdout)["partitions"]
    assert [p["lag"] for p in found if p["topic"] == elsewhere] == [1]


def test_verification_reports_what_is_missing(run, group, healthy):
    assert run("verify", "--group", group.name).stdout == "Rebalance operation successful !\n"
    group.disown(healthy, 1)
    ended = run("verify", "--group", group.name, code=3)
    assert ended.stdout == "Rebalance operation failed !\n"
    assert ended.stderr == f"no owner for partition {healthy}-1\n"
    found = json.loads(run("verify", "--group", group.name, "--json", code=3).stdout)
    assert (found["successful"], len(found["findings"])) == (False, 1)


@pytest.mark.parametrize(
    "words", [("describe",), ("verify",), ("status", "--samples", 2, "--without-verdict"), ("explain",)]
)
def test_a_group_that_does_not_exist_is_an_error(run, words):
    assert "group nowhere does not exist" in run(*words, "--group", "nowhere", code=1).stderr
    assert "cannot be the name of a group" in run(*words, "--group", "../brokers", code=1).stderr
    assert "give --group" in run(*words, code=2).stderr


def test_hostile_znodes_are_inert_in_a_terminal(run, group, healthy):
    group.register("\u202ex", {EVIL: 1, "t" * 65_536: 1, "..": 1, "a/b": 1, "": 1})
    group.write(f"owners/{healthy}/0", f"{EVIL}-0".encode())
    group.write(f"owners/{healthy}/1", b"\xff\xfe")
    group.commit(healthy, 1, EVIL)
    described = run("describe", "--group", group.name, code=3)  # an offset cannot be read
    assert f"znode /consumers/{group.name}/owners/{healthy}/1" in described.stderr
    shown = [
        described,
        run("describe", "--group", group.name, "--format", "checker", code=3),
        run("describe", "--group", group.name, "--members", code=3),
        run("verify", "--group", group.name, code=3),
        run("status", "--group", group.name, "--interval", "10ms", "--samples", 2, "--without-verdict", code=3),
        run("explain", "--group", group.name, code=3),
    ]
    for ended in shown:
        text = ended.stdout + ended.stderr
        assert not [character for character in text if not character.isprintable() and character != "\n"]
        assert len(max(text.splitlines(), key=len)) < 9000
    assert r"\x1b[2J\u202eevil\n" in shown[0].stdout


# -- lag ----------------------------------------------------------------------------------------------------


class Lag:
    """A sampler whose clock the test turns on."""

    def __init__(self, sampler, group):
        self._sampler = sampler
        self._group = group
        self._now = 0.0
        self.step = 10.0

    def look(self, count=1):
        """Sample so many times, ``step`` seconds apart; returns the evaluation."""
        for _ in range(count):
            self._sampler.sample([self._group], self._now)
            self._now += self.step
        return self._sampler.evaluate(self._group)

    def statuses(self, count=1):
        return [one.status for one in self.look(count).partitions.values()]


@pytest.fixture
def lag(sandbox, group):
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect, group_id="lag", zookeeper_session_timeout_ms=30_000
    )
    with closing(ZkSession.from_config(config)) as session:
        session.open()
        with closing(LagSampler(ZooKeeperGroups(lambda: session, config), window=5)) as sampler:
            yield Lag(sampler, group.name)


def more(produce, topic, count=1, partition=0):
    produce(topic, [{"value": b"v", "partition": partition}] * count)


def test_an_idle_topic_is_ok(lag, healthy):
    found = lag.look(6)
    assert (found.status, found.complete, found.lag) == (LagStatus.OK, 0.0, 0)


def test_a_partition_without_a_commit_is_unknown(lag, group, healthy, zookeeper):
    zookeeper.delete(f"{group.root}/offsets/{healthy}/1")
    assert lag.statuses() == [LagStatus.OK, LagStatus.UNKNOWN]


def test_an_offset_after_the_log_end_is_range(lag, group, healthy):
    group.commit(healthy, 0, 4)
    assert lag.statuses() == [LagStatus.RANGE, LagStatus.OK]


def test_an_offset_before_the_log_start_is_range(lag, group, healthy, sandbox):
    from confluent_kafka import TopicPartition as Position
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    (done,) = admin.delete_records([Position(healthy, 0, 2)]).values()
    done.result(30)
    group.commit(healthy, 0, 1)
    assert lag.statuses() == [LagStatus.RANGE, LagStatus.OK]


def test_a_reset_is_rewind_until_it_leaves_the_window(lag, group, healthy):
    lag.look()
    group.commit(healthy, 0, 1)
    assert lag.statuses() == [LagStatus.REWIND, LagStatus.OK]
    assert LagStatus.REWIND not in lag.statuses(5)


def test_lag_without_an_owner_is_stop(lag, group, healthy, produce):
    more(produce, healthy)
    group.disown(healthy, 0)
    assert lag.statuses(4) == [LagStatus.UNKNOWN, LagStatus.OK], "30 s have not passed"
    assert lag.statuses() == [LagStatus.STOP, LagStatus.OK]


def test_a_member_that_does_not_consume_is_stall(lag, healthy, produce):
    more(produce, healthy)
    lag.step = 20.0
    assert lag.statuses(4) == [LagStatus.UNKNOWN, LagStatus.OK], "the window is not full"
    assert lag.statuses() == [LagStatus.STALL, LagStatus.OK]


def test_a_member_that_falls_back_is_warn(lag, group, healthy, produce):
    lag.step = 20.0
    for offset in range(1, 6):
        more(produce, healthy, 2)
        group.commit(healthy, 0, 2 + offset)
        found = lag.look()
    first = found.partitions[TopicPartition(healthy, 0)]
    assert (first.status, first.lag) == (LagStatus.WARN, 6)
    assert (first.consumed_per_s, first.produced_per_s) == (0.05, 0.1)
    assert first.lag_s == pytest.approx(60.0)


def test_a_commit_during_a_sample_never_makes_a_lag_negative(lag, group, healthy, produce):
    """The offset is read before the log end; a consumer may be ahead of the log end that an earlier sample saw."""
    for offset in range(4, 8):
        more(produce, healthy)
        group.commit(healthy, 0, offset)
        assert lag.look().lag >= 0


def test_the_status_command_shows_the_worst(run, group, healthy):
    words = ("status", "--group", group.name, "--interval", "20ms", "--samples", 3, "--without-verdict")
    documents = []
    eventually(lambda: documents.append(json.loads(run(*words, "--json").stdout)) or documents[-1]["lag"] == 0)
    found = documents[-1]
    assert (found["group"], found["status"], found["complete"], found["lag"]) == (group.name, "OK", 0.0, 0)
    assert {name for name, _ in found["partitions"][0].items()} >= {"topic", "partition", "status", "lag", "lag_s"}
    group.commit(healthy, 1, 9)
    lines = [line.split() for line in run(*words, code=3).stdout.splitlines()]
    assert lines[1][:4] == [group.name, "-", "-", "RANGE"]
    assert [line[3] for line in lines[2:]] == ["OK", "RANGE"]


def test_the_worst_group_comes_first_and_others_can_be_left_out(run, group, healthy, zookeeper, unique_name):
    stopped = GroupNodes(zookeeper, f"{unique_name}-z")
    stopped.commit(healthy, 0, 1)
    words = ("status", "--match", f"{unique_name}.*", "--interval", "50ms", "--samples", "2", "--without-verdict")
    printed = run(*words, code=3).stdout.splitlines()
    assert [line.split()[0] for line in printed[1:] if line.split()[1] == "-"] == [stopped.name, group.name]
    found = run(*words, "--problems", code=3)
    assert {line.split()[0] for line in found.stdout.splitlines()[1:]} == {stopped.name}
    assert "1 of 2 groups are problems" in found.stderr
    assert [one["group"] for one in json.loads(run(*words, "--problems", "--json", code=3).stdout)] == [stopped.name]
    explained = run("explain", "--all", code=3).stdout.splitlines()
    place = explained.index(f"{stopped.name}:")
    assert explained[place + 1].startswith("1. no-member")
    (last,) = (number for number, line in enumerate(explained) if "other groups" in line)
    assert (f"{group.name}:" in explained, last > place) == (False, True)
    assert "one look cannot show whether offsets move" in explained[last + 1]
    assert "zkconsumer groups status --all --problems --zookeeper" in explained[last + 2]


def test_a_group_without_members_is_not_ok(run, group, healthy, produce, zookeeper):
    zookeeper.delete(f"{group.root}/ids/{group.name}_c")
    words = ("status", "--group", group.name, "--interval", "20ms", "--samples", 3, "--without-verdict", "--json")
    assert json.loads(run(*words).stdout)["status"] == "NO MEMBERS", "without lag, no problem"
    for partition in (0, 1):
        group.disown(healthy, partition)
    assert "1. no-member" in run("explain", "--group", group.name).stdout
    assert f"{group.name}: Rebalance operation successful !\n" in run("verify", "--all", code=None).stdout
    more(produce, healthy)
    assert json.loads(run(*words, code=3).stdout)["status"] == "NO MEMBERS"
    assert "1. no-member" in run("explain", "--group", group.name, code=3).stdout
    assert f"{group.name}: Rebalance operation failed !\n" in run("verify", "--all", code=3).stdout
    (listed,) = json.loads(run("list", "--long", "--match", group.name, "--json").stdout)
    assert (listed["status"], listed["reason"]) == ("NO MEMBERS", "no member is registered; known lag 1")


def test_watching_in_a_pipe_prints_changes(sandbox, group, healthy, zookeeper):
    words = ("watch", "--group", group.name, "--interval", "50ms", "--json", "--zookeeper", sandbox.zookeeper_connect)
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as watching:
        assert json.loads(watching.stdout.readline())["kind"] == "watching"

        def next_change(kind):  # the status changes, too, where a broker was slow to answer
            while (change := json.loads(watching.stdout.readline()))["kind"] != kind:
                assert change["kind"] == "status", change
            return change

        group.disown(healthy, 1)
        change = next_change("owner")
        assert (change["subject"], change["after"]) == (f"{healthy}-1", None)
        zookeeper.delete(f"{group.root}/ids/{group.name}_c")
        next_change("left")
        watching.send_signal(2)
        assert watching.wait(120) == 0


def test_watching_on_a_terminal_shows_a_table(sandbox, group, healthy):
    group.write(f"owners/{healthy}/0", f"{EVIL}-0".encode())
    terminal, output = os.openpty()
    words = ("watch", "--group", group.name, "--interval", "50ms", "--for", "300ms")
    full = [*COMMAND, *words, "--zookeeper", sandbox.zookeeper_connect]
    environment = {**os.environ, "COLUMNS": "300", "TERM": "xterm"}
    with subprocess.Popen(full, stdout=output, env=environment) as watching:
        os.close(output)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(terminal, 65_536):
                shown += data
        assert watching.wait(120) == 0
    os.close(terminal)
    text = shown.decode()
    assert f"{group.name}: 1 members, 0 rebalances seen" in text
    assert r"\x1b[2J\u202eevil" in text
    assert "\u202e" not in text


# -- explain ----------------------------------------------------------------------------------------------------


def explained(run, group, *words, code=3):
    ended = run("explain", "--group", group.name, "--json", *words, code=code)
    return {(one["kind"], one["subject"]): one for one in json.loads(ended.stdout)["findings"]}


def test_a_healthy_group_needs_no_explanation(run, group, healthy):
    assert explained(run, group, code=0) == {}
    nothing, process, status = run("explain", "--group", group.name).stdout.splitlines()
    assert "nothing was found" in nothing
    assert f"zkconsumer groups status --group {group.name} --zookeeper " in status, "it can be pasted"
    assert "STALL or WARN, look at the member's process" in process


def test_what_is_wrong_with_members_and_owners_is_explained(run, group, healthy):
    for consumer in ("d", "e"):
        group.register(consumer, {healthy: 1})
    group.register("old", {"gone": 1}, timestamp="1500000000000")
    group.write(f"ids/{group.name}_x", "not JSON", ephemeral=True)
    group.disown(healthy, 1)
    group.write(f"owners/{healthy}/1", f"{group.name}_dead-0")
    found = explained(run, group)
    name = group.name
    assert ("more-threads-than-partitions", f"{name}_e") in found
    assert ("gave-up", f"{name}_d") in found
    assert ("idle-member", f"{name}_old") in found
    assert ("unreadable-registration", f"{name}_x") in found
    assert f"delete /consumers/{name}/owners/{healthy}/1" in found["dead-owner", f"{healthy}-1"]["to_do"]
    assert ("unknown-topic", "gone") in found
    assert "s behind ZooKeeper's" in found["clock", f"{name}_old"]["evidence"]


def test_offsets_and_ownerless_partitions_are_explained(run, group, healthy):
    group.disown(healthy, 1)
    group.commit(healthy, 0, 9)
    found = explained(run, group)
    assert "set by hand" in found["offset-outside-log", f"{healthy}-0"]["evidence"]
    assert ("no-owner", f"{healthy} 1") in found


def test_an_offset_outside_the_log_that_only_kafka_has_is_explained(run, sandbox, group, healthy, topic_factory):
    elsewhere = topic_factory(2)
    commit_to_kafka(sandbox, group, elsewhere, 9)
    assert set(explained(run, group, "--offsets", "both")) == {("offset-outside-log", f"{elsewhere}-1")}
    assert explained(run, group, code=0) == {}, "only offsets in ZooKeeper count"


def stop_members(group, topic):
    group.zookeeper.delete(f"{group.root}/ids/{group.name}_c")
    for partition in (0, 1):
        group.disown(topic, partition)


@pytest.mark.parametrize("offset", [1, pytest.param(9, marks=pytest.mark.slow)])
def test_the_named_reset_moves_an_offset_into_the_log(run, group, healthy, topics, tmp_path, offset):
    assert topics.delete_records(healthy, [0]) == {0: 3}, "the log of partition 0 starts and ends at 3"
    group.commit(healthy, 0, offset)
    found = explained(run, group)["offset-outside-log", f"{healthy}-0"]
    assert found["to_do"] == "stop all members"
    stop_members(group, healthy)
    executed = [
        sys.executable,
        "-m",
        *shlex.split(found["next_command"]),
        "--execute",
        "--snapshot",
        str(tmp_path / "snapshot"),
    ]
    ended = subprocess.run(executed, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert group.zookeeper.get(f"{group.root}/offsets/{healthy}/0")[0] == b"3"
    assert {kind for kind, _ in explained(run, group, code=0)} == {"no-member"}


def test_a_topic_that_was_created_again_is_explained(run, group, healthy, topics):
    group.commit(healthy, 0, 9)
    topics.delete(healthy)
    topics.create(healthy, 2)
    finding = explained(run, group)["offset-outside-log", f"{healthy}-0"]
    assert "the topic was created again after that commit" in finding["evidence"]
    assert finding["evidence"].endswith("; the leader epoch is 0")
    assert " --to-earliest " in finding["next_command"], "no record of the new topic is skipped"


def test_a_leader_that_changes_often_is_explained(run, group, healthy, zookeeper):
    path = f"/brokers/topics/{healthy}/partitions/1/state"
    state = json.loads(zookeeper.get(path)[0])
    zookeeper.set(path, json.dumps({**state, "leader_epoch": 57}).encode())
    evidence = explained(run, group)["leader-epoch", f"{healthy}-1"]["evidence"]
    assert "it is 57, and 0 for the other partitions of the topic" in evidence


def test_a_znode_of_another_principal_is_explained(run, group, healthy, zookeeper):
    path = f"{group.root}/offsets/{healthy}/1"
    # The servers show the hash of a password, here "x" in its place, to those only who may change the ACL.
    zookeeper.set_acls(path, [make_acl("digest", "admin:hash", all=True), make_acl("world", "anyone", read=True)])
    evidence = explained(run, group)["access", path]["evidence"]
    assert evidence.startswith("only digest:admin:x may write it, not world:anyone")


@pytest.mark.parametrize("entity", ["clients/{group}", "users/ANONYMOUS", "users/<default>/clients/{group}"])
def test_quotas_are_explained(run, group, healthy, zookeeper, entity):
    path = f"/config/{entity.format(group=group.name)}"
    zookeeper.create(path, b'{"version":1,"config":{"consumer_byte_rate":"1024"}}', makepath=True)
    try:
        assert "1024 bytes/s" in explained(run, group)["quota", path]["evidence"]
    finally:
        zookeeper.delete(path)


def test_session_expiries_are_read_from_metrics(run, group, healthy, tmp_path):
    page = tmp_path / "metrics"
    page.write_text('zkconsumer_session_expiries_total{client_id="c",group_id="g"} 3.0\n')
    words = ("explain", "--group", group.name, "--metrics", page.as_uri(), "--json")
    (finding,) = json.loads(run(*words, code=3).stdout)["findings"]
    assert (finding["kind"], finding["subject"]) == ("session-expiries", page.as_uri())


@pytest.mark.slow
def test_brokers_that_are_gone_are_explained(private_sandbox, unique_name):
    # The paused broker stays registered, and controller, until all has been asked.
    box = private_sandbox(tick_time_ms=2000, kafka_properties={"zookeeper.session.timeout.ms": "40000"})
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t")
    produce_records(box.bootstrap_servers, topic, [b"v"])
    with connected(box.zookeeper_connect) as zookeeper:
        GroupNodes(zookeeper, unique_name).commit(topic, 0, 0)
        words = ["explain", "--group", unique_name, "--json", "--zookeeper", box.zookeeper_connect]

        def kinds():
            ended = run_command(["groups", *words])
            return {one["kind"] for one in json.loads(ended.stdout)["findings"]}

        box.brokers[0].pause()
        assert kinds() == {"no-member", "broker-unreachable"}
        box.brokers[0].resume()
        box.brokers[0].stop()
        eventually(lambda: zookeeper.exists("/controller") is None)
        assert "no-broker" in kinds()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_unclean_leader_election_is_explained(private_sandbox, unique_name):
    box = private_sandbox(brokers=2)
    config = {"unclean.leader.election.enable": "true"}
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", replication=2, config=config)
    with connected(box.zookeeper_connect) as zookeeper:

        def state():
            return json.loads(zookeeper.get(f"/brokers/topics/{topic}/partitions/0/state")[0])

        produce_records(box.bootstrap_servers, topic, [b"replicated"])
        leader = state()["leader"]
        follower = 1 - leader
        box.brokers[follower].stop()
        eventually(lambda: state()["isr"] == [leader])
        produce_records(box.brokers[leader].address, topic, [b"lost"] * 5)
        GroupNodes(zookeeper, unique_name).commit(topic, 0, 6)
        box.brokers[leader].kill()
        box.brokers[follower].start()
        eventually(lambda: state()["leader"] == follower)
        words = ["explain", "--group", unique_name, "--json", "--zookeeper", box.zookeeper_connect]

        def found():
            ended = run_command(["groups", *words])
            return {one["kind"]: one["evidence"] for one in json.loads(ended.stdout)["findings"]}

        answers = []
        wanted = {"offset-outside-log", "short-isr"}
        eventually(lambda: answers.append(found()) or wanted <= answers[-1].keys())
        evidence = answers[-1]
        epoch = state()["leader_epoch"]
        assert epoch > 0
        assert (
            "offset 6 lies after the log end 1: the log was truncated by an unclean" in evidence["offset-outside-log"]
        )
        assert evidence["offset-outside-log"].endswith(f"the leader epoch is {epoch}")
        assert f"leader {follower}" in evidence["short-isr"]
