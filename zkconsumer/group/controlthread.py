"""ControlThread: the one thread on which a member does everything that changes its membership, one action at a time.

It knows requests, timers and a signal, but not groups.

**The protocol.** Exactly one thread at a time may act: the one that holds the *baton*. The control thread holds it from
its start to its end, except while it is in user code (a rebalance listener, ``before_commit``): user code may wait for
another thread, and that thread may wait for a request of its own. As a sequence of events:

1. A worker posts a request; it is queued, and the worker waits for its answer.
2. The control thread enters user code and puts the baton down. Requests are queued, so it starts a *stand-in*, a thread
   that takes the baton and runs them. A request that is posted from now on, while the baton lies free, starts one too.
   So it does not matter whether a request was posted before user code was entered or after it.
3. A request that runs on a stand-in may enter user code as well (``before_commit``). The stand-in puts the baton down
   in the same way, and another stand-in serves what is queued meanwhile.
4. User code returns, on any of these threads. The thread waits for the baton, which comes to it before any further
   request is run: a thread that acts does only bounded I/O. A thread whose user code has returned while the control
   thread holds the baton gets it as soon as the control thread serves requests.
5. The control thread continues. A request that was in user code meanwhile may find other circumstances when it
   continues, so it must check them again (``OffsetCommitter`` does).

No thread waits for one that is in user code, except :meth:`ControlThread.close`, and that only for a limited time.
Timed actions belong to the control thread; they are postponed while it is in user code.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zkconsumer.errors import ConsumerClosed, ThreadLimit
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.usercode import user_code
from zkconsumer.process.threads import start_thread
from zkconsumer.process.wakeup import Latch, WakeUp

_log = logging.getLogger(__name__)

Action = Callable[[], None]


class _Answer:
    """What became of a request; one thread waits for it. Not a ``Future``, for the reason that WakeUp gives."""

    def __init__(self) -> None:
        self._given = WakeUp()
        self._error: BaseException | None = None
        self.done = False

    def give(self, error: BaseException | None = None) -> None:
        """Wake the thread that waits."""
        self._error, self.done = error, True
        self._given.set()

    def take(self) -> None:
        """Wait for the end of the request, and raise what it raised."""
        self._given.wait()
        if self._error is not None:
            raise self._error


class ControlThread:
    """Runs requests of other threads, timed actions, and reactions to the signal; never two at once.

    Args:
        name: name of the thread.
        signal: wakes the thread; its flag means :meth:`react`.
        react: called when the flag is raised.
        finish: called once at the end, on this thread; not after a failure.
        abandon: called instead of ``finish``, on another thread, if this one does not return from user code.
        on_failure: called if anything but a request raises; the thread ends then.
        patience_s: how long, in seconds, :meth:`close` waits for user code.
        closing: set by :meth:`close`, for code elsewhere that waits for it.
    """

    def __init__(
        self,
        name: str,
        signal: RebalanceSignal,
        *,
        react: Action,
        finish: Action,
        abandon: Action,
        on_failure: Callable[[BaseException], None],
        patience_s: float,
        closing: Latch | None = None,
    ) -> None:
        self.closing = Latch() if closing is None else closing
        self._signal = signal
        self._react = react
        self._finish = finish
        self._abandon = abandon
        self._on_failure = on_failure
        self._patience_s = patience_s
        self._due: dict[Action, float] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # The condition guards the attributes below; it is never held while one of the callbacks above is called.
        # Threads of the user take the lock itself, which is written in C: an interrupt inside a method of the condition
        # could leave it held forever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._requests: deque[tuple[Action, _Answer]] = deque()
        self._holder: threading.Thread | None = self._thread
        self._returning: set[threading.Thread] = set()  # that wait for the baton because their user code has returned
        self._calling_out: set[threading.Thread] = set()
        self._ended = False

    def start(self) -> None:
        """Start the thread; to be called once, unless it raises.

        Raises:
            ThreadLimit: it could not be started.
        """
        start_thread(self._thread)

    def is_current(self) -> bool:
        """True if the caller runs on this thread."""
        return threading.current_thread() is self._thread

    # -- requests of any thread -------------------------------------------------------------------------------------

    def do(self, request: Action) -> None:
        """Run a request and wait for it; called by user code on this thread (a listener) it runs at once.

        Raises:
            ConsumerClosed: the thread is ending, or has not been started.
            Exception: what the request raised.
        """
        if self.is_current():
            with self._acting():
                request()
            return
        answer = _Answer()
        try:
            with self._lock:
                if self.closing.is_set() or self._ended or not self._thread.is_alive():
                    raise ConsumerClosed("the consumer has not joined its group or has left it")
                self._requests.append((request, answer))
            self._signal.wake()
            self._start_stand_in()
            answer.take()
        except BaseException:
            if not answer.done:  # interrupted: no thread waits for the answer any more
                self._cancel(answer)
            raise

    def _cancel(self, answer: _Answer) -> None:
        with self._lock:
            self._requests = deque(request for request in self._requests if request[1] is not answer)

    # -- user code --------------------------------------------------------------------------------------------------

    @contextmanager
    def calling_out(self) -> Iterator[None]:
        """Around calls of user code by the thread that acts: meanwhile others may act, see the module's protocol.

        Raises:
            ConsumerClosed: when user code has returned, if the consumer was closed meanwhile without waiting for it.
        """
        me = threading.current_thread()
        if self._holder is not me:
            yield  # not on behalf of this object
            return
        with self._lock:
            is_nested = me in self._calling_out  # a listener commits, and before_commit is called
            self._calling_out.add(me)
            self._changed.notify_all()
        self._put_baton_down()
        try:
            yield
        finally:
            self._take_baton(me)
            with self._lock:
                if not is_nested:
                    self._calling_out.discard(me)
                self._changed.notify_all()
                ended = self._ended
            if ended:
                raise ConsumerClosed("the consumer was closed while this thread was in user code")

    def as_callout(self, call: Action | None) -> Action | None:
        """A function that makes the same call inside :meth:`calling_out`; it raises :class:`.UserCodeFailed`."""
        if call is None:
            return None

        def called_out() -> None:
            with self.calling_out(), user_code():
                call()

        return called_out

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Hold the baton; called by user code on this thread, which has put it down."""
        me = threading.current_thread()
        if self._holder is me:
            yield
            return
        self._take_baton(me)
        try:
            if self._ended:
                raise ConsumerClosed("the consumer has left its group")
            yield
        finally:
            self._put_baton_down()

    def _put_baton_down(self) -> None:
        with self._lock:
            self._holder = None
            self._changed.notify_all()
        self._start_stand_in()

    def _take_baton(self, me: threading.Thread) -> None:
        """Wait for the baton, before all requests that are not running yet."""
        self._signal.wake()  # the control thread may wait for something else, with the baton in its hand
        try:
            with self._lock:
                self._returning.add(me)
                # An interrupt may have left it with this thread.
                self._changed.wait_for(lambda: self._holder in (None, me))
                self._holder = me
                self._returning.discard(me)
        except BaseException:
            # A thread of the user that closes was interrupted: the others must not wait for it, nor leave requests to
            # it.
            with self._lock:
                self._returning.discard(me)
                if self._holder is me:
                    self._holder = None
                self._changed.notify_all()
            self._start_stand_in()
            raise

    def _give_way(self) -> None:
        """Let threads whose user code has returned continue first; on the control thread."""
        with self._lock:
            if self._returning:
                self._holder = None
                me = threading.current_thread()
                self._returning.add(me)  # no stand-in may come in between
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._holder is None and self._returning == {me})
                self._returning.discard(me)
                self._holder = me

    # -- stand-ins --------------------------------------------------------------------------------------------------

    def _start_stand_in(self) -> None:
        """Start a stand-in if the baton lies free and requests wait; one that comes too late ends at once."""
        if self._holder is not None or not self._requests:
            return
        try:
            start_thread(threading.Thread(target=self._stand_in, name=f"{self._thread.name}-stand-in", daemon=True))
        except ThreadLimit as error:  # requests wait until user code returns
            _log.error("requests are not served during user code, and wait for its end: %s", error)

    def _stand_in(self) -> None:
        with self._lock:
            if self._holder is not None or self._returning:
                return  # the one that holds it, or gets it next, serves the requests or starts another stand-in
            self._holder = threading.current_thread()
        try:
            self._serve_requests()
        finally:
            self._put_baton_down()

    # -- on this thread ---------------------------------------------------------------------------------------------

    def call_after(self, seconds: float, action: Action) -> None:
        """Call ``action`` on this thread in ``seconds``; replaces an earlier time for it. Only while acting."""
        self._due[action] = time.monotonic() + seconds

    def wait(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Wait inside a reaction, while requests are served and timed actions run.

        Args:
            seconds: longest wait; a raised flag, or the end, ends it earlier.
            until: called at each wake-up of the signal; True ends the wait.
        """
        deadline = time.monotonic() + seconds
        self.serve()  # requests that were posted during a wait for something else
        while not (self.closing.is_set() or self._signal.raised or until()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            due = self._seconds_to_next_action()
            self._signal.wait(left if due is None else min(left, due))
            self.serve()

    def serve(self) -> None:
        """Run requests of other threads and due actions; to be called by reactions that wait."""
        self._give_way()
        self._serve_requests()
        self._do_due_actions()

    def _serve_requests(self) -> None:
        while True:
            with self._lock:
                if not self._requests:
                    return
                request, answer = self._requests.popleft()
            try:
                request()
            except Exception as error:  # noqa: BLE001 - the requesting thread gets it, whatever it is
                answer.give(error)
            except BaseException as error:
                answer.give(error)
                raise
            else:
                answer.give()

    def _run(self) -> None:
        try:
            while not self.closing.is_set():
                self._signal.wait(self._seconds_to_next_action())
                self.serve()
                if self._signal.take() and not self.closing.is_set():
                    self._react()
            if not self._ended:
                self._finish()
        except BaseException as error:
            if self._ended:
                return  # closed while this thread was in user code; abandon() has ended the membership
            _log.exception("thread %s failed; the consumer leaves its group and its streams raise", self._thread.name)
            self._on_failure(error)
            raise
        finally:
            self._end()

    def _end(self) -> None:
        """Refuse the requests that are queued and all later ones."""
        with self._lock:
            self.closing.set()
            self._ended = True
            refused, self._requests = self._requests, deque()
            if self._holder is threading.current_thread():
                self._holder = None  # for stand-ins whose user code returns later
            self._changed.notify_all()
        for _, answer in refused:
            answer.give(ConsumerClosed("the consumer has left its group"))

    def _seconds_to_next_action(self) -> float | None:
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    def _do_due_actions(self) -> None:
        now = time.monotonic()
        for action in [action for action, due in self._due.items() if due <= now]:
            self._due.pop(action, None)
            action()

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the thread and wait for it. Idempotent.

        It does not wait where that could take forever: called by user code on this thread or on a stand-in it only
        asks for the end, which comes when user code has returned. And user code of the control thread that does not
        return, perhaps because it waits for the caller, gets ``patience_s`` seconds; after them ``abandon`` is called
        in its place.
        """
        self.closing.set()
        self._signal.close()
        me = threading.current_thread()
        if me is self._thread or me in self._calling_out or not self._thread.is_alive():
            return
        if not self._await_end():
            _log.warning(
                "%s has been in user code (a rebalance listener or before_commit) for more than %.0f s; leaving the "
                "group without its last commit",
                self._thread.name,
                self._patience_s,
            )
            self._end_in_its_place(me)

    def _await_end(self) -> bool:
        """Wait for the end; False if the control thread has been in user code for the whole of ``patience_s``."""
        with self._lock:
            while not self._ended:
                self._changed.wait_for(lambda: self._ended or self._thread in self._calling_out)
                if not self._changed.wait_for(
                    lambda: self._ended or self._thread not in self._calling_out, self._patience_s
                ):
                    return False
        if self._thread not in self._calling_out:
            self._thread.join()
        return True

    def _end_in_its_place(self, me: threading.Thread) -> None:
        self._take_baton(me)
        try:
            if not self._ended:
                self._abandon()
            self._end()
        except Exception:
            self._end()
            raise
        finally:
            if self._holder is me:  # interrupted: another close repeats it, or the thread finishes once it can
                self._put_baton_down()
