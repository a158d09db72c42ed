"""Offsets of other layouts, read from znodes and files."""

import pytest

from tests.fixtures.znodes import ZnodesInMemory
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.foreignlayouts import read_layout
from zkconsumer.operate.migrate.rules.migrationend import parse_end

SPOUT = '{"topology":{"id":"x","name":"x"},"offset":%d,"partition":%d,"broker":{"host":"h","port":1},"topic":"%s"}'


@pytest.fixture
def znodes():
    return ZnodesInMemory()


def read(znodes, uri):
    found = read_layout(znodes, parse_end(uri))
    return {str(partition): offset for partition, offset in found.offsets.items()}, found.warnings


def test_a_spout_of_one_topic_and_one_of_many_are_read(znodes):
    for number in range(2):
        znodes.write(f"/spout/one/partition_{number}", (SPOUT % (5 + number, number, "t")).encode())
        znodes.write(f"/spout/many/t/partition_{number}", (SPOUT % (5 + number, number, "t")).encode())
    znodes.write("/spout/many/u/partition_0", (SPOUT % (9, 0, "u")).encode())
    assert read(znodes, "storm:/spout/one") == ({"t-0": 5, "t-1": 6}, ())
    assert read(znodes, "storm:/spout/many") == ({"t-0": 5, "t-1": 6, "u-0": 9}, ())


def test_two_znodes_of_one_partition_are_a_problem(znodes):
    znodes.write("/spout/s/partition_0", (SPOUT % (5, 0, "t")).encode())
    znodes.write("/spout/s/t/partition_0", (SPOUT % (6, 0, "t")).encode())
    (problem,) = read_layout(znodes, parse_end("storm:/spout/s")).problems
    assert "two znodes of t-0" in problem


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("storm:/s", "/s/partition_%d"),
        ("dibbhatt:/s", "/s/offsets/t/%d"),
        ("dibbhatt:/s", "/s/t/processed/partition_%d"),
    ],
)
def test_a_znode_that_cannot_be_read_costs_its_partition_alone(znodes, uri, path):
    good = b"4" if "offsets" in path else (SPOUT % (5, 0, "t")).encode()
    znodes.write(path % 0, good)
    znodes.write(path % 1, b"x")
    found = read_layout(znodes, parse_end(uri))
    assert list(found.offsets) == [TopicPartition("t", 0)]
    (problem,) = found.problems
    assert path % 1 in problem


def test_the_newer_receiver_is_read_in_place_of_the_older(znodes):
    znodes.write("/p/id/t/processed/partition_0", b'{"offset": 4, "partition": 0, "topic": "t"}')
    assert read(znodes, "dibbhatt:/p/id") == ({"t-0": 5}, ())
    znodes.write("/p/id/offsets/t/0", b"7")
    znodes.write("/p/id/offsets/t/1", b"8")
    znodes.write("/p/id/ids/t/Receiver-0", b"")
    assert read(znodes, "dibbhatt:/p/id") == ({"t-0": 8, "t-1": 9}, ())


@pytest.mark.parametrize("uri", ["storm:/nowhere/id", "dibbhatt:/nowhere/id"])
def test_a_path_that_does_not_exist_is_an_error(znodes, uri):
    with pytest.raises(ZkConsumerError, match="does not exist in ZooKeeper"):
        read(znodes, uri)


@pytest.mark.parametrize("uri", ["storm:/p/id", "dibbhatt:/p/id"])
def test_a_path_without_offsets_is_an_error(znodes, uri):
    znodes.write("/p/id/t", b"")
    with pytest.raises(ZkConsumerError, match="no offsets of this layout"):
        read(znodes, uri)


def log(directory, batch, offset, *, committed=True):
    for name in ("offsets", "commits"):
        (directory / name).mkdir(exist_ok=True)
    (directory / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{offset}}}}}')
    if committed:
        (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_checkpoint_is_read_up_to_its_last_finished_batch(znodes, tmp_path):
    log(tmp_path, 9, 5)
    log(tmp_path, 10, 6)
    assert read(znodes, f"spark:{tmp_path}") == ({"t-0": 6}, ())
    log(tmp_path, 11, 7, committed=False)
    offsets, (warning,) = read(znodes, f"spark:{tmp_path}")
    assert offsets == {"t-0": 6}
    assert "batch 11 of" in warning


def test_a_checkpoint_without_a_finished_batch_is_an_error(znodes, tmp_path):
    with pytest.raises(ZkConsumerError, match="not the checkpoint"):
        read(znodes, f"spark:{tmp_path}")
    log(tmp_path, 0, 5, committed=False)
    with pytest.raises(ZkConsumerError, match="no finished batch"):
        read(znodes, f"spark:{tmp_path}")


def test_a_file_of_starting_offsets_is_read(znodes, tmp_path):
    file = tmp_path / "offsets.json"
    file.write_text('{"t": {"1": 5}}')
    assert read(znodes, f"spark-options:{file}") == ({"t-1": 5}, ())
