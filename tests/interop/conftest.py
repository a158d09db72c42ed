"""Fixtures of these tests. Here and not in the root's plugins, since no other tests need a JVM consumer."""

import pytest

from tests.fixtures.jvm import feed, group, jvm, jvm_tool, make_jvm, newer_tool, old_jvm, private_jvm

__all__ = ["feed", "group", "jvm", "jvm_tool", "make_jvm", "newer_tool", "old_jvm", "private_jvm"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this directory needs the JVM consumer."""
    for item in items:
        if "tests/interop/" in item.path.as_posix():
            item.add_marker(pytest.mark.interop)
