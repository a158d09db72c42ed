"""Waiting for what happens on another thread or in another process."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return when the condition holds; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds} s"
        time.sleep(0.01)
