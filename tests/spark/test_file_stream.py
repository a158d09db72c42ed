"""The way for releases of Spark that have no source of this package: parts of ``consume``, and Spark's file stream."""

import sys

import pytest

from tests.fixtures.fileparts import archive_parts


@pytest.mark.slow
def test_a_file_stream_reads_each_record_of_consume_once(sandbox, topic_factory, produce, tmp_path):
    topic = topic_factory(partitions=2)
    rows, parts = archive_parts(sys.executable, sandbox, topic, produce, tmp_path)
    assert rows == sorted((number % 2, number // 2, str(number)) for number in range(400))
    assert parts >= 4, "they were written while the query ran"
