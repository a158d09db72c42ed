"""Tests of minutes that leave the order of events to chance."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this directory takes minutes."""
    for item in items:
        if "tests/stress/" in item.path.as_posix():
            item.add_marker(pytest.mark.stress)
