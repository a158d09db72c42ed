"""Trials on real servers: one pair for all of them."""

from collections.abc import Iterator

import pytest

from tests.chaos.servers import Servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this directory hurts real processes."""
    for item in items:
        if "tests/chaos/" in item.path.as_posix():
            item.add_marker(pytest.mark.chaos)
            item.add_marker(pytest.mark.timeout(1200))  # a trial that the machine disturbed is run again


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A ZooKeeper, a broker and JVMs for trials."""
    made = Servers(tmp_path_factory.mktemp("chaos"))
    yield made
    made.close()
