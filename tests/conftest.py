"""Loads the fixtures; they live in one ``fix_*.py`` file for each thing that they start."""

from hypothesis import settings

# A deadline would fail examples that a busy machine made slow; pytest's timeout ends what hangs.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

pytest_plugins = [
    "tests.fix_sandbox",
    "tests.fix_brokers",
    "tests.fix_consumers",
    "tests.fix_signals",
    "tests.fix_zookeeper",
]
