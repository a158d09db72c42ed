"""All tests in this directory run against real brokers of every known release."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/brokers/" in item.path.as_posix():
            item.add_marker(pytest.mark.brokers)
            item.add_marker(pytest.mark.timeout(600))  # the first test of a release starts its servers
