"""Signals as processes have them by default, whatever started the tests."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def hangup_by_default() -> Iterator[None]:
    """Processes that the test starts end at SIGHUP unless they handle it; nohup would let them ignore it."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)
