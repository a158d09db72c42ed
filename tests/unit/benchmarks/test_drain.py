import pytest

from benchmarks.drain import CUT_BYTES, Prepared, fetch_request, prepare
from benchmarks.logsegment import Log
from tests.fixtures.kafka import FetchRequest


@pytest.mark.parametrize("version", range(5))
def test_prepared_requests_are_those_of_the_protocol(version):
    request = FetchRequest.decode(fetch_request(version, "topic", [3, 4], 17)[4:], version=version, header=True)
    (topic,) = request.topics
    assert topic.topic == "topic"
    assert [(p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions] == [
        (3, 17, CUT_BYTES),
        (4, 17, CUT_BYTES),
    ]


def test_requests_cover_every_record_once():
    log = Log(records=100, size=5 * CUT_BYTES, cuts=(0, 30, 70))
    requests = list(prepare(4, "topic", range(20), log))
    assert len(requests) == 9  # three offsets, and three groups of partitions
    assert sum(records for _, records in requests) == 20 * 100


def test_prepared_requests_are_read_back_from_their_file(tmp_path):
    made = Prepared({"host:1": [["00", 5]]}, "ca.pem")
    made.save(tmp_path / "file")
    assert Prepared.load(tmp_path / "file") == made
