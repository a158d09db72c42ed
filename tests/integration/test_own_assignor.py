"""Assignors of the application on real servers, in both protocols that let a member assign for all."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from kazoo.exceptions import NoNodeError

from tests.chaos.assignments import OwnersAtCoordinator
from tests.fixtures.assignors import Switchable
from tests.fixtures.consumers import IN_BROKER_GROUP, collect, consumers, leave_in_its_name, owned, parts
from tests.fixtures.documents import ROOT, examples
from tests.fixtures.fetch import brokers_of
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import expire
from zkconsumer import AssignorFailed, ConfigError, RebalanceFailed, ZkConsumerError

pytestmark = pytest.mark.integration

HERE = "tests.fixtures.assignors"
PROTOCOLS = pytest.mark.parametrize("protocol", ["coordinator", "kafka"])
SWITCHABLE = {"partition_assignment_strategy": f"{HERE}:Switchable"}


@pytest.fixture
def member(request, sandbox, unique_name):
    """Make members of one group, by default of the protocol that the test has as a parameter."""
    protocol = request.node.callspec.params.get("protocol", "coordinator") if hasattr(request.node, "callspec") else ""
    if protocol == "kafka":
        connection, properties = {"bootstrap.servers": sandbox.bootstrap_servers}, IN_BROKER_GROUP
    else:
        connection, properties = sandbox.connection, {"group_protocol": "coordinator", "rebalance_max_retries": 20}
    properties = {**properties, "rebalance_backoff_ms": 500, "zookeeper_session_timeout_ms": 6000}
    with consumers(connection, unique_name, **properties) as make:
        yield make


class Joining:
    """A member that joins on a thread of its own."""

    def __init__(self, connector, topic):
        self.error = None
        self._thread = threading.Thread(target=self._join, args=[connector, topic], daemon=True)
        self._thread.start()

    def _join(self, connector, topic):
        try:
            connector.create_message_streams({topic: 1})
        except ZkConsumerError as error:
            self.error = error

    def is_ended(self):
        return not self._thread.is_alive()


@PROTOCOLS
def test_members_get_the_partitions_of_their_rack(member, topic_factory, produce, protocol):
    topic = topic_factory(4)
    produce(topic, values(40))
    near = member(partition_assignment_strategy=f"{HERE}:R0")
    received = collect(near.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(near) == parts(topic, 0, 1, 2, 3))
    far = member(partition_assignment_strategy=f"{HERE}:R1")
    received_far = collect(far.create_message_streams({topic: 2})[topic])
    eventually(lambda: (owned(near), owned(far)) == (parts(topic, 0, 2), parts(topic, 1, 3)))
    assert near.describe().strategy == "by-rack"
    produce(topic, values(40, start=40))
    eventually(lambda: {*received, *received_far} == {*values(80)})
    far.shutdown()
    eventually(lambda: owned(near) == parts(topic, 0, 1, 2, 3))


@PROTOCOLS
def test_an_assignor_needs_no_user_data(member, topic_factory, produce, protocol):
    topic = topic_factory(4)
    produce(topic, values(40))
    one, other = (member(partition_assignment_strategy=f"{HERE}:Bare") for _ in range(2))
    received = collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(one) == parts(topic, 0, 1, 2, 3))
    more = collect(other.create_message_streams({topic: 1})[topic])
    shares = [parts(topic, 0, 2), parts(topic, 1, 3)]
    eventually(lambda: [owned(one), owned(other)] in (shares, shares[::-1]))
    assert one.describe().strategy == other.describe().strategy == "bare"
    produce(topic, values(40, start=40))
    eventually(lambda: {*received, *more} == {*values(80)})


@PROTOCOLS
@pytest.mark.parametrize("strategy", ["R0", "Eager"])
def test_the_one_that_assigns_loses_its_membership(member, sandbox, topic_factory, produce, protocol, strategy):
    topic = topic_factory(4)
    own = {"partition_assignment_strategy": f"{HERE}:{strategy}"}
    leads = member(**own)
    received = collect(leads.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(leads) == parts(topic, 0, 1, 2, 3))
    follows = member(**own)
    more = collect(follows.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(owned(leads)) == len(owned(follows)) == 2)
    generation = leads.describe().generation
    if protocol == "kafka":
        leave_in_its_name(sandbox.bootstrap_servers, leads)
    else:
        expire(leads)
    eventually(lambda: leads.describe().generation > generation)
    eventually(lambda: len(owned(leads)) == len(owned(follows)) == 2)
    produce(topic, values(40))
    eventually(lambda: {*received, *more} == {*values(40)})


@PROTOCOLS
def test_a_wrong_assignment_is_raised_and_nobody_loses_a_partition(member, topic_factory, protocol, monkeypatch):
    topic = topic_factory(2)
    one = member(**SWITCHABLE)
    (stream,) = one.create_message_streams({topic: 1})[topic]
    eventually(lambda: owned(one) == parts(topic, 0, 1))
    monkeypatch.setattr(Switchable, "is_wrong", True)
    other = member(**{**SWITCHABLE, "rebalance_max_retries": 4})
    joining = Joining(other, topic)
    with pytest.raises(AssignorFailed, match=f"partition {topic}-0 is given to no member; subscribed are"):
        next(iter(stream))
    assert owned(one) == parts(topic, 0, 1)
    if protocol == "coordinator":  # brokers let a member wait for the others, so that is no failed attempt
        eventually(joining.is_ended)
    monkeypatch.setattr(Switchable, "is_wrong", False)
    if protocol == "coordinator":
        assert f"partition {topic}-0 is given to no member" in str(joining.error)
    eventually(lambda: owned(one) | owned(other) == parts(topic, 0, 1))


@PROTOCOLS
def test_a_member_that_leads_and_cannot_assign_fails_when_it_joins(member, topic_factory, protocol, monkeypatch):
    monkeypatch.setattr(Switchable, "is_wrong", True)
    topic = topic_factory(2)
    one = member(**{**SWITCHABLE, "rebalance_max_retries": 2})
    with pytest.raises(AssignorFailed, match=f"partition {topic}-0"):
        one.create_message_streams({topic: 1})


def test_an_own_assignor_is_refused_in_a_group_with_members_that_assign_by_themselves(member, topic_factory):
    topic = topic_factory(2)
    alone = member(group_protocol="zookeeper")
    collect(alone.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(alone) == parts(topic, 0, 1))
    own = member(**{**SWITCHABLE, "rebalance_max_retries": 2})
    with pytest.raises(ConfigError, match=r"while members are in it that assign by themselves: .*; use range"):
        own.create_message_streams({topic: 1})
    assert owned(alone) == parts(topic, 0, 1)


@pytest.mark.parametrize("protocol", ["kafka"])
def test_members_change_to_an_own_assignor_one_by_one(member, topic_factory, protocol):
    """The brokers choose the one that all members have."""
    topic = topic_factory(4)
    former = member(partition_assignment_strategy="cooperative-sticky")
    collect(former.create_message_streams({topic: 1})[topic])
    both = member(partition_assignment_strategy=f"{HERE}:R0,cooperative-sticky")
    collect(both.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(former)), len(owned(both))) == (2, 2))
    assert both.describe().strategy == "cooperative-sticky"
    refused = member(partition_assignment_strategy=f"{HERE}:R1", rebalance_max_retries=1, rebalance_backoff_ms=10)
    with pytest.raises(RebalanceFailed, match=r"no strategy of partition\.assignment\.strategy="):
        refused.create_message_streams({topic: 1})
    former.shutdown()
    eventually(lambda: (both.describe().strategy, owned(both)) == ("by-rack", parts(topic, 0, 1, 2, 3)))


@pytest.mark.slow
@PROTOCOLS
def test_the_assignor_of_the_page_gives_each_rack_its_partitions(
    sandbox, topic_factory, unique_name, zookeeper, tmp_path, protocol
):
    """docs/operations.md, with processes in racks of their own: four partitions, three members in two racks."""
    page, topic = ROOT / "docs/operations.md", topic_factory(4)
    (racks,) = (block for block in examples(page, "python") if "class Racks" in block)
    (properties,) = (block for block in examples(page, "properties") if "racks:Racks" in block)
    (tmp_path / "racks.py").write_text(racks)
    connection = {"bootstrap.servers": sandbox.bootstrap_servers} if protocol == "kafka" else sandbox.connection
    properties = properties.replace("coordinator", protocol)
    properties += "".join(f"{name}={value}\n" for name, value in connection.items())
    properties += "zookeeper.connection.timeout.ms=20000\nrebalance.max.retries=60\nrebalance.backoff.ms=500\n"
    at_coordinator = OwnersAtCoordinator(brokers_of(sandbox.bootstrap_servers), unique_name)
    started = []

    def owners():
        """Of each partition the first part of its owner's name."""
        if protocol == "kafka":
            found = {number: name for name, numbers in at_coordinator.read().items() for number in numbers}
        else:
            found = {}
            for number in range(4):
                with suppress(NoNodeError):
                    owner, _ = zookeeper.get(f"/consumers/{unique_name}/owners/{topic}/{number}")
                    found[number] = owner.decode().removeprefix(f"{unique_name}_")
        return {number: name[:3] for number, name in sorted(found.items())}

    def start(name):
        config = tmp_path / f"{name}.properties"
        config.write_text(f"{properties}group.id={unique_name}\nconsumer.id={name}\nclient.id={name}\n")
        command = [sys.executable, "-m", "zkconsumer", "consume", "--config", config, "--topic", topic]
        places = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "RACK": name[:2]}
        with (tmp_path / f"{name}.log").open("wb") as log:
            started.append(subprocess.Popen(command, env={**os.environ, **places}, stdout=log, stderr=log))

    try:
        start("r0a")
        eventually(lambda: owners() == dict.fromkeys(range(4), "r0a"))
        start("r1a")
        eventually(lambda: owners() == {0: "r0a", 1: "r1a", 2: "r0a", 3: "r1a"})
        start("r1b")
        eventually(lambda: owners() == {0: "r0a", 1: "r1a", 2: "r0a", 3: "r1b"})
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in started] == [0, 0, 0]
    finally:
        at_coordinator.close()
        for process in started:
            process.kill()
            process.wait()
