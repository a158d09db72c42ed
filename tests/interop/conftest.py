"""Fixtures of these tests. Here and not in the root's plugins, since no other tests need a JVM consumer."""

import pytest

from tests.fixtures.jvm import (
    client_jvm,
    feed,
    group,
    jvm,
    jvm_of,
    jvm_tool,
    make_jvm,
    newer_command,
    newer_tool,
    newest_command,
    old_jvm,
    private_jvm,
)

__all__ = [
    "client_jvm",
    "feed",
    "group",
    "jvm",
    "jvm_of",
    "jvm_tool",
    "make_jvm",
    "newer_command",
    "newer_tool",
    "newest_command",
    "old_jvm",
    "private_jvm",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this directory needs the JVM consumer, and time: on a quiet machine some need half a minute."""
    for item in items:
        if "tests/interop/" in item.path.as_posix():
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
