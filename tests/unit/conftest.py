"""Shared fixtures of the unit tests."""

from collections.abc import Iterator

import pytest

from tests.fixtures.stubbroker import StubBroker, running_stub_broker


@pytest.fixture
def stub_broker() -> Iterator[StubBroker]:
    with running_stub_broker() as stub:
        yield stub
