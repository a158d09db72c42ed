"""Tests in this directory need Chromium or Prometheus, and are skipped where they are missing."""

import pytest

from tests.fixtures.browser import PageLog, chromium
from tests.fixtures.programs import require_for_web


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/web/" in item.path.as_posix():
            item.add_marker(pytest.mark.web)


@pytest.fixture(scope="session")
def chrome(tmp_path_factory):
    require_for_web("chromium", "chromedriver", package="chromium chromium-driver")
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def browser(chrome):
    """A browser with an empty page; at the end, no error was logged and no other site was asked for anything."""
    chrome.get("about:blank")
    log = PageLog(chrome).collect()
    log.console.clear()
    log.requests.clear()
    yield chrome
    log.collect()
    assert log.console == []
    urls = [url for url in log.requests if url != "about:blank"]
    assert {"/".join(url.split("/")[:3]) for url in urls} == {"/".join(urls[0].split("/")[:3])}, "one server alone"


@pytest.fixture
def group(group_nodes):
    """A group made of znodes."""
    return group_nodes
