"""Shared fixtures of the unit tests of the Spark source."""

import pytest

from zkconsumer.cluster import brokercatalog


@pytest.fixture(autouse=True)
def denied_topics_are_soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.2)
