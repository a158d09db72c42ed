"""What a scripted broker's answers about groups and settings become."""

from types import SimpleNamespace

import pytest

from zkconsumer.errors import CoordinatorMoved, GroupAuthorizationFailed, ProtocolError
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.wire.apiversions import OLD_RELEASES
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.describegroups import broker_release, broker_settings, describe_group
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.rules.describedgroup import KafkaGroup


class ScriptedBroker:
    """Both a connection and its client; answers each request by its name, or with ``encoded`` by the API key."""

    security = PLAINTEXT

    def __init__(self, ranges=None, encoded=None, **answers):
        self.ranges = ranges or {}
        self._encoded = encoded or {}
        self._answers = answers
        self.sent = []

    def knows(self, key):
        return key in self._encoded

    def exchange(self, key, version, body, decode, *, flexible):
        self.sent.append(bytes(body))
        return decode(memoryview(self._encoded[key]))

    def version(self, key, name, oldest, newest):
        if name.removesuffix("Request") not in self._answers and key not in self._encoded:
            raise ProtocolError(f"no common version of {name}")
        return newest

    def call(self, request):
        request.encode()  # the library accepts its fields in this version
        self.sent.append(request.name)
        return self._answers[request.name.removesuffix("Request")]

    def ask(self, _, question, deadline):
        return question(self)

    def ask_any(self, question, deadline):
        return question(self)


FOUND = SimpleNamespace(error_code=0, node_id=1, host="broker", port=9092)


def described(state, protocol="consumer", members=(), error=0, group="g"):
    one = SimpleNamespace(
        group_id=group, group_state=state, protocol_type=protocol, members=list(members), error_code=error
    )
    return SimpleNamespace(groups=[one])


@pytest.mark.parametrize(
    ("state", "members", "has_members"),
    [("Stable", [1, 2], True), ("PreparingRebalance", [1], True), ("Empty", [], False), ("Dead", [], False)],
)
def test_a_group_has_the_state_that_its_coordinator_reports(state, members, has_members):
    found, error = describe_group(ScriptedBroker(DescribeGroups=described(state, members=members)), "g")
    assert (found, error) == (KafkaGroup(state, "consumer", len(members)), 0)
    assert found.has_members == has_members


def test_a_group_of_the_new_protocol_is_found_in_the_list():
    """Kafka 4 describes it as dead, since it is no classic group."""
    one = SimpleNamespace(group_id="g", group_state="Stable", protocol_type="consumer")
    listed = SimpleNamespace(groups=[one], error_code=0)
    broker = ScriptedBroker(DescribeGroups=described("Dead", ""), ListGroups=listed)
    found, _ = describe_group(broker, "g")
    assert found == KafkaGroup("Stable", "consumer", None)
    assert found.has_members
    assert describe_group(ScriptedBroker(DescribeGroups=described("Dead", "", group="h"), ListGroups=listed), "h") == (
        KafkaGroup("Dead", "", 0),
        0,
    )


def test_a_group_that_is_not_in_the_list_is_unknown_while_the_broker_loads_groups():
    listed = SimpleNamespace(groups=[], error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(CoordinatorMoved, match="does not list all its groups"):
        describe_group(ScriptedBroker(DescribeGroups=described("Dead", ""), ListGroups=listed), "g")


def test_an_answer_without_the_group_is_malformed():
    with pytest.raises(ProtocolError, match="without group g"):
        describe_group(ScriptedBroker(DescribeGroups=described("Empty", group="h")), "g")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.NOT_COORDINATOR, CoordinatorMoved),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CoordinatorMoved),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.INVALID_GROUP_ID, ProtocolError),
    ],
)
def test_a_coordinator_that_does_not_describe_a_group_is_an_error(code, error):
    broker = ScriptedBroker(FindCoordinator=FOUND, DescribeGroups=described("", error=code))
    with pytest.raises(error):
        OffsetCoordinator(broker, "g").describe()


def test_an_unknown_group_is_dead():
    answer = described("", "", error=ErrorCode.GROUP_ID_NOT_FOUND)
    assert (
        not OffsetCoordinator(ScriptedBroker(FindCoordinator=FOUND, DescribeGroups=answer), "g").describe().has_members
    )


def test_settings_are_those_that_were_asked_for():
    configs = [SimpleNamespace(name="a", value="1"), SimpleNamespace(name="b", value="2")]
    answer = SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=configs)])
    assert broker_settings(ScriptedBroker(DescribeConfigs=answer), 3, ["a"]) == {"a": "1"}


def test_a_broker_that_does_not_show_its_settings_is_an_error():
    answer = SimpleNamespace(results=[SimpleNamespace(error_code=31, configs=[])])
    with pytest.raises(ProtocolError, match="does not show its settings"):
        broker_settings(ScriptedBroker(DescribeConfigs=answer), 3, ["a"])


@pytest.mark.parametrize(
    ("ranges", "release"),
    [
        (OLD_RELEASES["0.8.2"], (0, 8, 2)),
        (OLD_RELEASES["0.9.0"], (0, 9)),
        ({18: (0, 0), 1: (0, 2), 3: (0, 1), 9: (0, 1)}, (0, 10, 0)),
        ({18: (0, 1), 1: (0, 7), 3: (0, 5), 9: (0, 3)}, (1, 1)),
        ({18: (0, 4), 0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 9: (0, 9)}, (3, 9)),
    ],
)
def test_a_release_is_recognised_by_its_apis(ranges, release):
    assert broker_release(ScriptedBroker(ranges)) == release
