"""Loads the fixtures; they live in one ``fix_*.py`` file for each thing that they start."""

pytest_plugins = ["tests.fix_sandbox", "tests.fix_brokers", "tests.fix_consumers", "tests.fix_zookeeper"]
