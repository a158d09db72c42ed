"""ControlThread: the one thread on which a member does everything that changes its membership, one thing at a time.

It knows requests, timers and a signal, but nothing about groups.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext

from zkconsumer.errors import ConsumerClosed
from zkconsumer.zookeeper.watches import RebalanceSignal

_log = logging.getLogger(__name__)

Action = Callable[[], None]


class ControlThread:
    """Runs requests of other threads, timed actions, and what the signal asks for; never two at once.

    Args:
        name: of the thread.
        signal: wakes the thread; its flag means :meth:`react`.
        react: called when the flag is raised.
        finish: called once at the end, on this thread; not after a failure.
        on_failure: called if anything but a request raises; the thread has ended then.
    """

    def __init__(
        self,
        name: str,
        signal: RebalanceSignal,
        react: Action,
        finish: Action,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.closing = threading.Event()
        self._signal = signal
        self._react = react
        self._finish = finish
        self._on_failure = on_failure
        self._requests: queue.SimpleQueue[tuple[Action, Future[None]]] = queue.SimpleQueue()
        self._due: dict[Action, float] = {}
        self._ended = False
        self._calling_out = False
        self._baton = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def is_current(self) -> bool:
        """True if the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def do(self, request: Action) -> None:
        """Run a request on this thread and wait for it; called on this thread itself (by a listener) it runs at once.

        Raises:
            ConsumerClosed: the thread ends, or has not begun.
            Exception: what the request raised.
        """
        if self.is_current():
            with self._baton if self._calling_out else nullcontext():
                request()
            return
        if self.closing.is_set() or not self._thread.is_alive():
            raise ConsumerClosed("the consumer has not joined its group or has left it")
        answer: Future[None] = Future()
        self._requests.put((request, answer))
        self._signal.wake()
        if self._ended:  # it ended between the question above and the put: nobody else answers any more
            self._refuse_requests()
        self._stand_in()
        answer.result()

    @contextmanager
    def calling_out(self) -> Iterator[None]:
        """Around calls of user code on this thread, during which whoever asks for something does it in its place.

        Without that: a listener asks the application's worker to commit and waits for it; the worker's commit is posted
        to this thread, which runs the listener; both wait for ever. The baton says who may act: this thread always,
        except while it is in user code.
        """
        if self._calling_out or not self.is_current():
            yield  # a request made by user code, or by a stand-in: it keeps the baton that it was made with
            return
        self._calling_out = True
        self._baton.release()
        try:
            yield
        finally:
            self._baton.acquire()
            self._calling_out = False

    def as_callout(self, call: Action | None) -> Action | None:
        """The same call, made in :meth:`calling_out`."""
        if call is None:
            return None

        def called_out() -> None:
            with self.calling_out():
                call()

        return called_out

    def _stand_in(self) -> None:
        while self._calling_out and not self._requests.empty() and self._baton.acquire(blocking=False):
            try:
                self._serve_requests()
            finally:
                self._baton.release()

    def call_after(self, seconds: float, action: Action) -> None:
        """Call ``action`` on this thread in ``seconds``; replaces an earlier time for it. Only from this thread."""
        self._due[action] = time.monotonic() + seconds

    def close(self) -> None:
        """End the thread and wait for it; harmless when repeated, and on this thread it does not wait."""
        self.closing.set()
        self._signal.close()
        if self._thread.is_alive() and not self.is_current():
            self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait inside a reaction, while requests and timed actions go on; a raised flag or the end cuts it short."""
        deadline = time.monotonic() + seconds
        self.serve()  # what was asked for during a wait that was for something else
        while not self.closing.is_set() and not self._signal.raised:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            due = self._seconds_to_next_action()
            self._signal.wait(left if due is None else min(left, due))
            self.serve()

    def serve(self) -> None:
        """Run what others asked for and what is due; to be called by reactions that wait."""
        self._serve_requests()
        self._do_due_actions()

    def _serve_requests(self) -> None:
        while True:
            try:
                request, answer = self._requests.get_nowait()
            except queue.Empty:
                return
            try:
                request()
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the thread that asked
                answer.set_exception(error)
            except BaseException as error:
                answer.set_exception(error)
                raise
            else:
                answer.set_result(None)

    def _run(self) -> None:
        self._baton.acquire()
        try:
            while not self.closing.is_set():
                self._signal.wait(self._seconds_to_next_action())
                self.serve()
                if self._signal.take():
                    self._react()
            self._finish()
        except BaseException as error:
            _log.exception("thread %s died", self._thread.name)
            self._on_failure(error)
            raise
        finally:
            self.closing.set()
            self._ended = True
            self._refuse_requests()

    def _seconds_to_next_action(self) -> float | None:
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    def _do_due_actions(self) -> None:
        now = time.monotonic()
        for action in [action for action, due in self._due.items() if due <= now]:
            del self._due[action]
            action()

    def _refuse_requests(self) -> None:
        while True:
            try:
                _, answer = self._requests.get_nowait()
            except queue.Empty:
                return
            answer.set_exception(ConsumerClosed("the consumer has left its group"))
