"""Makes the Spark fixtures available to the tests in this directory only."""

import pytest

from tests.fixtures.jvm import jvm, make_jvm, private_jvm
from tests.fixtures.spark import group, protocol, spark, start_query
from tests.fixtures.sparkjob import make_job

__all__ = ["group", "jvm", "make_job", "make_jvm", "private_jvm", "protocol", "spark", "start_query"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in this directory: they need Spark, and time for its start."""
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
