"""Loads the fixtures; they live in ``tests/fixtures``, one file for each thing that they start."""

import logging
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from zkconsumer.wire.knownbrokers import KNOWN_BROKERS

# Limits of time would fail examples that a busy machine made slow; pytest's timeout ends what hangs.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A shell without job control starts what runs in the background with SIGINT ignored, and children inherit that: then
# tests that send SIGINT, to this process or to a command, would wait until their timeout.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.fixtures.sandbox",
    "tests.fixtures.zookeeper",  # which the next one imports
    "tests.fixtures.brokers",
    "tests.fixtures.consumers",
    "tests.fixtures.disks",
    "tests.fixtures.groupnodes",
    "tests.fixtures.offsetwrites",  # which the next one imports
    "tests.fixtures.migrations",
    "tests.fixtures.migrationsinmemory",
    "tests.fixtures.signals",
]

_SET_BY_THE_COMMAND = ("", "zkconsumer.events", "zkconsumer.kazoo")


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Restores the levels that ``zkconsumer`` sets, in whichever test it is called."""
    former = {name: logging.getLogger(name).level for name in _SET_BY_THE_COMMAND}
    yield
    for name, level in former.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def unknown_brokers() -> None:
    """Forgets what brokers have reported: the server of a test may get the port that another test's had just before."""
    KNOWN_BROKERS.__init__()  # type: ignore[misc]
