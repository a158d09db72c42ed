import pytest

from zkconsumer.fetch.leaders import fetcher_number
from zkconsumer.model import TopicPartition


@pytest.mark.parametrize(
    ("fetchers", "topic", "partition", "number"),
    [(3, "t8", 0, 1), (3, "t8", 7, 2), (3, "orders", 2, 0), (4, "t8", 7, 3), (4, "page-views", 1, 1), (8, "t8", 0, 4)],
)
def test_partitions_go_to_the_fetchers_that_the_jvm_chooses(fetchers, topic, partition, number):
    """Check values observed on the JVM (SPEC 6.1)."""
    assert fetcher_number(TopicPartition(topic, partition), fetchers) == number
