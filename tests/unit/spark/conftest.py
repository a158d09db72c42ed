"""Shared fixtures of the unit tests of the Spark source."""

from collections.abc import Iterator

import pytest

from tests.fixtures.stubbroker import StubBroker, running_stub_broker
from zkconsumer.spark import logends


@pytest.fixture(autouse=True)
def denied_topics_are_soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logends, "DENIED_S", 0.2)


@pytest.fixture
def stub_broker() -> Iterator[StubBroker]:
    with running_stub_broker() as stub:
        yield stub
