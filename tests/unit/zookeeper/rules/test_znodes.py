import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import Broker, ConsumerThreadId, Stamp
from zkconsumer.zookeeper.rules.znodes import (
    BrokerIdNode,
    ConsumerIdNode,
    MigratedNode,
    MigrationMark,
    OffsetNode,
    PartitionOwnerNode,
    Registration,
    SessionNode,
    StampNode,
    TopicNode,
    describe_mark,
    parse_json,
)

PATH = "/consumers/g/ids/g_c"
JVM_BYTES = b'{"version":1,"subscription":{"spx-a":12,"spx-b":2},"pattern":"static","timestamp":"1795220358723"}'


def test_registration_has_the_jvms_bytes():
    registration = Registration({"spx-a": 12, "spx-b": 2}, "static", "1795220358723")
    assert ConsumerIdNode.encode(registration) == JVM_BYTES
    assert ConsumerIdNode.decode(PATH, JVM_BYTES) == registration


def test_regex_is_escaped_once():
    data = ConsumerIdNode.encode(Registration({r"spx\-[ab]": 1}, "white_list", "1"))
    assert rb'"spx\\-[ab]"' in data
    assert ConsumerIdNode.decode(PATH, data).subscription == {r"spx\-[ab]": 1}


def test_unescaped_regex_of_old_members_is_read_by_doubling_backslashes():
    data = rb'{"version":1,"subscription":{"spx\-[ab]":1},"pattern":"white_list","timestamp":"1"}'
    assert ConsumerIdNode.decode(PATH, data).subscription == {r"spx\-[ab]": 1}


def test_names_are_written_as_utf_8():
    assert '"ü"'.encode() in ConsumerIdNode.encode(Registration({"ü": 1}))


def test_what_readers_take_as_static():
    for document in (b'{"subscription":{"t":1},"pattern":"odd"}', b'{"subscription":{},"pattern":"white_list"}'):
        assert ConsumerIdNode.decode(PATH, document).pattern == "static"


@pytest.mark.parametrize(
    "data",
    [
        b"xx",
        b"",
        None,
        b"[]",
        b'"t"',
        b"\xff\xfe",
        b'{"pattern":"static"}',
        b'{"subscription":{"t":1}}',
        b'{"subscription":{"t":"2"},"pattern":"static"}',
        b'{"subscription":{"t":true},"pattern":"static"}',
        b'{"subscription":["t"],"pattern":"static"}',
        b"[" * 100_000,
        b'{"subscription":' * 100_000,
        b'{"subscription":{"t":1e999},"pattern":"static"}',
    ],
)
def test_malformed_registration_names_its_path(data):
    with pytest.raises(MalformedZnode, match="/consumers/g/ids/g_c"):
        ConsumerIdNode.decode(PATH, data)


@pytest.mark.parametrize("decode", [SessionNode.decode, SessionNode.session_ms, TopicNode.decode, TopicNode.topic_id])
@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"partitions":' * 100_000, b'{"partitions":[Infinity]}'])
def test_json_that_cannot_be_read_costs_one_znode(decode, data):
    with pytest.raises(MalformedZnode):
        decode(PATH, data)


def test_owner_is_the_plain_thread_id():
    assert PartitionOwnerNode.encode(ConsumerThreadId("spg1_fix", 10)) == b"spg1_fix-10"
    assert PartitionOwnerNode.decode("/o", b"spg1_fix-10") == "spg1_fix-10"


def test_offset_is_plain_decimal():
    assert OffsetNode.encode(20) == b"20"
    assert OffsetNode.decode("/o", b"20") == 20


@pytest.mark.parametrize("offset", [-(2**63), -1, 0, 2**63 - 1])
def test_an_offset_has_64_bits(offset):
    assert OffsetNode.decode("/o", OffsetNode.encode(offset)) == offset
    beyond = offset - 1 if offset < -1 else 2**63
    with pytest.raises(MalformedZnode, match="64 bits"):
        OffsetNode.decode("/o", b"%d" % beyond)


def test_a_stamp_names_query_and_plan():
    data = b'{"version":1,"query":"1f","plan":17}'
    assert StampNode.encode(Stamp("1f", 17)) == data
    assert StampNode.decode("/s", data) == Stamp("1f", 17)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"query":"1f","plan":"17"}', b'{"query":1,"plan":17}', b'{"plan":true}']
)
def test_what_is_no_stamp(data):
    with pytest.raises(MalformedZnode):
        StampNode.decode("/s", data)


def test_numbers_with_a_fraction_are_read_and_deep_nesting_is_not():
    assert parse_json("[1.5, 2]") == [1.5, 2]
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


@pytest.mark.parametrize("data", [b"", None, b"twenty", b"1.5", b"99999999999999999999", b"\xff"])
def test_malformed_offsets(data):
    with pytest.raises(MalformedZnode):
        OffsetNode.decode("/o", data)


def test_session_node_names_the_protocol():
    assert SessionNode.protocol("/s", SessionNode.encode("range")) == "zookeeper"
    assert SessionNode.protocol("/s", SessionNode.encode("range", "coordinator", 6000)) == "coordinator"


def test_session_node_has_what_an_own_assignor_wrote():
    assert SessionNode.user_data("/s", SessionNode.encode("near", user_data=b"\xff rack")) == b"\xff rack"
    assert SessionNode.user_data("/s", SessionNode.encode("near")) == b""
    assert SessionNode.user_data("/s", b'{"assignor":"near","user_data":"not base64!"}') == b""


def test_session_node_names_the_assignor():
    assert SessionNode.decode("/s", SessionNode.encode("roundrobin-0.8")) == "roundrobin-0.8"
    assert SessionNode.encode("range") == b'{"version":1,"client":"zkconsumer","assignor":"range"}'
    assert SessionNode.session_ms("/s", SessionNode.encode("range")) is None
    assert SessionNode.shares("/s", SessionNode.encode("range"))
    assert not SessionNode.shares("/s", SessionNode.encode("range", shares=False))
    assert SessionNode.session_ms("/s", SessionNode.encode("range", "coordinator", 6000)) == 6000
    for data in (b"", b"{}", b'{"assignor":1}'):
        with pytest.raises(MalformedZnode):
            SessionNode.decode("/s", data)


BROKER_5 = (
    b'{"features":{},"listener_security_protocol_map":{"INSIDE":"SSL","OUT":"PLAINTEXT"},'
    b'"endpoints":["INSIDE://in:9093","OUT://out:9092"],"jmx_port":-1,"port":-1,"host":null,"version":5}'
)


def test_broker_endpoint_is_chosen_by_security_protocol():
    assert BrokerIdNode.decode("/brokers/ids/3", BROKER_5) == Broker(3, "out", 9092)
    assert not BrokerIdNode.seems_old("/brokers/ids/3", BROKER_5)
    assert BrokerIdNode.decode("/brokers/ids/3", BROKER_5, "SSL") == Broker(3, "in", 9093)
    with pytest.raises(MalformedZnode, match="SASL_SSL"):
        BrokerIdNode.decode("/brokers/ids/3", BROKER_5, "SASL_SSL")


def test_brokers_of_older_versions():
    assert BrokerIdNode.decode("/b/1", b'{"jmx_port":1,"host":"h","port":9092,"version":1}') == Broker(1, "h", 9092)
    v2 = b'{"endpoints":["PLAINTEXT://[::1]:9092"],"host":"h","port":9092,"version":2}'
    assert BrokerIdNode.decode("/b/1", v2) == Broker(1, "::1", 9092)
    assert BrokerIdNode.seems_old("/b/1", v2)


def test_listener_names_may_have_underscores():
    data = (
        b'{"listener_security_protocol_map":{"DOCKER_INTERNAL":"PLAINTEXT"},"endpoints":["DOCKER_INTERNAL://k1:19092"]}'
    )
    assert BrokerIdNode.decode("/brokers/ids/1", data) == Broker(1, "k1", 19092)
    data = b'{"endpoints":["SASL_SSL://k1:9093"]}'
    assert BrokerIdNode.decode("/brokers/ids/1", data, "SASL_SSL") == Broker(1, "k1", 9093)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"endpoints":["PLAINTEXT://h"]}',
        b'{"endpoints":["PLAINTEXT://h:x"]}',
        b'{"endpoints":[5]}',
        b'{"listener_security_protocol_map":5,"endpoints":["PLAINTEXT://h:1"]}',
        b'{"host":"h","port":1e999}',
        b"[" * 100_000,
    ],
)
def test_unusable_broker(data):
    with pytest.raises(MalformedZnode):
        BrokerIdNode.decode("/brokers/ids/1", data)


def test_a_broker_whose_name_is_no_number_is_unusable():
    with pytest.raises(MalformedZnode):
        BrokerIdNode.decode("/brokers/ids/one", b'{"host":"h","port":9092}')


def test_partitions_are_sorted_as_numbers_and_new_fields_ignored():
    data = b'{"partitions":{"10":[0],"2":[0],"0":[1]},"topic_id":"x","adding_replicas":{},"version":3}'
    assert TopicNode.decode("/brokers/topics/t", data) == (0, 2, 10)
    with pytest.raises(MalformedZnode):
        TopicNode.decode("/brokers/topics/t", b'{"partitions":{"a":[0]}}')


def test_a_topic_has_an_id_since_kafka_2_8():
    path = TopicNode.path("t")
    assert TopicNode.topic_id(path, b'{"version":3,"topic_id":"Mzx","partitions":{"0":[1]}}') == "Mzx"
    assert TopicNode.topic_id(path, b'{"version":1,"partitions":{"0":[1]}}') is None
    assert TopicNode.topic_id(path, b'{"topic_id":""}') is None
    assert TopicNode.topic_id(path, b'{"topic_id":5}') is None


@pytest.mark.parametrize(
    ("partitions", "replicas"), [(b'{"1":[2,0],"0":[]}', {1: (2, 0), 0: ()}), (b"{}", {}), (b"null", {})]
)
def test_a_topic_has_as_many_partitions_as_lists_of_replicas(partitions, replicas):
    data = b'{"version":1,"partitions":%s}' % partitions
    assert TopicNode.replicas("/t", data) == replicas
    assert TopicNode.decode("/t", data) == tuple(sorted(replicas))


@pytest.mark.parametrize("partitions", [b'{"0":[null]}', b'{"0":1}', b'{"x":[0]}', b"[0]"])
def test_unreadable_replicas(partitions):
    with pytest.raises(MalformedZnode, match="unreadable partitions"):
        TopicNode.replicas("/t", b'{"partitions":%s}' % partitions)


def test_an_owner_is_a_consumer_or_foreign_text():
    assert [PartitionOwnerNode.consumer_of(one) for one in ("g_host-1-0", "?", "g_c-x", None)] == [
        "g_host-1",
        None,
        None,
        None,
    ]


def test_paths_of_brokers():
    assert (BrokerIdNode.path(3), TopicNode.path("t")) == ("/brokers/ids/3", "/brokers/topics/t")


def test_a_mark_is_read_as_it_was_written():
    mark = MigrationMark("undoing", "kafka:g", 7, "ab")
    data = b'{"version":1,"state":"undoing","target":"kafka:g","at_ms":7,"plan":"ab"}'
    assert MigratedNode.encode(mark) == data
    assert MigratedNode.decode("/m", data) == mark
    assert MigratedNode.decode("/m", data.replace(b',"plan":"ab"', b"")) == mark._replace(plan="")
    assert mark.where == "kafka:g"


@pytest.mark.parametrize("data", [None, b"", b"{", b'{"state":"other","target":1,"at_ms":"x","plan":2}'])
def test_a_mark_that_cannot_be_read_is_that_of_a_migrated_group(data):
    mark = MigratedNode.decode("/m", data)
    assert (mark, mark.where) == (MigrationMark("migrated", "", 0), "another store")
    assert mark.may_be_of("kafka:g")
    assert [MigrationMark("migrated", "kafka:g", 0).may_be_of(f"kafka:{name}") for name in "gh"] == [True, False]


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("migrated", "was migrated to kafka:g, where its consumers continue"),
        ("migrating", "is being migrated to kafka:g: complete it with `zkconsumer migrate run`, or the rollback"),
        ("undoing", "to kafka:g that is being undone: complete the rollback or reverse"),
    ],
)
def test_what_a_mark_means_and_what_to_do(state, meaning):
    text = describe_mark("my group", MigrationMark(state, "kafka:g", 1))
    assert meaning in text
    assert text.endswith("removed with `zkconsumer migrate unmark --group 'my group'`")
