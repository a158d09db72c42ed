"""The parts of a member are those that its properties name."""

import pytest

from zkconsumer.assembly.memberassembly import assemble_parts
from zkconsumer.config.consumerconfig import ConsumerConfig


@pytest.mark.parametrize("name", ["zookeeper", "coordinator"])
def test_the_group_protocol_is_the_one_of_the_configuration(name):
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", group_protocol=name)
    protocol = assemble_parts(config, "g_a").protocol
    assert protocol.name == name
    assert protocol.held == ({}, 0)


@pytest.mark.parametrize("name", ["kafka", "consumer"])
def test_a_group_that_brokers_coordinate_has_no_session_in_zookeeper(name):
    config = ConsumerConfig(
        bootstrap_servers="unused:1",
        group_id="g",
        group_protocol=name,
    )
    parts = assemble_parts(config, "g_a")
    assert (parts.protocol.name, parts.protocol.describe().session) == (name, 0)
    parts.store.close()
    parts.protocol.leave()


def test_the_default_protocol_is_that_of_the_jvm_consumer():
    assert ConsumerConfig(zookeeper_connect="unused:1", group_id="g").group_protocol == "zookeeper"
