"""When a progress bar is shown."""

import io
import threading

import pytest

from tests.fixtures.waiting import eventually
from zkconsumer.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")


def threads_of_bars():
    """Only these: threads that earlier tests have started may end at any time."""
    return [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_bar_shows_what_is_done():
    terminal = Terminal()
    with progress("writing \x1b[2J", output=terminal, delay_s=0) as advance:
        advance(500, 1200)
        eventually(lambda: "500/1200" in terminal.getvalue())
    assert "writing \\x1b[2J" in terminal.getvalue()


def test_one_long_request_is_shown():
    terminal = Terminal()
    with progress("reading", output=terminal, delay_s=0):
        eventually(lambda: "reading" in terminal.getvalue())


def test_what_ends_soon_shows_nothing():
    terminal = Terminal()
    with progress("writing", output=terminal, delay_s=3600) as advance:
        advance(1, 2)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal():
    output = io.StringIO()
    with progress("writing", output=output, delay_s=0) as advance:
        advance(1, 2)
        assert not threads_of_bars()
    assert output.getvalue() == ""


def test_the_bar_is_removed_after_a_failure():
    terminal = Terminal()

    def fail():
        with progress("writing", output=terminal, delay_s=0):
            eventually(lambda: "writing" in terminal.getvalue())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not threads_of_bars()
