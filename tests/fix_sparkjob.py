"""The application ``spark/delivery_job.py`` as a process to harm, and what became of its deliveries."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fix_spark import GroupNodes, await_until
from zkconsumer.sandbox import Sandbox, java_home_for_spark

PATIENCE_S = 200.0
"""For a Spark application to start, and more than once, on a machine that has other work."""
TASK_WORKERS = "pyspark.daemon pyspark.worker"
EXECUTORS = "CoarseGrainedExecutorBackend"
SOURCES = "python_streaming_source_runner"


class DeliveryJob:
    """One query with one checkpoint, through as many processes as a test kills."""

    def __init__(self, directory: Path, topic: str, settings: dict[str, Any]) -> None:
        directory.mkdir()
        self.output = directory / "output"
        self.checkpoint = directory / "checkpoint"
        self.log = directory / "log"
        self._topic = topic
        self._settings = directory / "settings.json"
        told = {**settings, "output": str(self.output), "checkpoint": str(self.checkpoint)}
        self._settings.write_text(json.dumps(told), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        import pyspark

        (self.output / "pids").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),  # local-cluster starts executors by its scripts
        }
        script = Path(__file__).parent / "spark" / "delivery_job.py"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(self._settings)],
                env=environment,
                cwd=self._settings.parent,
                stdout=log,
                stderr=log,
            )

    def pids(self, words: str) -> list[int]:
        """Descendants whose command line has the words, each after its ancestors."""
        assert self._process is not None
        return [pid for pid in _descendants(self._process.pid) if words in _command_line(pid)]

    def task_worker(self) -> int | None:
        """A Python process that runs tasks: a fork of the daemon of its executor."""
        found = self.pids(TASK_WORKERS)
        return found[-1] if len(found) > 1 else None

    def kill_driver(self) -> None:
        """SIGKILL for the driver's JVM; returns when the application has ended."""
        assert self._process is not None
        pids = self.output / "pids"
        await_until(pids.exists, "the application tells its processes", PATIENCE_S)
        os.kill(json.loads(pids.read_text(encoding="utf-8"))["jvm"], signal.SIGKILL)
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """End whatever still runs."""
        if self._process is not None:
            left = [*reversed(_descendants(self._process.pid)), self._process.pid]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(PATIENCE_S)

    def require_running(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text(encoding="utf-8")[-4000:]

    # -- what it did ------------------------------------------------------------------------------------------------

    def deliveries(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """(batch id, positions) of every delivery, the oldest first."""
        files = sorted(self.output.glob("*.json"), key=lambda path: int(path.name.split(".")[1]))
        return [(int(f.name.split(".")[0]), [tuple(row) for row in json.loads(f.read_text())]) for f in files]

    def delivered(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) reached a sink that takes everything."""
        return Counter(position for _, rows in self.deliveries() for position in rows)

    def kept(self) -> Counter[tuple[int, int]]:
        """How often each reached a sink that knows batches by their ids; a repeated batch must be the same."""
        by_batch: dict[int, list[tuple[int, int]]] = {}
        for batch, rows in self.deliveries():
            assert by_batch.setdefault(batch, sorted(rows)) == sorted(rows), f"batch {batch} was repeated with others"
        return Counter(position for rows in by_batch.values() for position in rows)

    def finished(self) -> dict[int, int]:
        """Where the checkpoint says that each partition has been finished."""
        ends: dict[int, int] = {}
        for commit in (self.checkpoint / "commits").glob("[0-9]*"):
            last_line = (self.checkpoint / "offsets" / commit.name).read_text(encoding="utf-8").splitlines()[-1]
            for partition, (_, until, _) in json.loads(last_line)["topics"].get(self._topic, {}).items():
                ends[int(partition)] = max(until, ends.get(int(partition), 0))
        return ends

    def require_not_ahead(self, group: GroupNodes) -> None:
        """The group's offsets, read first, are not beyond what the checkpoint says."""
        stored = group.offsets(self._topic)
        finished = self.finished()
        ahead = {p: (offset, finished.get(p, 0)) for p, offset in stored.items() if offset > finished.get(p, 0)}
        assert not ahead, f"znodes are ahead of the checkpoint: {ahead}"

    def await_batches(self, count: int, group: GroupNodes) -> None:
        """Wait for deliveries in all, looking at offsets meanwhile."""

        def there() -> bool:
            self.require_running()
            self.require_not_ahead(group)
            return len(list(self.output.glob("*.json"))) >= count

        await_until(there, f"{count} deliveries", PATIENCE_S)

    def await_all(self, produced: list[tuple[int, int]], group: GroupNodes) -> None:
        """Wait until everything is delivered and committed."""
        wanted = Counter(partition for partition, _ in produced)

        def there() -> bool:
            self.require_running()
            self.require_not_ahead(group)
            return group.offsets(self._topic) == wanted

        await_until(there, "all is committed", PATIENCE_S)
        assert self.delivered().keys() == set(produced), "delivered is what was produced"


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        for child in sorted(children.get(waiting.pop(0), [])):
            found.append(child)
            waiting.append(child)
    return found


def _command_line(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture
def make_job(tmp_path: Path, unique_name: str) -> Iterator[Any]:
    """Make jobs: ``make_job(sandbox, topic, master="local[2,8]", name="job", options={...})``."""
    made: list[DeliveryJob] = []

    def make(
        box: Sandbox,
        topic: str,
        *,
        master: str = "local[2,8]",
        name: str = "job",
        options: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        pause_s: float = 0.3,
    ) -> DeliveryJob:
        settings = {
            "conf": {
                "spark.master": master,
                "spark.ui.enabled": "false",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                **(conf or {}),
            },
            "options": {
                "zookeeper.connect": box.zookeeper_connect,
                "group.id": unique_name,
                "subscribe": topic,
                "auto.offset.reset": "smallest",
                "maxOffsetsPerTrigger": "40",
                **(options or {}),
            },
            "trigger": {"processingTime": "0 seconds"},
            "pause_s": pause_s,
        }
        made.append(DeliveryJob(tmp_path / name, topic, settings))
        made[-1].start()
        return made[-1]

    yield make
    for job in made:
        job.close()
