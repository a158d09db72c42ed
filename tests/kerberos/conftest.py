"""Everything below this directory needs a Kerberos realm, and is skipped where none can be made."""

import pytest

from tests.fix_kerberos import alice, nobody, realm, ticket

__all__ = ["alice", "nobody", "realm", "ticket"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/kerberos/" in item.path.as_posix():
            item.add_marker(pytest.mark.kerberos)
