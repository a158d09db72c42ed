"""``consume --output`` on a disk that becomes full: no offset is stored of a record that is not on the disk."""

import subprocess
import sys
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FITS, TOO_MANY = 200, 4000
"""Records of a kilobyte, on a disk of a mebibyte."""


def values(count, start=0):
    """Values that no format can make smaller than by half."""
    return [Random(number).randbytes(512).hex().encode() for number in range(start, start + count)]


def written(path, kind):
    """The values in an output that may be growing."""
    if kind == "parquet":
        return [value for part in path.glob("part-*") for value in pq.read_table(part)["value"].to_pylist()]
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


@pytest.mark.parametrize("kind", ["value", "parquet"])
def test_a_full_disk_fails_the_command_and_loses_nothing(
    sandbox, zookeeper, topic_factory, produce, unique_name, small_disk, kind
):
    topic, output = topic_factory(), small_disk.path / "out"
    offset = f"/consumers/{unique_name}/offsets/{topic}/0"
    command = [sys.executable, "-m", "zkconsumer", "consume", "--zookeeper", sandbox.zookeeper_connect]
    command += ["--group", unique_name, "--topic", topic, "--from-beginning", "--format", kind, "--output", str(output)]
    command += ["-p", "auto.commit.interval.ms=100", "-p", "zookeeper.connection.timeout.ms=20000"]
    command += ["-p", "zookeeper.session.timeout.ms=30000"]

    def committed():
        return int(zookeeper.get(offset)[0]) if zookeeper.exists(offset) else 0

    produce(topic, values(FITS))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        # The last record is committed only when the next one is asked for.
        eventually(lambda: committed() >= FITS - 1)
        produce(topic, values(TOO_MANY, FITS))
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 1, errors
    assert str(output) in errors
    assert "No space left on device" in errors
    everything = values(FITS + TOO_MANY)
    stored = committed()
    assert FITS - 1 <= stored < len(everything)
    assert set(everything[:stored]) <= set(written(output, kind)), "what is committed is on the disk"
    small_disk.grow()

    def completed():  # a slow machine may let the timeout pass too early
        again = subprocess.run(
            [*command, "--timeout-ms", "2000"], capture_output=True, text=True, timeout=100, check=False
        )
        assert again.returncode == 0, again.stderr
        return committed() == len(everything)

    eventually(completed)
    assert set(everything) <= set(written(output, kind))
