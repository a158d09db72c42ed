"""The parts of a member are those that its properties name."""

import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.memberassembly import assemble_parts


@pytest.mark.parametrize(("name", "incremental"), [("zookeeper", False), ("coordinator", True)])
def test_the_group_protocol_is_the_one_of_the_configuration(name, incremental):
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", group_protocol=name)
    protocol = assemble_parts(config, "g_a").protocol
    assert (protocol.name, protocol.incremental) == (name, incremental)
    assert not protocol.is_joined()


def test_the_default_protocol_is_that_of_the_jvm_consumer():
    assert ConsumerConfig(zookeeper_connect="unused:1", group_id="g").group_protocol == "zookeeper"
