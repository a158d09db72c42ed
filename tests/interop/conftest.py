"""Fixtures of these tests. Here and not in the root's plugins, since nobody else needs a JVM consumer."""

import pytest

from tests.fix_jvm import feed, group, jvm, make_jvm, old_jvm, private_jvm

__all__ = ["feed", "group", "jvm", "make_jvm", "old_jvm", "private_jvm"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this directory needs the JVM consumer."""
    for item in items:
        if "tests/interop/" in item.path.as_posix():
            item.add_marker(pytest.mark.interop)
