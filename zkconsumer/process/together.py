"""call_together: calls that wait for different peers, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from zkconsumer.errors import ThreadLimit
from zkconsumer.process.threads import start_thread

_END_S = 0.05
"""How long to wait for calls to end that were asked to, before they are asked again."""

T = TypeVar("T")


def call_together(calls: Sequence[Callable[[], T]], end: Callable[[], None], *, name: str) -> list[T | Exception]:
    """Call all at the same time, and wait for all of them: the first on this thread, each other one on its own.

    Where the system does not allow another thread, that call is made on this thread, too, before the first one.

    Args:
        calls: what to call.
        end: makes the calls end that have not ended, when this thread is interrupted, and undoes what its own call has
            begun; may be called again.
        name: of the threads.

    Returns:
        What the calls return, or the exceptions that they raise, in the order of the calls.
    """
    outcomes: list[T | Exception] = [RuntimeError("not called")] * len(calls)

    def call(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except Exception as error:  # noqa: BLE001  the caller decides what it means
            outcomes[number] = error

    threads: list[threading.Thread] = []
    try:
        for number in range(1, len(calls)):
            thread = threading.Thread(target=call, args=(number,), name=name, daemon=True)
            threads.append(thread)
            try:
                start_thread(thread)
            except ThreadLimit:
                call(number)
        if calls:
            call(0)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    except BaseException:  # an interrupt: without this, the peers of these calls would be asked by two threads
        end()
        while running := [thread for thread in threads if thread.is_alive()]:
            end()
            running[0].join(_END_S)
        raise
    return outcomes
