import pytest

from zkconsumer.model import ConsumerThreadId, TopicPartition


def test_thread_id_is_cut_at_the_last_hyphen():
    assert ConsumerThreadId.parse("g_host-123-abc-10") == ConsumerThreadId("g_host-123-abc", 10)
    assert str(ConsumerThreadId("g_c", 10)) == "g_c-10"


@pytest.mark.parametrize("text", ["", "g_c", "g_c-", "g_c-x", "g_c-\N{SUPERSCRIPT TWO}"])
def test_what_is_no_thread_id(text):
    with pytest.raises(ValueError, match="not a consumer thread id"):
        ConsumerThreadId.parse(text)


def test_partitions_sort_as_numbers():
    assert sorted([TopicPartition("t", 10), TopicPartition("t", 2)])[0].partition == 2
