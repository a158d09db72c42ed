"""The parts of a member are those that its properties name."""

import pytest

from zkconsumer.assembly.memberassembly import assemble_parts
from zkconsumer.config.consumerconfig import ConsumerConfig


@pytest.mark.parametrize(("name", "incremental"), [("zookeeper", False), ("coordinator", True)])
def test_the_group_protocol_is_the_one_of_the_configuration(name, incremental):
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", group_protocol=name)
    protocol = assemble_parts(config, "g_a").protocol
    assert (protocol.name, protocol.incremental) == (name, incremental)
    assert not protocol.is_joined()


@pytest.mark.parametrize(("strategy", "incremental"), [("range", False), ("cooperative-sticky", True)])
def test_a_group_that_brokers_coordinate_has_no_session_in_zookeeper(strategy, incremental):
    config = ConsumerConfig(
        bootstrap_servers="unused:1",
        group_id="g",
        group_protocol="kafka",
        partition_assignment_strategy=strategy,
    )
    parts = assemble_parts(config, "g_a")
    assert (parts.protocol.name, parts.protocol.incremental, parts.protocol.session) == ("kafka", incremental, 0)
    parts.store.close()
    parts.protocol.close()


def test_the_default_protocol_is_that_of_the_jvm_consumer():
    assert ConsumerConfig(zookeeper_connect="unused:1", group_id="g").group_protocol == "zookeeper"
