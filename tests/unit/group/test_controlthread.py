"""Requests, user code and the end: which thread acts when. Each wait is bounded, so that a deadlock fails."""

import signal
import sys
import threading
from concurrent.futures import Future

import pytest

from tests.fixtures.threads import threads_refused
from zkconsumer.errors import ConsumerClosed, ThreadLimit
from zkconsumer.group.controlthread import ControlThread
from zkconsumer.group.rebalancesignal import RebalanceSignal

BOUND_S = 30


class Control:
    """A control thread whose reaction is defined by the test, called once each time the flag is raised."""

    def __init__(self, patience_s: float = BOUND_S) -> None:
        self.signal = RebalanceSignal()
        self.calls: list[str] = []
        self.failures: list[BaseException] = []
        self._reactions: list = []
        self.thread = ControlThread(
            "control",
            self.signal,
            react=self._react,
            finish=lambda: self.calls.append("finish"),
            abandon=lambda: self.calls.append("abandon"),
            on_failure=self.failures.append,
            patience_s=patience_s,
        )
        self.thread.start()

    def _react(self) -> None:
        reaction, done = self._reactions.pop(0)
        try:
            done.set_result(reaction())
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            done.set_exception(error)

    def react(self, reaction) -> Future:
        done: Future = Future()
        self._reactions.append((reaction, done))
        self.signal.raise_flag()
        return done

    def posted(self) -> None:
        """On the control thread: wait until a request was posted."""
        assert self.signal.wait(BOUND_S)


@pytest.fixture
def control():
    made: list[Control] = []

    def make(**values) -> Control:
        made.append(Control(**values))
        return made[-1]

    yield make
    for one in made:
        one.thread.close()
        assert not one.failures


def start(target) -> threading.Thread:
    worker = threading.Thread(target=target, daemon=True)
    worker.start()
    return worker


def ends(worker: threading.Thread) -> bool:
    worker.join(BOUND_S)
    return not worker.is_alive()


def test_user_code_may_wait_for_a_request_posted_before_it(control):
    one = control()

    def reaction():
        worker = start(lambda: one.thread.do(lambda: one.calls.append("request")))
        one.posted()
        with one.thread.calling_out():
            assert ends(worker)
        return list(one.calls)

    assert one.react(reaction).result(2 * BOUND_S) == ["request"]


def test_user_code_may_wait_for_a_request_posted_after_it(control):
    one = control()

    def reaction():
        with one.thread.calling_out():
            assert ends(start(lambda: one.thread.do(lambda: one.calls.append("request"))))
        return list(one.calls)

    assert one.react(reaction).result(2 * BOUND_S) == ["request"]


def test_a_request_posted_while_user_code_acts_is_served(control):
    """The baton is taken at that moment: the request must not be forgotten when it is put down."""
    one = control()
    workers = []

    def in_user_code():
        workers.append(start(lambda: one.thread.do(lambda: one.calls.append("worker"))))
        one.posted()
        one.calls.append("own")

    def reaction():
        with one.thread.calling_out():
            one.thread.do(in_user_code)
            assert ends(workers[0])
        return list(one.calls)

    assert one.react(reaction).result(2 * BOUND_S) == ["own", "worker"]


def test_a_request_in_user_code_may_wait_for_another_request(control):
    one = control()

    def outer():
        with one.thread.calling_out():
            assert ends(start(lambda: one.thread.do(lambda: one.calls.append("inner"))))
        one.calls.append("outer")

    def reaction():
        with one.thread.calling_out():
            assert ends(start(lambda: one.thread.do(outer)))
        return list(one.calls)

    assert one.react(reaction).result(3 * BOUND_S) == ["inner", "outer"]


def test_a_reaction_does_not_wait_for_a_requests_user_code(control):
    one = control()
    entered, leave = threading.Event(), threading.Event()
    workers = []

    def slow():
        with one.thread.calling_out():
            entered.set()
            assert leave.wait(BOUND_S)
        one.calls.append("slow")

    def reaction():
        with one.thread.calling_out():
            workers.append(start(lambda: one.thread.do(slow)))
            assert entered.wait(BOUND_S)

    one.react(reaction).result(BOUND_S)
    leave.set()  # the control thread is idle, and holds the baton
    assert ends(workers[0])
    assert one.calls == ["slow"]


def test_two_threads_never_act_at_once(control):
    one = control()
    acting, most = [], []

    def request():
        acting.append(1)
        most.append(len(acting))
        acting.pop()
        with one.thread.calling_out():
            pass
        acting.append(1)
        most.append(len(acting))
        acting.pop()

    def work():
        for _ in range(50):
            one.thread.do(request)

    def reaction():
        with one.thread.calling_out():
            assert all([ends(worker) for worker in [start(work) for _ in range(4)]])

    one.react(reaction).result(3 * BOUND_S)
    assert len(most) == 400
    assert max(most) == 1


def test_close_in_user_code_of_a_request_does_not_wait(control):
    one = control()

    def request():
        with one.thread.calling_out():
            one.thread.close()
        one.calls.append("request")

    def reaction():
        with one.thread.calling_out():
            assert ends(start(lambda: one.thread.do(request)))

    one.react(reaction).result(2 * BOUND_S)
    one.thread.close()
    assert one.calls == ["request", "finish"]


def test_close_by_a_thread_that_user_code_waits_for_returns(control):
    one = control(patience_s=0.05)

    def reaction():
        with one.thread.calling_out():
            assert ends(start(one.thread.close))

    with pytest.raises(ConsumerClosed, match="while this thread was in user code"):
        one.react(reaction).result(2 * BOUND_S)
    one.thread.close()
    assert one.calls == ["abandon"]


def test_close_does_not_wait_for_user_code_that_has_made_a_request(control):
    """The request calls user code, too, as a commit calls before_commit; the listener hangs after it."""
    one = control(patience_s=0.05)

    def request():
        with one.thread.calling_out():
            one.calls.append("request")

    def reaction():
        with one.thread.calling_out():
            one.thread.do(request)
            assert ends(start(one.thread.close))

    with pytest.raises(ConsumerClosed, match="while this thread was in user code"):
        one.react(reaction).result(2 * BOUND_S)
    one.thread.close()
    assert one.calls == ["request", "abandon"]


def test_close_waits_for_user_code_that_returns_in_time(control):
    one = control()
    entered, closing = threading.Event(), []

    def reaction():
        with one.thread.calling_out():
            closing.append(start(one.thread.close))
            assert one.thread.closing.wait(BOUND_S)
        entered.set()

    one.react(reaction).result(2 * BOUND_S)
    assert ends(closing[0])
    assert one.calls == ["finish"]


def test_requests_after_the_end_are_refused(control):
    one = control()
    one.thread.close()
    with pytest.raises(ConsumerClosed):
        one.thread.do(lambda: one.calls.append("request"))
    assert one.calls == ["finish"]


def test_what_a_request_raises_reaches_the_thread_that_asked(control):
    one = control()
    with pytest.raises(ZeroDivisionError):
        one.thread.do(lambda: 1 // 0)


@pytest.fixture
def interrupt_main_thread():
    """Interrupt the main thread once, wherever it waits."""
    left = [KeyboardInterrupt()]

    def raise_once(*_):
        if left:
            raise left.pop()

    def interrupt(elsewhere: threading.Event) -> None:
        # Repeated until it was handled: a signal that arrives right before the wait for a lock does not end the wait.
        while left:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            elsewhere.wait(0.01)

    before = signal.signal(signal.SIGUSR1, raise_once)
    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def test_a_request_whose_caller_was_interrupted_is_not_run(control, interrupt_main_thread):
    one = control()
    entered, leave = threading.Event(), threading.Event()

    def reaction():
        entered.set()
        one.posted()
        interrupt_main_thread(leave)
        assert leave.wait(BOUND_S)

    done = one.react(reaction)
    assert entered.wait(BOUND_S)
    with pytest.raises(KeyboardInterrupt):
        one.thread.do(lambda: one.calls.append("request"))
    leave.set()
    done.result(BOUND_S)
    one.thread.do(lambda: one.calls.append("next"))
    assert one.calls == ["next"]


def test_an_interrupted_close_can_be_repeated(control, interrupt_main_thread):
    """1. It waits for a request that a stand-in runs, in the place of user code; 2. it is interrupted."""
    one = control(patience_s=0.05)
    entered, slow, leave = threading.Event(), threading.Event(), threading.Event()

    def reaction():
        with one.thread.calling_out():
            entered.set()
            leave.wait(BOUND_S)
        one.thread.wait(0)

    done = one.react(reaction)
    assert entered.wait(BOUND_S)
    running = threading.Event()
    worker = start(lambda: one.thread.do(lambda: (running.set(), slow.wait(BOUND_S))))
    assert running.wait(BOUND_S)
    waits, stop = threading.Event(), threading.Event()

    def interrupt_when_it_waits():
        while threading.main_thread() not in one.thread._returning:
            waits.wait(0.01)
        interrupt_main_thread(stop)

    interrupter = start(interrupt_when_it_waits)
    with pytest.raises(KeyboardInterrupt):
        one.thread.close()
    assert ends(interrupter)
    slow.set()
    assert ends(worker)
    leave.set()
    done.result(BOUND_S)
    one.thread.close()
    assert one.calls == ["finish"]


@pytest.mark.parametrize("call", ["do", "close"])
def test_a_thread_of_the_user_enters_no_condition(control, call):
    """An interrupt inside a method of a condition, which is written in Python, leaves its lock taken for ever."""
    one, entered = control(), []

    def trace(frame, event, argument):
        if frame.f_code.co_filename == threading.__file__ and frame.f_code.co_name in ("__enter__", "__exit__"):
            entered.append(frame.f_code.co_qualname)

    sys.settrace(trace)
    try:
        if call == "do":
            one.thread.do(lambda: None)
        else:
            one.thread.close()
    finally:
        sys.settrace(None)
    assert entered == []


def test_a_wait_serves_requests_and_timers_until_its_condition_holds(control):
    one = control()

    def reaction():
        one.thread.call_after(0, lambda: one.calls.append("timer"))
        worker = start(lambda: one.thread.do(lambda: one.calls.append("request")))
        one.thread.wait(BOUND_S, until=lambda: len(one.calls) == 2)
        return ends(worker)

    assert one.react(reaction).result(2 * BOUND_S)
    assert sorted(one.calls) == ["request", "timer"]


def test_a_thread_that_could_not_start_can_be_started_again():
    signal, calls = RebalanceSignal(), []
    thread = ControlThread(
        "control",
        signal,
        react=lambda: None,
        finish=lambda: calls.append("finish"),
        abandon=lambda: None,
        on_failure=calls.append,
        patience_s=BOUND_S,
    )
    with threads_refused(lambda name: name == "control"), pytest.raises(ThreadLimit):
        thread.start()
    thread.start()
    thread.do(lambda: calls.append("request"))
    thread.close()
    assert calls == ["request", "finish"]


def test_a_close_that_is_interrupted_while_it_abandons_the_membership_can_be_repeated(control, monkeypatch):
    one = control(patience_s=0.05)
    entered, hang = threading.Event(), threading.Event()

    def reaction():
        with one.thread.calling_out():
            entered.set()
            hang.wait(BOUND_S)

    def abandon():
        one.calls.append("abandon")
        if len(one.calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(one.thread, "_abandon", abandon)
    ended = one.react(reaction)
    assert entered.wait(BOUND_S)
    with pytest.raises(KeyboardInterrupt):
        one.thread.close()
    closing = start(one.thread.close)
    assert ends(closing)
    hang.set()
    with pytest.raises(ConsumerClosed):
        ended.result(BOUND_S)
    assert one.calls == ["abandon", "abandon"]
