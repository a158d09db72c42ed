"""All tests in this directory need a Kerberos realm, and are skipped if none can be created."""

import pytest

from tests.fixtures.kerberos import alice, realm, ticket, ticket_cache

__all__ = ["alice", "realm", "ticket", "ticket_cache"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/kerberos/" in item.path.as_posix():
            item.add_marker(pytest.mark.kerberos)
