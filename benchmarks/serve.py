"""The cost of ``zkconsumer serve``: CPU and memory while it samples many groups and is scraped, and its answers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.groupznodes import create_wide_topics, own_topic, store_offsets
from benchmarks.machine import cpu_s, peak_memory_mib
from benchmarks.servers import bench_servers
from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession

_START_S: Final = 120.0
_LIST: Final = "api/groups?sort=worst&count=100"
_METRICS: Final = "metrics"
_ROUNDS: Final = 4
_LOOK_S: Final = 0.2
_SCRAPE_S: Final = 15.0
_SAMPLE_S: Final = "zkconsumer_serve_sample_duration_seconds "


@dataclass(frozen=True)
class ServeSizes:
    """The sizes of the measurement.

    Attributes:
        groups: number of groups, each of one member.
        partitions: number of partitions that each of them owns.
        topics: number of topics, which the groups share.
        interval: seconds between samples.
        seconds: how long CPU is measured, with a scrape every 15 s.
    """

    groups: int = 200
    partitions: int = 50
    topics: int = 20
    interval: float = 10.0
    seconds: float = 60.0


@dataclass(frozen=True)
class ServeCost:
    """What was measured.

    Attributes:
        cores: CPU time of the process in relation to time; 1 is one core.
        memory_mib: peak resident memory; the history, which is not full yet, adds 8 bytes a sample and partition.
        sample_s: how long the last sample took, in seconds.
        list_s: how long the first hundred groups of the page took, in seconds, as the first request after a sample,
            which evaluates all groups; the median.
        list_again_s: the same as a later request.
        metrics_s: how long a scrape took, in seconds, as the first request after a sample; the median.
        metrics_again_s: the same as a later request.
    """

    cores: float
    memory_mib: float
    sample_s: float
    list_s: float
    list_again_s: float
    metrics_s: float
    metrics_again_s: float

    def figures(self) -> dict[str, tuple[float, str]]:
        """What was measured, with its unit, by a description."""
        return {
            "CPU": (100 * self.cores, "% of a core"),
            "peak memory": (self.memory_mib, "MiB"),
            "a sample": (self.sample_s, "s"),
            "100 groups of the list, after a sample": (self.list_s, "s"),
            "100 groups of the list, again": (self.list_again_s, "s"),
            "/metrics, after a sample": (self.metrics_s, "s"),
            "/metrics, again": (self.metrics_again_s, "s"),
        }


def measure_serve(sizes: ServeSizes, progress: Progress) -> ServeCost:
    """Serve a cluster of many groups, and measure.

    Raises:
        SandboxError: a server did not start.
    """
    with bench_servers(progress) as (sandbox, session):
        _create(sandbox, session, sizes)
        with _serving(sandbox.zookeeper_connect, f"--interval={sizes.interval}s") as (process, url):
            _await(f"{url}readyz")
            time.sleep(2 * sizes.interval)
            began, before = time.monotonic(), cpu_s(process.pid)
            while time.monotonic() < began + sizes.seconds:
                _get(f"{url}metrics")
                time.sleep(min(_SCRAPE_S, max(0.0, began + sizes.seconds - time.monotonic())))
            cores = (cpu_s(process.pid) - before) / (time.monotonic() - began)
            page = _get(f"{url}metrics").splitlines()
            (sample_s,) = (float(line.split()[1]) for line in page if line.startswith(_SAMPLE_S))
            first, again = _request_times(url)
            return ServeCost(
                cores,
                peak_memory_mib(process.pid),
                sample_s,
                list_s=first[_LIST],
                list_again_s=again[_LIST],
                metrics_s=first[_METRICS],
                metrics_again_s=again[_METRICS],
            )


def _request_times(url: str) -> tuple[dict[str, float], dict[str, float]]:
    """How long each request takes, in seconds, as the first one after a sample, and as the second one after another."""
    first: dict[str, list[float]] = {_LIST: [], _METRICS: []}
    again: dict[str, list[float]] = {_LIST: [], _METRICS: []}
    for number in range(2 * _ROUNDS):
        _await_sample(url)
        order = (_LIST, _METRICS) if number % 2 else (_METRICS, _LIST)
        for times, path in zip((first, again), order, strict=True):
            began = time.perf_counter()
            _get(url + path)
            times[path].append(time.perf_counter() - began)
    return _medians(first), _medians(again)


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {path: median(of_path) for path, of_path in times.items()}


def _await_sample(url: str) -> None:
    """Return once the next sample has ended; the question evaluates no group."""
    before = _sample_age_s(url)
    while (age := _sample_age_s(url)) >= before:
        before = age
        time.sleep(_LOOK_S)


def _sample_age_s(url: str) -> int:
    """How long ago the newest sample began, in whole seconds."""
    found = re.search(r"began (\d+) s ago", _get(f"{url}healthz"))
    assert found is not None
    return int(found[1])


def _create(sandbox: Sandbox, session: ZkSession, sizes: ServeSizes) -> None:
    """Topics, and groups of which each consumes one of them."""
    topics = [f"topic-{number}" for number in range(sizes.topics)]
    create_wide_topics(sandbox, dict.fromkeys(topics, sizes.partitions))
    for number in range(sizes.groups):
        group, topic = f"group-{number}", topics[number % len(topics)]
        partitions = [TopicPartition(topic, n) for n in range(sizes.partitions)]
        own_topic(session, group, topic, partitions)
        store_offsets(session, group, partitions)


@contextmanager
def _serving(connect: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "zkconsumer", "serve", "--zookeeper", connect, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise SandboxError("zkconsumer serve has not started; its error is printed above")
            yield process, url
        finally:
            process.terminate()


def _await(url: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            _get(url)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_START_S) as answer:
        text: str = answer.read().decode()
        return text
