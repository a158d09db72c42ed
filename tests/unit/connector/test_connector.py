import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ConfigError


def test_an_option_of_queries_is_refused():
    with pytest.raises(ConfigError, match="for Spark queries only"):
        ConsumerConnector(ConsumerConfig(zookeeper_connect="h:1", group_id="g", group_share=False))
