"""Shared fixtures of the unit tests of the Spark source."""

import pytest

from zkconsumer.ranges import logends


@pytest.fixture(autouse=True)
def denied_topics_are_soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logends, "DENIED_S", 0.2)
