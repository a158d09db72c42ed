"""Permissions on a real broker with ACLs: which error a missing one causes, and that other topics continue."""

import logging
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as OffsetOfConfluent
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.consumers import FIRST_OF_BROKER
from tests.fixtures.fetch import brokers_of
from tests.fixtures.quotas import set_quota
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import (
    ConsumerConfig,
    ConsumerConnector,
    GroupAuthorizationFailed,
    SimpleConsumer,
    TopicAuthorizationFailed,
    TopicPartition,
    Whitelist,
)
from zkconsumer.cli.main import command
from zkconsumer.cluster.brokercatalog import BrokerCatalog
from zkconsumer.cluster.rules import clustercatalog
from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.clientquotas import describe_quotas
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.survey import read_survey_facts
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.session import ZkSession

pytestmark = pytest.mark.integration

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "alice's secret",
}
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE


class Guarded:
    """A broker where alice, who logs in, may do what ACLs allow; and anyone on the plain listener everything."""

    def __init__(self, authorizer: str) -> None:
        self.ports = {protocol: free_port() for protocol in ("PLAINTEXT", "SASL_PLAINTEXT")}
        listeners = ",".join(f"{protocol}://{HOST}:{port}" for protocol, port in self.ports.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self.properties = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{module} required username=admin password=admin user_alice="{LOGIN["sasl_password"]}";'
            ),
            "authorizer.class.name": authorizer,
            "super.users": "User:ANONYMOUS",
            **PATIENT["kafka_properties"],
        }
        self.server = f"{HOST}:{self.ports['PLAINTEXT']}"
        self.sandbox: Sandbox

    def begin(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.topics = Topics(self.server)
        self.admin = AdminClient({"bootstrap.servers": self.server, "log_level": 3})

    def topic(self, name, *operations, partitions=1, records=2):
        """A topic with some records of each partition, on which alice may do so much."""
        self.topics.create(name, partitions)
        self.fill(name, partitions, records)
        for operation in operations:
            self.allow(ResourceType.TOPIC, name, operation)
        return name

    def fill(self, name, partitions=1, records=2):
        produce_records(
            self.server, name, [{"value": b"v", "partition": p} for p in range(partitions) for _ in range(records)]
        )

    def allow(self, kind, name, operation):
        self._wait(self.admin.create_acls([self._acl(AclBinding, kind, name, operation)]))

    def forbid(self, kind, name, operation):
        self._wait(self.admin.delete_acls([self._acl(AclBindingFilter, kind, name, operation)]))

    @staticmethod
    def _acl(make, kind, name, operation):
        return make(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)

    @staticmethod
    def _wait(futures):
        for future in futures.values():
            future.result(30)

    def config(self, group, **more):
        defaults = {
            "zookeeper_connect": self.sandbox.zookeeper_connect,
            "group_id": group[-40:],
            "auto_offset_reset": "smallest",
            "zookeeper_session_timeout_ms": 30_000,
            "consumer_timeout_ms": 60_000,
            "refresh_leader_backoff_ms": 50,
            "rebalance_backoff_ms": 200,
            "offsets_channel_backoff_ms": 50,
            **FIRST_OF_BROKER,
        }
        if self.sandbox.has_brokers_without_zookeeper:
            defaults["bootstrap_servers"] = f"{HOST}:{self.ports['SASL_PLAINTEXT']}"
        return ConsumerConfig(**{**defaults, **LOGIN, **more})


@contextmanager
def guard(kafka_version, authorizer):
    made = Guarded(authorizer)
    with Sandbox(
        **{**PATIENT, "kafka_version": kafka_version, "brokers": 0, "kafka_properties": made.properties}
    ) as box:
        box.add_brokers(port=made.ports["PLAINTEXT"])
        made.begin(box)
        yield made


@pytest.fixture(scope="module")
def guarded():
    with guard("3.9.1", "kafka.security.authorizer.AclAuthorizer") as made:
        yield made


@pytest.fixture(scope="module")
def guarded_without_zookeeper():
    """A broker of Kafka 4, which stores ACLs in its own metadata."""
    with guard("4.2.0", "org.apache.kafka.metadata.authorizer.StandardAuthorizer") as made:
        yield made


@pytest.fixture(params=["guarded", pytest.param("guarded_without_zookeeper", marks=pytest.mark.slow)])
def each_guarded(request):
    """Each of these two in turn."""
    return request.getfixturevalue(request.param)


def waits(stream, seconds=0.5):
    """True if the stream has nothing for so long: neither a record nor an error."""
    return stream._queue.request(seconds) is None


@pytest.mark.parametrize(("granted", "missing"), [([DESCRIBE], "Read"), ([], "Describe")], ids=["read", "describe"])
def test_a_missing_permission_is_raised_once_and_its_grant_ends_it(guarded, unique_name, granted, missing, caplog):
    caplog.set_level(logging.INFO, "zkconsumer")
    secret = guarded.topic(f"{unique_name}-secret", *granted, partitions=2)
    public = guarded.topic(f"{unique_name}-open", READ)
    with ConsumerConnector(guarded.config(unique_name)) as connector:
        streams = connector.create_message_streams({secret: 1, public: 1})
        (stream,) = streams[secret]
        with pytest.raises(
            TopicAuthorizationFailed, match=rf"topic {secret} cannot be read.*operation {missing}; check"
        ):
            next(stream)
        assert [next(streams[public][0]).topic for _ in range(2)] == [public] * 2
        assert waits(stream), "it is raised once, and the stream waits"
        guarded.allow(ResourceType.TOPIC, secret, READ)
        assert {next(stream).partition for _ in range(4)} == {0, 1}
        guarded.forbid(ResourceType.TOPIC, secret, READ)
        with pytest.raises(TopicAuthorizationFailed) as raised:
            next(stream)
    assert (raised.value.topic, raised.value.operation) == (secret, "Read" if granted else missing)
    assert "User:alice" in str(raised.value)
    lines = [record.getMessage() for record in caplog.records if secret in record.getMessage()]
    assert len([line for line in lines if "cannot be read" in line]) == 2, lines
    assert len([line for line in lines if "can be read again" in line]) == 1, lines


@pytest.mark.slow
def test_kafka_4_hides_topics_that_may_not_be_described(guarded_without_zookeeper, unique_name, caplog):
    guarded = guarded_without_zookeeper
    hidden, described = guarded.topic(f"{unique_name}-a"), guarded.topic(f"{unique_name}-b", DESCRIBE)
    public = guarded.topic(f"{unique_name}-c", READ)
    with ConsumerConnector(guarded.config(unique_name, metadata_max_age_ms=200)) as connector:
        streams = connector.create_message_streams({hidden: 1, described: 1, public: 1})
        assert [next(streams[public][0]).topic for _ in range(2)] == [public] * 2
        with pytest.raises(TopicAuthorizationFailed, match=rf"topic {described} cannot be read.*operation Read"):
            next(streams[described][0])
        assert waits(streams[hidden][0])
        for topic in (hidden, described):
            guarded.allow(ResourceType.TOPIC, topic, READ)
            assert [next(streams[topic][0]).topic for _ in range(2)] == [topic] * 2
    lines = [record.getMessage() for record in caplog.records if hidden in record.getMessage()]
    assert len([line for line in lines if "operation Describe" in line]) == 1, lines


def test_a_stream_of_many_topics_raises_one_error_for_each(guarded, unique_name):
    denied = {guarded.topic(f"{unique_name}-{n}", *granted, partitions=3) for n, granted in enumerate([[], [DESCRIBE]])}
    public = guarded.topic(f"{unique_name}-open", READ, records=5)
    raised, read = [], []
    with ConsumerConnector(guarded.config(unique_name)) as connector:
        (stream,) = connector.create_message_streams_by_filter(Whitelist(f"{unique_name}.*"))
        while len(raised) < 2 or len(read) < 5:
            try:
                read.append(next(stream).topic)
            except TopicAuthorizationFailed as error:
                raised.append(error.topic)
        assert waits(stream)
        guarded.fill(public, records=1)
        read.append(next(stream).topic)
    assert sorted(raised) == sorted(denied)
    assert read == [public] * 6


def test_a_filter_keeps_a_topic_that_may_not_be_described_any_more(guarded, unique_name, monkeypatch):
    """Brokers leave it out of the list of all topics, as one that was deleted; what was read of it is committed."""
    monkeypatch.setattr(clustercatalog, "DENIED_S", 0.1)
    topic = guarded.topic(unique_name, READ)
    servers = f"{HOST}:{guarded.ports['SASL_PLAINTEXT']}"
    config = guarded.config(unique_name, bootstrap_servers=servers, metadata_max_age_ms=50, auto_commit_enable=False)
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams_by_filter(Whitelist(unique_name))
        assert [next(stream).offset for _ in range(2)] == [0, 1]
        guarded.forbid(ResourceType.TOPIC, topic, READ)
        with pytest.raises(TopicAuthorizationFailed):
            next(stream)
        assert waits(stream), "it is raised once, while all topics are listed several times"
        connector.commit_offsets()
        assert connector.partition_states(), "it is still owned"
    with connected(guarded.sandbox.zookeeper_connect) as zk:
        assert zk.get(f"/consumers/{config.group_id}/offsets/{topic}/0")[0] == b"2"


def test_a_rebalance_does_not_repeat_the_error(guarded, unique_name):
    secret = guarded.topic(unique_name, partitions=2)
    config = guarded.config(unique_name)
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({secret: 1})[secret]
        with pytest.raises(TopicAuthorizationFailed):
            next(stream)
        with ConsumerConnector(config) as other:
            (second,) = other.create_message_streams({secret: 1})[secret]
            with pytest.raises(TopicAuthorizationFailed):
                next(second)
        eventually(lambda: len(connector.partition_states()) == 2)
        assert waits(stream, 2)


def test_a_simple_consumer_raises_at_once(guarded, unique_name):
    described = TopicPartition(guarded.topic(f"{unique_name}-a", DESCRIBE), 0)
    hidden = TopicPartition(guarded.topic(f"{unique_name}-b"), 0)
    with SimpleConsumer(HOST, guarded.ports["SASL_PLAINTEXT"], config=guarded.config(unique_name)) as simple:
        assert simple.latest(described) == 2
        with pytest.raises(TopicAuthorizationFailed, match="operation Read"):
            simple.fetch(described, 0)
        for question in (simple.earliest, lambda partition: simple.offsets_before(partition, simple.LATEST)):
            with pytest.raises(TopicAuthorizationFailed, match="operation Describe"):
                question(hidden)
        with pytest.raises(GroupAuthorizationFailed, match="operation Describe"):
            simple.fetch_offsets(unique_name, [described], storage="kafka")


def test_joining_without_permission_on_the_group_fails(each_guarded, unique_name):
    topic = each_guarded.topic(unique_name, READ)
    config = each_guarded.config(unique_name, offsets_storage="kafka", rebalance_max_retries=2)
    with (
        ConsumerConnector(config) as connector,
        pytest.raises(GroupAuthorizationFailed, match=rf"--group {config.group_id}\).*User:alice"),
    ):
        connector.create_message_streams({topic: 1})


def test_a_group_that_loses_its_permission_raises_once(each_guarded, unique_name):
    topic = each_guarded.topic(unique_name, READ)
    config = each_guarded.config(unique_name, offsets_storage="kafka", auto_commit_interval_ms=100)
    each_guarded.allow(ResourceType.GROUP, config.group_id, READ)
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).offset for _ in range(2)] == [0, 1]
        each_guarded.forbid(ResourceType.GROUP, config.group_id, READ)
        with pytest.raises(GroupAuthorizationFailed, match="operation Read"):
            next(stream)
        with pytest.raises(GroupAuthorizationFailed):
            connector.commit_offsets()
        each_guarded.allow(ResourceType.GROUP, config.group_id, READ)
        each_guarded.fill(topic, records=1)
        assert next(stream).offset == 2


def test_a_topic_whose_stored_offset_is_hidden_is_raised(guarded, unique_name):
    secret, public = guarded.topic(f"{unique_name}-a"), guarded.topic(f"{unique_name}-b", READ)
    config = guarded.config(unique_name, offsets_storage="kafka", auto_commit_interval_ms=300)
    guarded.allow(ResourceType.GROUP, config.group_id, READ)
    with ConsumerConnector(config) as connector:
        streams = connector.create_message_streams({secret: 1, public: 1})
        with pytest.raises(TopicAuthorizationFailed, match=r"coordinator of group .* operation Describe"):
            next(streams[secret][0])
        assert next(streams[public][0]).topic == public
        assert waits(streams[secret][0], 1)
        guarded.allow(ResourceType.TOPIC, secret, READ)
        assert next(streams[secret][0]).topic == secret


def test_a_place_without_a_group_needs_the_permission_at_once(guarded, unique_name):
    secret = TopicPartition(guarded.topic(unique_name), 0)
    config = guarded.config(unique_name, offsets_storage="kafka")
    with ConsumerConnector(config) as connector, pytest.raises(GroupAuthorizationFailed):
        connector.assign({secret: None})
    guarded.allow(ResourceType.GROUP, config.group_id, READ)
    with ConsumerConnector(config) as connector, pytest.raises(TopicAuthorizationFailed, match="operation Describe"):
        connector.assign({secret: None})


def test_consume_reads_the_other_topics_and_fails_at_the_end(guarded, unique_name):
    secret, public = guarded.topic(f"{unique_name}-a", DESCRIBE), guarded.topic(f"{unique_name}-b", READ)
    command = [sys.executable, "-m", "zkconsumer", "consume", "--zookeeper", guarded.sandbox.zookeeper_connect]
    command += ["--topic", secret, "--topic", public, "--from-beginning", "--timeout-ms", "4000"]
    for name, value in {
        **LOGIN,
        "refresh_leader_backoff_ms": 50,
        "zookeeper_session_timeout_ms": 30_000,
    }.items():
        command += ["-p", f"{name.replace('_', '.')}={value}"]
    attempts = []

    def in_time():  # four seconds may pass on a slow machine before there are records
        group = ("--group", f"{unique_name}-{len(attempts)}")
        attempts.append(subprocess.run([*command, *group], capture_output=True, text=True, timeout=120, check=False))
        return attempts[-1].stdout and "operation Read" in attempts[-1].stderr

    eventually(in_time)
    ended = attempts[-1]
    assert ended.stdout == "v\nv\n"
    assert ended.returncode == 1
    logged = [line for line in ended.stderr.splitlines() if "operation Read" in line]
    assert len(logged) == 2, logged
    assert "ERROR" in logged[0]
    assert logged[1].startswith("error: topic ")


def test_a_batch_read_by_spark_raises(guarded, unique_name):
    from tests.fixtures.sparkworker import close_connections
    from zkconsumer.spark.batchplan import plan_batch_read
    from zkconsumer.spark.rules.options import parse_options
    from zkconsumer.spark.taskreading import read_ranges

    described = guarded.topic(f"{unique_name}-a", DESCRIBE)
    hidden = guarded.topic(f"{unique_name}-b")
    login = {name.replace("_", "."): value for name, value in LOGIN.items()}

    def options(topic):
        return parse_options(
            {
                "zookeeper.connect": guarded.sandbox.zookeeper_connect,
                "group.id": unique_name,
                "subscribe": topic,
                "startingOffsets": "earliest",
                **login,
            }
        )

    (task,) = plan_batch_read(options(described))
    with pytest.raises(TopicAuthorizationFailed, match="operation Read"):
        list(read_ranges(options(described), task, ("value",)))
    with pytest.raises(TopicAuthorizationFailed, match="operation Describe"):
        plan_batch_read(options(hidden))
    close_connections()


def test_a_migration_without_permission_is_refused_before_it_writes(guarded, unique_name):
    group, allowed, denied = f"{unique_name[-30:]}-g", f"{unique_name}-a", f"{unique_name}-b"
    guarded.topic(allowed, READ)
    guarded.topic(denied, DESCRIBE)
    guarded.allow(ResourceType.GROUP, group, READ)
    config = guarded.config(group)
    with (
        connected(guarded.sandbox.zookeeper_connect) as client,
        closing(ZkSession.from_config(config)) as session,
        ExitStack() as clusters,
    ):
        for topic in (allowed, denied):
            client.create(f"/consumers/{group}/offsets/{topic}/0", b"1", makepath=True)
        session.open()
        brokers = GroupReader(session, config.security_protocol).live_brokers()
        cluster = clusters.enter_context(closing(Cluster(config, brokers, session)))
        ends = MigrationEnds(session, cluster, End("zookeeper", group), End("kafka", group))
        eventually(lambda: f"Read on topic {denied};" in "".join(g.text for g in ends.observe().guards))
        guarded.allow(ResourceType.TOPIC, denied, READ)
        eventually(lambda: all(guard.holds for guard in ends.observe().guards))
        # The first commit to a cluster makes its topic of offsets; before, no coordinator is asked.
        partition = TopicPartition(allowed, 0)
        assert cluster.commit(group, {partition: StoredOffset(1)}) == {}
        # Brokers that are asked for the topic of offsets do not describe it to this user, who may read the offsets.
        server = f"{HOST}:{guarded.ports['SASL_PLAINTEXT']}"
        by_brokers = clusters.enter_context(
            closing(Cluster.of(session, guarded.config(group, bootstrap_servers=server)))
        )
        assert by_brokers.committed(group, [partition])[partition].offset == 1
        assert by_brokers.describe(group).state == "Empty"
        guarded.forbid(ResourceType.GROUP, group, READ)
        guarded.allow(ResourceType.GROUP, group, DESCRIBE)
        eventually(lambda: f"Read on group {group};" in "".join(g.text for g in ends.observe().guards))


def test_a_topic_that_may_not_be_seen_is_a_problem_of_its_own_groups_and_is_not_reset_in_silence(guarded, unique_name):
    secret, public = guarded.topic(f"{unique_name}-secret"), guarded.topic(f"{unique_name}-open", READ)
    groups = [f"{unique_name}-{name}"[-40:] for name in ("x", "y")]
    with connected(guarded.sandbox.zookeeper_connect) as zk:
        for group, topic in zip(groups, (secret, public), strict=True):
            zk.create(f"/consumers/{group}/offsets/{topic}/0", b"1", makepath=True)
    config = guarded.config(groups[0])
    session = ZkSession.from_config(config)
    session.open()
    by_brokers = guarded.config(groups[0], bootstrap_servers=f"{HOST}:{guarded.ports['SASL_PLAINTEXT']}")
    with closing(session), closing(Cluster.of(session, by_brokers)) as cluster:
        problems = [facts.problems for facts in read_survey_facts(session, config, groups)]
        with pytest.raises(ZkConsumerError, match=f"do not describe topics: {secret} TOPIC_AUTHORIZATION_FAILED"):
            plan_reset(session, cluster, groups[0], None, ResetSpec("earliest"), store="zookeeper")
    assert [any(secret in problem for problem in of_group) for of_group in problems] == [True, False]


@pytest.mark.slow  # its broker is of a release of its own; tests/unit/operate/offsets/test_groupstores.py has the rule
def test_a_topic_that_old_brokers_hide_may_exist():
    """Brokers before 0.11 leave it out of the list of all topics, as one that does not exist."""
    properties = {
        **PATIENT["kafka_properties"],
        "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    acl = b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Allow","operation":"All","host":"*"}]}'
    with (
        Sandbox(**{**PATIENT, "kafka_version": "0.10.2.2", "kafka_properties": properties}) as box,
        connected(box.zookeeper_connect) as zk,
    ):
        broker = VersionedBroker(box)
        for topic in ("open", "secret"):
            broker.create_topic(topic)
            zk.create(f"/consumers/g/offsets/{topic}/0", b"0", makepath=True)
        zk.create("/kafka-acl/Topic/secret", acl, makepath=True)
        zk.create("/kafka-acl-changes/acl_changes_", b"Topic:secret", sequence=True, makepath=True)
        config = ConsumerConfig(zookeeper_connect=box.zookeeper_connect, group_id="tools")
        named = config.replace(bootstrap_servers=box.bootstrap_servers)
        catalog = BrokerCatalog(named)
        eventually(lambda: catalog.read(None).topics() >= {"open"} and "secret" not in catalog.read(None).topics())
        with closing(ZkSession.from_config(config)) as session:
            session.open()
            for each in (config, named):
                with closing(Cluster.of(session, each)) as cluster:
                    assert cluster.partitions(["open"]) == {TopicPartition("open", 0)}
                    ends = MigrationEnds(session, cluster, End("zookeeper", "g"), End("kafka", "g"))
                    for write in (
                        lambda ends=ends: ends.plan(missing="fail"),
                        lambda cluster=cluster: plan_reset(session, cluster, "g", None, ResetSpec("earliest")),
                    ):
                        with pytest.raises(
                            ZkConsumerError, match=r"topics are not described|do not describe topics: secret"
                        ):
                            write()


def test_brokers_report_quotas_to_who_may_see_them(each_guarded):
    expected = {"/config/users/alice/clients/<default>": 1e9, "/config/users/<default>": 2e9, "/config/clients/x": 3e9}
    set_quota(each_guarded.server, {"user": "alice", "client-id": None}, 1e9)
    set_quota(each_guarded.server, {"user": None}, 2e9)
    set_quota(each_guarded.server, {"client-id": "x"}, 3e9)
    config = each_guarded.config("g")
    brokers = brokers_of(f"{HOST}:{each_guarded.ports['SASL_PLAINTEXT']}")
    with closing(BrokerClient.from_config(lambda: brokers, config, timeout_ms=30_000)) as client:
        assert client.ask_any(describe_quotas) == {}
        each_guarded.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS)
        eventually(lambda: client.ask_any(describe_quotas) == expected)


@pytest.mark.slow
def test_the_commands_need_what_the_page_about_security_lists(guarded, unique_name, tmp_path):
    """Each block of permissions, and a command that needs the next one, which names what is missing."""
    topic, group = guarded.topic(unique_name, DESCRIBE), unique_name[-40:]
    properties = tmp_path / "alice.properties"
    lines = {name.replace("_", "."): value for name, value in LOGIN.items()}
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    plan, back = str(tmp_path / "plan.json"), str(tmp_path / "back.json")

    def run(*words, code=0):
        where = ["--zookeeper", guarded.sandbox.zookeeper_connect, "--config", str(properties)]
        ended = CliRunner().invoke(command, [*words, *where])
        said = f"{ended.output}{ended.exception or ''}"
        assert ended.exit_code == code, (words, said)
        return said

    with connected(guarded.sandbox.zookeeper_connect) as zk:
        zk.create(f"/consumers/{group}/offsets/{topic}/0", b"1", makepath=True)
    other = Consumer({"bootstrap.servers": guarded.server, "group.id": "other"})
    with closing(other):
        other.committed([OffsetOfConfluent(topic, 0)], timeout=30)  # Kafka has offsets of a group
    ends = ("--from", f"zookeeper:{group}", "--to", f"kafka:{group}", "--output", plan)
    assert "Describe" in run("migrate", "plan", *ends, code=1)

    guarded.allow(ResourceType.GROUP, group, DESCRIBE)
    run("groups", "status", "--group", group, "--interval", "1s", "--samples", "2", "--without-verdict", code=3)
    run("groups", "describe", "--group", group)
    run("migrate", "survey", "--group", group)
    assert "commits need Read on" in run("migrate", "plan", *ends, code=3)

    for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, group)):
        guarded.allow(kind, name, READ)
    run("migrate", "plan", *ends)
    run("migrate", "run", plan, "--execute")
    assert "operation Delete" in run("migrate", "rollback", plan, "--execute", code=1)

    guarded.allow(ResourceType.GROUP, group, AclOperation.DELETE)
    run("migrate", "rollback", plan, "--execute")
    run("migrate", "run", plan, "--execute")
    for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, group)):
        guarded.forbid(kind, name, READ)
    run("migrate", "verify", plan)
    run("migrate", "mirror", plan, "--for", "1s", "--interval", "1s", "--execute")
    run("migrate", "reverse", plan, "--output", back)
    run("migrate", "run", back, "--execute")
