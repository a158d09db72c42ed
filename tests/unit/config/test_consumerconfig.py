import logging
import re

import pytest

from tests.fixtures.typedproperties import MISSPELLED, NOT_ALLOWED, OF_ANOTHER_TYPE
from zkconsumer.config.consumerconfig import PROPERTIES, ConsumerConfig
from zkconsumer.config.consumerproperties import RENAMED
from zkconsumer.errors import ConfigError

REQUIRED = {"group_id": "g", "zookeeper_connect": "h:2181"}


def config(**values):
    return ConsumerConfig(**{**REQUIRED, **values})


def test_defaults_are_the_jvms():
    defaults = config()
    assert defaults.zookeeper_session_timeout_ms == 6000
    assert defaults.zookeeper_connection_timeout_ms == 6000
    assert defaults.rebalance_backoff_ms == 2000
    assert defaults.client_id == "g"
    assert defaults.auto_offset_reset == "largest"
    assert defaults.dual_commit_enabled is False


def test_defaults_that_follow_other_values():
    changed = config(zookeeper_session_timeout_ms=10_000, zookeeper_sync_time_ms=50, offsets_storage="KAFKA")
    assert changed.zookeeper_connection_timeout_ms == 10_000
    assert changed.rebalance_backoff_ms == 50
    assert changed.offsets_storage == "kafka"
    assert changed.dual_commit_enabled is True


def test_both_spellings_name_the_same_key():
    assert config(**{"rebalance.backoff.ms": "500"}) == config(rebalance_backoff_ms=500)
    with pytest.raises(ConfigError, match="both spellings"):
        config(**{"rebalance.backoff.ms": 1, "rebalance_backoff_ms": 1})


@pytest.mark.parametrize(
    "make",
    [
        ConsumerConfig.from_properties,
        lambda both: ConsumerConfig.from_properties({"zookeeper.connect": "z:1"}, **both),
        lambda both: ConsumerConfig.without_group(zookeeper_connect="z:1", **both),
        lambda both: ConsumerConfig(group_id="g", zookeeper_connect="z:1").replace(**both),
    ],
)
def test_a_property_in_both_spellings_is_refused_wherever_it_is_given(make):
    with pytest.raises(ConfigError, match=r"group\.id is given in both spellings"):
        make({"group.id": "a", "group_id": "b", "zookeeper.session.timeout.ms": "6000"})


def test_an_override_replaces_what_the_file_has_in_the_other_spelling():
    made = ConsumerConfig.from_properties({"group.id": "a", "zookeeper.connect": "z:1"}, group_id="b")
    assert made.group_id == "b"


def test_all_violations_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig(group_id="a/b", auto_offset_reset="earliest", num_consumer_fetchers=0, bogus=1)
    text = str(caught.value)
    for part in (
        "bogus",
        "group.id 'a/b'",
        "auto.offset.reset",
        "num.consumer.fetchers",
        "zookeeper.connect is missing",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_commit_enable", "TRUE"),
        ("auto_commit_enable", 1),
        ("fetch_min_bytes", "1k"),
        ("fetch_min_bytes", 1.5),
        ("fetch_min_bytes", True),
        ("fetch_min_bytes", 2**31),
        ("auto_offset_reset", "Smallest"),
        ("partition_assignment_strategy", "sticky"),
        ("partition_assignment_strategy", "range,roundrobin"),
        ("group_instance_id", "a"),
        ("group_protocol", "share"),
        ("group_remote_assignor", "uniform"),
        ("client_id", "a b"),
        ("group_id", ".."),
        ("group_id", ""),
        ("group_id", 7),
        ("fetch_wait_max_ms", 30_001),
    ],
)
def test_refused_values(name, value):
    with pytest.raises(ConfigError):
        config(**{name: value})


def test_properties_file_is_read_unchanged(tmp_path, caplog):
    file = tmp_path / "consumer.properties"
    file.write_text(
        "# a comment\ngroup.id = g \nzookeeper.connect=h:2181,\\\n  i:2181/chroot\n"
        "auto.commit.enable=false\nexternal.thing=1\nunheard.of=2\n"
    )
    with caplog.at_level(logging.WARNING):
        read = ConsumerConfig.from_properties(file, auto_offset_reset="smallest")
    assert read == ConsumerConfig(
        group_id="g",
        zookeeper_connect="h:2181,i:2181/chroot",
        auto_commit_enable=False,
        auto_offset_reset="smallest",
    )
    assert "unheard.of" in caplog.text
    assert "external.thing" not in caplog.text


def test_a_byte_order_mark_does_not_hide_the_first_key(tmp_path):
    file = tmp_path / "consumer.properties"
    file.write_bytes(b"\xef\xbb\xbfgroup.id=g\nzookeeper.connect=h:2181\n")
    assert ConsumerConfig.from_properties(file) == config()


def test_a_wrong_escape_is_an_error_that_names_the_file(tmp_path):
    file = tmp_path / "consumer.properties"
    file.write_bytes(b"group.id=\\uZZ\n")
    with pytest.raises(ConfigError, match=r"consumer\.properties.*uZZ"):
        ConsumerConfig.from_properties(file)


@pytest.mark.parametrize(
    ("unknown", "known"),
    [
        ("zk.connect", "zookeeper.connect"),
        ("enable.auto.commit", "auto.commit.enable"),
        ("enable_auto_commit", "auto.commit.enable"),
        ("request.timeout.ms", "socket.timeout.ms"),
        ("auto.ofset.reset", "auto.offset.reset"),
    ],
)
def test_an_old_or_misspelled_name_gets_the_right_one_suggested(unknown, known, caplog):
    with pytest.raises(ConfigError, match=known):
        config(**{unknown: "x"})
    ConsumerConfig.from_properties({"group.id": "g", "zookeeper.connect": "h:2181", unknown: "x"})
    assert known in caplog.text


def test_every_suggested_name_exists():
    assert set(RENAMED.values()) <= {row.name for row in PROPERTIES.values()}
    assert not RENAMED.keys() & {row.name for row in PROPERTIES.values()}


def test_an_illegal_client_id_is_not_called_a_znode():
    with pytest.raises(ConfigError, match=r"client\.id 'a/b' is illegal.*metrics"):
        config(client_id="a/b")


def test_a_mapping_reads_like_a_file():
    assert ConsumerConfig.from_properties({"group.id": "g", "zookeeper.connect": "h:2181"}) == config()


def test_overrides_win_and_must_be_known():
    given = {"group.id": "g", "zookeeper.connect": "h:2181", "fetch.min.bytes": "5"}
    assert ConsumerConfig.from_properties(given, **{"fetch.min.bytes": 6}).fetch_min_bytes == 6
    with pytest.raises(ConfigError, match="bogus"):
        ConsumerConfig.from_properties(given, bogus=1)


def test_config_is_a_value():
    one = config()
    with pytest.raises(AttributeError):
        one.group_id = "other"
    assert hash(one) == hash(config())
    assert one.replace(group_id="h").group_id == "h"
    assert one["fetch.min.bytes"] == 1


def test_every_property_is_documented():
    for attribute, row in PROPERTIES.items():
        assert row.name.replace(".", "_") == attribute
        assert row.doc.endswith("."), row.name


SECRETS = {
    "zookeeper.digest": "user:hunter2",
    "zookeeper.digest.password": "hunter2",
    "zookeeper.sasl.password": "hunter2",
    "zookeeper.ssl.key.password": "hunter2",
    "sasl.password": "hunter2",
    "sasl.oauthbearer.token": "hunter2",
    "ssl.key.password": "hunter2",
}


def test_secrets_are_never_shown():
    secret = config(**SECRETS, **{"zookeeper.digest.username": "user"})
    assert secret["zookeeper.digest"] == "user:hunter2"
    assert "hunter2" not in repr(secret)
    assert {row.name for row in PROPERTIES.values() if row.secret} == SECRETS.keys()
    with pytest.raises(ConfigError) as caught:
        config(**{name: 7 for name in SECRETS}, **{"zookeeper.set.acl": "maybe"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("connect", ["h", "h:1", "h:1,i:2", "h:1, i:2/chroot/below", "[::1]:2181", "127.0.0.1:1/"])
def test_usable_zookeeper_addresses(connect):
    assert config(zookeeper_connect=connect).zookeeper_connect == connect


@pytest.mark.parametrize("connect", ["", "h:abc", "h1:2181,/x", "/x", "h:1,,i:2", "::1:2181"])
def test_unusable_zookeeper_addresses(connect):
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        config(zookeeper_connect=connect)


@pytest.mark.parametrize("servers", ["h:1", "h:1,i:65535", "h:1, [::1]:2", "10.0.0.1:9092"])
def test_usable_broker_addresses(servers):
    assert config(bootstrap_servers=servers).bootstrap_servers == servers


@pytest.mark.parametrize("servers", ["", "h", "h:", "h:0", "h:65536", "h:x", ":1", "h:1,", "h:1;i:2", "::1:2"])
def test_unusable_broker_addresses(servers):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        config(bootstrap_servers=servers)


def test_access_control_needs_credentials():
    with pytest.raises(ConfigError, match=r"zookeeper\.digest"):
        config(zookeeper_set_acl=True)
    with pytest.raises(ConfigError, match="user:password"):
        config(zookeeper_digest="hunter2")


def test_the_digest_is_made_of_user_and_password():
    made = config(zookeeper_digest_username="user", zookeeper_digest_password="a:b", zookeeper_set_acl=True)
    assert made.zookeeper_digest == "user:a:b"
    assert made.replace(group_id="h").zookeeper_digest == "user:a:b"


@pytest.mark.parametrize(
    ("values", "violation"),
    [
        ({"zookeeper_digest_username": "u"}, "need each other"),
        ({"zookeeper_digest_password": "p"}, "need each other"),
        ({"zookeeper_digest_username": "u:v", "zookeeper_digest_password": "p"}, "must not have a colon"),
        (
            {"zookeeper_digest": "u:q", "zookeeper_digest_username": "u", "zookeeper_digest_password": "p"},
            "zookeeper.digest contradicts",
        ),
        ({"security_protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"sasl_mechanism": "GSSAPI"}, "or it has no effect"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}, "and sasl.password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "needs either"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_provider": "module.function",
            },
            "module:function",
        ),
        ({"ssl_key_location": "k.pem"}, "needs ssl.certificate.location"),
    ],
)
def test_security_towards_brokers_is_complete(values, violation):
    with pytest.raises(ConfigError, match=violation):
        ConsumerConfig(group_id="g", zookeeper_connect="h:1", **values)


def test_what_cannot_do_without_zookeeper_reports_that_its_address_is_missing():
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is missing; only group\.protocol kafka and consumer"):
        kafka_group().zookeeper_servers()
    assert config().zookeeper_servers() == "h:2181"


def kafka_group(**values):
    """A group that brokers coordinate: nothing but brokers and a name is needed."""
    return ConsumerConfig(**{"bootstrap_servers": "h:1", "group_id": "g", "group_protocol": "kafka", **values})


def test_an_own_assignor_is_named_by_its_module():
    read = kafka_group(partition_assignment_strategy="app.racks:NEAREST, cooperative-sticky")
    assert read.partition_assignment_strategy == "app.racks:NEAREST,cooperative-sticky"
    coordinated = {"zookeeper_connect": "h:1", "group_id": "g", "partition_assignment_strategy": "app.racks:NEAREST"}
    assert ConsumerConfig(**coordinated, group_protocol="coordinator").partition_assignment_strategy
    with pytest.raises(ConfigError, match=r"app\.racks:NEAREST is an assignor of your own, which needs"):
        ConsumerConfig(**coordinated)


@pytest.mark.parametrize("text", ["racks:", ":NEAREST", "app racks:NEAREST", "racks:NEAREST:x", "racks"])
def test_what_names_no_object_is_no_assignor(text):
    with pytest.raises(ConfigError, match=r"partition.assignment.strategy must be one of"):
        kafka_group(partition_assignment_strategy=text)


def test_a_group_that_brokers_coordinate_needs_no_zookeeper():
    read = kafka_group(partition_assignment_strategy="cooperative-sticky, range")
    assert (read.zookeeper_connect, read.offsets_storage, read.dual_commit_enabled) == (None, "kafka", False)
    assert read.partition_assignment_strategy == "cooperative-sticky,range"
    assert kafka_group().partition_assignment_strategy == "zkconsumer,cooperative-sticky"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"bootstrap_servers": None}, "bootstrap.servers is missing; group.protocol=kafka needs it"),
        ({"offsets_storage": "zookeeper"}, "omit offsets.storage"),
        ({"dual_commit_enabled": True}, "omit dual.commit.enabled"),
        ({"session_timeout_ms": 6000, "heartbeat_interval_ms": 2001}, "at most a third of session.timeout.ms"),
        ({"partition_assignment_strategy": "range,eager"}, "partition.assignment.strategy must be one of range,"),
    ],
)
def test_contradictions_in_a_group_that_brokers_coordinate(values, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        kafka_group(**values)


def test_a_group_in_which_the_broker_assigns_needs_brokers_and_a_name():
    read = kafka_group(group_protocol="consumer", group_remote_assignor="range", group_instance_id="i")
    assert (read.zookeeper_connect, read.offsets_storage, read.dual_commit_enabled) == (None, "kafka", False)
    assert read.brokers_coordinate
    assert kafka_group().brokers_coordinate
    assert not config().brokers_coordinate


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"bootstrap_servers": None}, "bootstrap.servers is missing; group.protocol=consumer needs it"),
        ({"offsets_storage": "zookeeper"}, "group.protocol=consumer stores offsets in Kafka"),
        ({"partition_assignment_strategy": "cooperative-sticky"}, "see group.remote.assignor"),
        ({"partition_assignment_strategy": "racks:NEAREST"}, "see group.remote.assignor"),
    ],
)
def test_contradictions_in_a_group_in_which_the_broker_assigns(values, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        kafka_group(group_protocol="consumer", **values)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (MISSPELLED, "bogus is not a property"),
        (OF_ANOTHER_TYPE, r"auto\.commit\.enable must be"),
        (NOT_ALLOWED, "must be one of"),
    ],
)
def test_a_type_checker_finds_what_is_refused(calls, message):
    for call in calls:
        with pytest.raises(ConfigError, match=message):
            call()


def test_what_joins_no_group_needs_servers_alone():
    by_brokers = ConsumerConfig.without_group(bootstrap_servers="b:9092", **{"check.crcs": "false"})
    assert (by_brokers.zookeeper_connect, by_brokers.client_id, by_brokers.check_crcs) == (None, "zkconsumer", False)
    assert ConsumerConfig.without_group(zookeeper_connect="z:2181", client_id="c").client_id == "c"
    assert ConsumerConfig.without_group(bootstrap_servers="b:1", zookeeper_connect="z:1").group_protocol == "zookeeper"
    with pytest.raises(ConfigError, match=r"zookeeper\.connect or bootstrap.servers is missing"):
        ConsumerConfig.without_group(client_id="c")
    with pytest.raises(ConfigError, match="bogus is not a property"):
        ConsumerConfig.without_group(bootstrap_servers="b:1", bogus=1)


@pytest.mark.parametrize("names", [("my.prop", "my_prop"), ("my_prop", "my.prop")])
def test_a_property_that_is_unknown_is_ignored_in_both_spellings(names, caplog):
    made = ConsumerConfig.from_properties({"zookeeper.connect": "h:1", "group.id": "g", **dict.fromkeys(names, "1")})
    assert made.group_id == "g"
    assert all(name in caplog.text for name in names)
