"""Makes the fixtures of Spark known to the tests that start it, and to no others."""

import pytest

from tests.fix_jvm import jvm, make_jvm, private_jvm
from tests.fix_spark import group, spark, start_query
from tests.fix_sparkjob import make_job

__all__ = ["group", "jvm", "make_job", "make_jvm", "private_jvm", "spark", "start_query"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this directory needs Spark, and time for it to start."""
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
