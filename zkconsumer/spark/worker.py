"""The state that a Spark Python worker keeps between tasks: connections and decoders.

Spark reuses worker processes (``spark.python.worker.reuse``), one task at a time in each, so this module's state
survives between micro-batches. A task borrows connections and decoders from here and returns those that can be reused.

A connection belongs to one set of options, since it was opened and logged in with them. A decoder can be used for any
query: it is kept for its memory, since the first access to new memory costs more than filling it.
"""

from __future__ import annotations

import gc
import socket
from contextlib import suppress

from zkconsumer.ranges.decoderpool import DecoderPool
from zkconsumer.spark.daemonworker import is_first_task, jvm_socket
from zkconsumer.spark.keptconnections import KeptConnections

connections = KeptConnections()
"""The connections of this process."""
decoders = DecoderPool()
"""The decoders of this process."""


def acknowledge_quickly() -> None:
    """Make the kernel acknowledge data of the JVM on this worker's socket at once.

    Spark 4.2 writes a task in two pieces and, with Nagle's algorithm on, sends the second only when the first is
    acknowledged; the worker's kernel delays that by 40 ms, in every task (notes.md#cost-of-sparks-tasks). The kernel
    resets the option, so each task sets it for the next one. Spark 4.3 sends one piece, where it has no effect.
    """
    jvm = jvm_socket()
    # A Unix socket does not have the option, nor do other kernels than Linux.
    if jvm is not None and jvm.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_QUICKACK"):
        with suppress(OSError):  # the JVM has closed the connection: it will not send another task
            jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def collect_less() -> None:
    """Exclude existing objects from garbage collections: modules, which never become garbage.

    A worker collects after each task, and traversing them takes 60 ms of a core. To be called at the end of a task,
    when all modules are loaded.

    It has an effect only in the first task of a worker. Later the objects of earlier tasks would be excluded too, and
    cycles among them would never be freed.
    """
    if is_first_task():
        gc.collect()
        gc.freeze()
