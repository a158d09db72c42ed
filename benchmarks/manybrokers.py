"""The cost of reading from many brokers and partitions: CPU, requests and wake-ups, on simulated brokers.

A reader in a separate process reads Arrow batches through one stream, as fast as possible, without a group. Only the
CPU time of its process is measured, so other work on the machine matters little, and the brokers' work not at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from benchmarks.contest import OURS, Contest, rotated
from benchmarks.simbrokers import TOPIC, Counts, Simulation
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.progress import Progress

_MIB: Final = 1 << 20
_TIMEOUT_S: Final = 60.0
FEW: Final = f"{OURS}, 8 partitions on 1 broker"
SIMULATIONS: Final = {
    FEW: Simulation(brokers=1, partitions=8, busy=8),
    f"{OURS}, 1,000 partitions on 3 brokers": Simulation(brokers=3),
    f"{OURS}, 1,000 partitions on 100 brokers": Simulation(),
    f"{OURS}, 1,000 partitions on 3 brokers, 8 with data": Simulation(brokers=3, busy=8),
}


class Reading(NamedTuple):
    """The measurements of a reader.

    Attributes:
        records: number of records read.
        cpu_s: CPU time of its process, from the first record on.
        seconds: duration from the first record on.
        wakeups: wake-ups of fetchers that waited for room.
        peak_mib: peak resident memory.
    """

    records: int
    cpu_s: float
    seconds: float
    wakeups: int
    peak_mib: float


def many_broker_contests(rounds: int, seconds: float, progress: Progress) -> list[Contest]:
    """Run all simulations, and return a contest for each figure.

    Raises:
        SandboxError: a process failed; the message has its output.
    """
    cpu = Contest("brokers-100: CPU", "s/million records", FEW, "at most 1.2")
    requests = Contest("brokers-100: fetch requests", "1/MiB", FEW)
    named = Contest("brokers-100: partitions named in requests", "1/MiB", FEW)
    wakeups = Contest("brokers-100: wake-ups of fetchers", "1/MiB", FEW)
    with progress.step(cpu.title, rounds * len(SIMULATIONS)) as advance:
        for number in range(rounds):
            for position, name in enumerate(rotated(list(SIMULATIONS), number)):
                advance(number * len(SIMULATIONS) + position, name)
                counts, reading = simulate(SIMULATIONS[name], seconds)
                mebibytes = counts.sent / _MIB
                cpu.add(name, reading.cpu_s / reading.records * 1e6)
                cpu.note_memory(name, reading.peak_mib)
                requests.add(name, counts.requests / mebibytes)
                named.add(name, counts.named / mebibytes)
                wakeups.add(name, reading.wakeups / mebibytes)
    return [cpu, requests, named, wakeups]


def simulate(simulation: Simulation, seconds: float) -> tuple[Counts, Reading]:
    """Start brokers and a reader, and return their counts.

    Raises:
        SandboxError: one of them failed; the message has its output.
    """
    with ExitStack() as cleaning:
        brokers = start_process("benchmarks.simbrokers", json.dumps(simulation), cleaning)
        assert brokers.stdout is not None
        ports = brokers.stdout.readline()
        if not ports:
            finish_process(brokers)
        arguments = json.dumps([json.loads(ports), simulation.partitions, seconds])
        reading = Reading(*finish_process(start_process("benchmarks.manybrokers", arguments, cleaning)))
        return Counts(*finish_process(brokers)), reading


def start_process(module: str, argument: str, cleaning: ExitStack) -> subprocess.Popen[str]:
    """Start a module with an argument; the process is killed with ``cleaning``."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-m", module, argument], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    cleaning.enter_context(process)  # its exit waits for the process to end, so kill it first
    cleaning.callback(process.kill)
    return process


def finish_process(process: subprocess.Popen[str]) -> list[Any]:
    """The last line that a process prints after its input ends, parsed as JSON."""
    try:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise SandboxError(f"{process.args[2:]!r} did not finish within {_TIMEOUT_S:g} s") from None  # type: ignore[index]
    if process.returncode != 0 or not out:
        raise SandboxError(f"{process.args!r} failed: {err[-2000:]}")
    return list(json.loads(out.splitlines()[-1]))


def read(ports: list[int], partitions: int, seconds: float) -> Reading:
    """Read all partitions from the simulated brokers at these ports."""
    from zkconsumer.config.consumerconfig import ConsumerConfig
    from zkconsumer.connector.stream import MessageStream
    from zkconsumer.decode.kernelloader import kernels
    from zkconsumer.fetch.chunkqueue import ChunkQueue
    from zkconsumer.fetch.chunkreader import ChunkReader
    from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
    from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
    from zkconsumer.model import Broker, ConsumerThreadId, Message, TopicPartition

    kernels()
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="simulation")
    queue = ChunkQueue(max_bytes=config.queued_max_bytes, max_chunks=config.queued_max_message_chunks)
    brokers = [Broker(number, "127.0.0.1", port) for number, port in enumerate(ports)]
    control = LocalFetchControl("simulation", config, lambda: brokers, lambda *_: queue)
    reader = ChunkReader(queue)
    stream = MessageStream(queue, name="simulation", kind=Message, reader=reader)
    thread = ConsumerThreadId("simulation", 0)
    offsets: dict[TopicPartition, int | None] = {TopicPartition(TOPIC, number): 0 for number in range(partitions)}
    control.start(
        FetchAssignment(1, {partition: AssignedPartition(thread, offset) for partition, offset in offsets.items()})
    )
    try:
        stream.next_batch()
        began, cpu, counted = time.monotonic(), time.process_time(), 0
        while time.monotonic() < began + seconds:
            batch = stream.next_batch()
            counted += 0 if batch is None else batch.num_rows
        elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
        assert control._finder is not None
        wakeups = sum(fetcher.wakeups for fetcher in list(control._finder._fetchers.values()))
    finally:
        control.stop()
        queue.close()
    return Reading(counted, cpu, elapsed, wakeups, _peak_mib())


def _peak_mib() -> float:
    import os

    from benchmarks.machine import peak_memory_mib

    return peak_memory_mib(os.getpid())


if __name__ == "__main__":
    print(json.dumps(read(*json.loads(sys.argv[1]))))  # noqa: T201 - read by the parent
