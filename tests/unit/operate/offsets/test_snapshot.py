"""Snapshots: what is written is read again, and other files are refused."""

import errno
import os
import stat
from dataclasses import replace

import pytest

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets import wholefiles
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import (
    GroupChange,
    KafkaChange,
    NodeChange,
    NodeState,
    Snapshot,
    SnapshotFile,
    default_path,
    read_snapshot,
)

SNAPSHOT = Snapshot(
    "reset g",
    "h:1/chroot",
    123,
    (
        GroupChange(
            "g",
            (
                NodeChange("/consumers/g/offsets/t/0", NodeState(b"5", 3, 77), NodeState(b"6")),
                NodeChange("/consumers/g/offsets/t/1", None, NodeState(b"6", access=((31, "world", "anyone"),))),
                NodeChange("/consumers/g/offsets/t", NodeState(None, 0, 7, ((1, "digest", "a:b"),)), None),
                NodeChange("/consumers/g/offsets/t/2", NodeState(b"\xff", 0, 7), None),
            ),
            (KafkaChange(TopicPartition("t", 0), None, 6, "m", "f"), KafkaChange(TopicPartition("t", 1), 5, 6)),
        ),
        GroupChange("other", (), (KafkaChange(TopicPartition("t", 0), None, 6),), held="h"),
    ),
    plan="abc",
    beyond={TopicPartition("u", 0): 7},
)


def test_a_snapshot_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "snapshot"
    SnapshotFile(path).begin(SNAPSHOT)
    assert read_snapshot(path) == SNAPSHOT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_is_overwritten(tmp_path):
    path = tmp_path / "snapshot"
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        SnapshotFile(path).begin(SNAPSHOT)
    assert path.read_text() == "precious"


def test_the_file_and_its_directory_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_mode))
    SnapshotFile(tmp_path / "snapshot").begin(SNAPSHOT)
    assert [stat.S_ISREG(mode) for mode in synced] == [True, False]
    assert stat.S_ISDIR(synced[1])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "12", '{"kind": "zkconsumer snapshot", "version": 1}', "/consumers/g/offsets/t/0:5\n"],
)
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(ZkConsumerError, match="is not a snapshot"):
        read_snapshot(path)


def test_a_snapshot_reaches_no_znode_outside_of_groups(tmp_path):
    path = tmp_path / "snapshot"
    outside = GroupChange("g", (NodeChange("/brokers/ids", None, None),))
    SnapshotFile(path).begin(Snapshot("x", "h:1", 1, (outside,)))
    with pytest.raises(ZkConsumerError, match="is not below /consumers"):
        read_snapshot(path)


def test_the_default_name_is_a_plain_file_name(tmp_path):
    path = default_path("delete ../../etc/<script>\n\x1b[31m" + "x" * 500, tmp_path)
    assert path.parent == tmp_path
    assert len(path.name) < 200
    assert path.name.isprintable()


def test_a_process_writes_several_snapshots_within_a_second(tmp_path):
    for _ in range(3):
        default_path("rollback", tmp_path).touch(exist_ok=False)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_file_records_how_far_a_write_has_come(tmp_path):
    path = tmp_path / "plan.snapshot.json"
    file = SnapshotFile(path, is_new=False)
    assert file.state is None
    file.begin(SNAPSHOT)
    for state in (WriteState.COMPLETE, WriteState.UNDOING, WriteState.UNDONE):
        file.mark(state)
        assert SnapshotFile(path, is_new=False).snapshot == replace(SNAPSHOT, state=state)


def test_a_file_that_cannot_be_recorded_is_what_it_was(tmp_path, monkeypatch):
    """The disk fails when the file has been replaced, and the directory that lists it is not on the disk yet."""

    def fail(_directory):
        raise OSError(errno.EIO, "the disk fails")

    path = tmp_path / "plan.snapshot.json"
    file = SnapshotFile(path, is_new=False)
    with monkeypatch.context() as patch:
        patch.setattr(wholefiles, "sync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            file.begin(SNAPSHOT)
    assert (file.state, list(tmp_path.iterdir())) == (None, [])
    file.begin(SNAPSHOT)
    file.mark(WriteState.COMPLETE)
    with monkeypatch.context() as patch:
        patch.setattr(wholefiles, "sync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            file.mark(WriteState.UNDOING)
    assert file.state is WriteState.COMPLETE
    assert (read_snapshot(path), list(tmp_path.iterdir())) == (file.snapshot, [path])
