"""Processes and their guard, tested with small real programs."""

import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.process import JvmProcess

PARENT = """
import sys, threading, time
from pathlib import Path
from zkconsumer.sandbox.process import JvmProcess

process = JvmProcess("sleeper", ["/bin/sleep", "300"], Path(sys.argv[1]))
starter = threading.Thread(target=process.start)
starter.start()
starter.join()
print(process.pid, flush=True)
time.sleep(300)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[[str], JvmProcess]]:
    made: list[JvmProcess] = []

    def make(script: str) -> JvmProcess:
        made.append(JvmProcess("script", ["/bin/sh", "-c", script], tmp_path / "script.log"))
        return made[-1]

    yield make
    for process in made:
        process.kill()


def ended(pid: int) -> bool:
    """True if the process has ended, possibly waiting to be reaped by its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def await_end(pid: int, timeout_s: float) -> None:
    start = time.monotonic()
    while not ended(pid):
        assert time.monotonic() - start < timeout_s, f"process {pid} is still running"
        time.sleep(0.01)


def test_end_before_ready_quotes_the_informative_line_and_the_log(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("echo INFO starting; echo java.net.BindException: in use; echo '\tat a.b(C.java)'; exit 3")
    process.start()
    with pytest.raises(SandboxError) as raised:
        process.wait_until(lambda: False, "it served", 20)
    assert str(raised.value) == (
        "script ended with exit code 3 before it served; its log has: java.net.BindException: in use; "
        f"see {process.log}"
    )


def test_a_full_disk_is_named_when_a_server_fails(shell: Callable[[str], JvmProcess], monkeypatch) -> None:
    process = shell("exit 1")
    process.start()
    monkeypatch.setattr("shutil.disk_usage", lambda _: Namespace(total=1, used=1, free=0))
    with pytest.raises(SandboxError, match=f"no space is left in {process.log.parent}; set TMPDIR"):
        process.wait_until(lambda: False, "it served", 20)


def test_a_process_that_is_never_ready_is_reported(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("echo hello; exec sleep 60")
    process.start()
    process.wait_until(lambda: "hello" in process.log.read_text(), "hello", 20)
    with pytest.raises(SandboxError, match=r"script was not ready \(it served\) within 0\.3 s; its log has: hello"):
        process.wait_until(lambda: False, "it served", 0.3)
    assert process.running


def test_only_the_log_since_the_last_start_is_quoted(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("test -e once && exit 1; echo FATAL old")
    process.log.write_text("ERROR from before\n")
    process.start()
    assert process.run(lambda: None, 20, lambda: None) == 0
    assert "FATAL old" in process.log_summary()
    assert "from before" in process.log.read_text()


def test_exit_code_of_a_signal(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("kill -9 $$")
    process.start()
    assert process.run(lambda: None, 20, lambda: None) == 128 + 9


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    process = JvmProcess("ghost", ["/nowhere/java"], tmp_path / "ghost.log")
    process.start()
    with pytest.raises(SandboxError, match=r"exit code 127 .* cannot execute /nowhere/java: No such file"):
        process.wait_until(lambda: False, "it served", 20)


def test_stop_lets_the_program_clean_up(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("trap 'echo tidy; exit 0' TERM; echo up; while :; do sleep 0.01; done")
    process.start()
    process.wait_until(lambda: "up" in process.log.read_text(), "up", 20)
    process.stop()
    assert not process.running
    assert "tidy" in process.log.read_text()


def test_stop_kills_a_program_that_ignores_the_signal(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("trap '' TERM; echo up; while :; do sleep 0.01; done")
    process.start()
    process.wait_until(lambda: "up" in process.log.read_text(), "up", 20)
    pid = process.pid
    process.stop(timeout_s=0.2)
    assert ended(pid)


def test_stop_of_a_paused_program(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("exec sleep 60")
    process.start()
    process.signal(signal.SIGSTOP)
    start = time.monotonic()
    process.stop(timeout_s=60)
    assert time.monotonic() - start < 30


def test_a_paused_program_has_no_thread_that_runs(tmp_path: Path) -> None:
    counting = "import threading, time\nfor _ in range(8): threading.Thread(target=time.sleep, args=(60,)).start()\n"
    process = JvmProcess("threads", [sys.executable, "-c", f"{counting}print('up', flush=True)"], tmp_path / "log")
    process.start()
    process.wait_until(lambda: "up" in process.log.read_text(), "up", 20)
    process.pause()
    tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
    assert len(tasks) == 9
    assert {task.joinpath("stat").read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}
    process.kill()


def test_stalled_work_is_given_up(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("exec sleep 60")
    process.start()
    with pytest.raises(SandboxError, match=r"script made no progress for 0\.2 s"):
        process.run(lambda: None, 0.2, lambda: "the same")
    assert not process.running


def test_pid_needs_a_running_process(shell: Callable[[str], JvmProcess]) -> None:
    with pytest.raises(SandboxError, match="not running; start"):
        _ = shell("true").pid


def test_child_does_not_outlive_a_parent_killed_by_sigkill(tmp_path: Path) -> None:
    """Started by a thread that has ended long ago: only the parent's end must kill it, not the thread's."""
    command = [sys.executable, "-c", PARENT, str(tmp_path / "sleeper.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not ended(child)
        parent.kill()
    await_end(child, 30)


def test_child_does_not_outlive_its_guard(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("exec sleep 60")
    process.start()
    child = process.pid
    guard = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    assert guard != os.getpid()
    os.kill(guard, signal.SIGKILL)
    await_end(child, 30)


def test_child_outlives_the_thread_that_started_it(shell: Callable[[str], JvmProcess]) -> None:
    process = shell("exec sleep 60")
    starter = threading.Thread(target=process.start)
    starter.start()
    starter.join()
    # Longer than the guard's interval for checking its parent.
    with pytest.raises(SandboxError, match=r"within 0\.6 s"):
        process.wait_until(lambda: False, "anything", 0.6)
    assert process.running


def test_a_process_is_killed_although_its_start_was_interrupted(
    shell: Callable[[str], JvmProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = shell("sleep 300")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Right after the guard has reported the process's id, and before it is read here.
    monkeypatch.setattr("zkconsumer.sandbox.process.int", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        process.start()
    process.kill()
    assert not process.running
