"""What the pictures of ``zkconsumer serve`` in the documentation show; ``make pictures`` renews them.

A real ZooKeeper and Kafka, a topic that is written to all the time, a slow consumer, a second one that joins it, and
groups made of znodes. With ``ZKCONSUMER_PICTURES=DIRECTORY`` the wide pictures are written there, and the scene lasts
so long that the curves and the states can be seen.
"""

import base64
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.consumers import IN_ZOOKEEPER
from tests.fixtures.groupnodes import GroupNodes
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ConsumerClosed
from zkconsumer.zookeeper.rules.znodes import MigratedNode, MigrationMark

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

PICTURES = os.environ.get("ZKCONSUMER_PICTURES")
ALONE_S, TOGETHER_S = (30, 50) if PICTURES else (1, 1)
WIDE, NARROW = 1280, 500  # pixels
LARGEST = 1000  # pixels of height
GROUP, TOPIC, PARTITIONS = "archive", "clicks", 4
GROUPS = ["archive", "billing", "fraud-check", "invoices", "newsletter"]
FLEET = """
[cluster]
zookeeper = "{zookeeper}"
[groups.archive]
wave = 2
owner = "web team"
[groups.billing]
wave = 1
owner = "ann@example.org"
[groups.fraud-check]
wave = 2
owner = "risk team"
[groups.newsletter]
wave = 1
owner = "web team"
"""

TEXTS = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())"
WRAPPED = """
return [...document.querySelectorAll(arguments[0])].filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const boxes = [...range.getClientRects()].filter((one) => one.width);
    return Math.max(...boxes.map((one) => one.top)) >= Math.min(...boxes.map((one) => one.bottom));
}).map((cell) => cell.textContent)
"""
SIZE = "const e = document.documentElement; return [e.clientWidth, e.scrollWidth, document.body.offsetHeight]"
CHART = """
const chart = document.getElementById('chart');
return [chart.querySelectorAll('.scatterlayer .trace').length, chart.querySelectorAll('.shapelayer path').length]
"""


def consume(connect, member, records_per_s, running):
    """Join the group, and read slowly on a thread of its own."""
    config = ConsumerConfig(
        zookeeper_connect=connect,
        group_id=GROUP,
        consumer_id=member,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=500,
        **IN_ZOOKEEPER,
    )
    connector = running.enter_context(ConsumerConnector(config))
    stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]

    def read():
        try:
            for _ in stream:
                time.sleep(1 / records_per_s)
        except ConsumerClosed:
            pass

    threading.Thread(target=read, daemon=True).start()


def produce(servers, over):
    """Write to all partitions, to the later ones more."""
    while not over.wait(0.5):
        records = [{"value": b"v", "partition": p} for p in range(PARTITIONS) for _ in range(4 + 3 * p)]
        produce_records(servers, TOPIC, records)


def add_other_groups(box, zookeeper):
    """Groups in other states: without members, one that does not commit, one that was migrated, one past its log."""
    topics = Topics(box.bootstrap_servers)
    for topic, count in (("payments", 120), ("orders", 80), ("mails", 5)):
        topics.create(topic, 2)
        records = [{"value": b"v", "partition": number % 2} for number in range(count)]
        produce_records(box.bootstrap_servers, topic, records)
    billing, check, invoices, mails = (GroupNodes(zookeeper, name) for name in GROUPS[1:])
    billing.commit("payments", 0, 20)
    billing.commit("payments", 1, 45)
    check.consume("orders", (0, 1), 10)
    invoices.commit("payments", 0, 60)
    mark = MigrationMark("migrated", "kafka:invoices", round(time.time() * 1000))
    invoices.write("zkconsumer/migrated", MigratedNode.encode(mark))
    mails.consume("mails", (0, 1), 100)


@pytest.fixture
def scene(private_sandbox, tmp_path):
    """A running ``serve`` of the scene."""
    (tmp_path / "main.toml").touch()
    box = private_sandbox(**PATIENT)
    (tmp_path / "main.toml").write_text(FLEET.format(zookeeper=box.zookeeper_connect), encoding="utf-8")
    with ExitStack() as running:
        Topics(box.bootstrap_servers).create(TOPIC, PARTITIONS)
        zookeeper = running.enter_context(connected(box.zookeeper_connect))
        add_other_groups(box, zookeeper)
        over = threading.Event()
        producer = threading.Thread(target=produce, args=(box.bootstrap_servers, over))
        producer.start()
        running.callback(producer.join)
        running.callback(over.set)
        consume(box.zookeeper_connect, "host-a", 35, running)
        options = ("--interval", "500ms", "--fleet", str(tmp_path))
        served = running.enter_context(serving(box.zookeeper_connect, *options))
        eventually(lambda: owned(served) == [PARTITIONS])
        time.sleep(ALONE_S)
        consume(box.zookeeper_connect, "host-b", 90, running)
        eventually(lambda: owned(served) == [PARTITIONS // 2] * 2)
        time.sleep(TOGETHER_S)
        yield served


def owned(served):
    """How many partitions each member has."""
    found = served.group(GROUP)
    return found and [member["partitions"] for member in found["members"]]


def texts(browser, selector):
    """What elements say; the page makes them again at each sample."""
    return browser.execute_script(TEXTS, selector)


def picture(browser, name):
    """Take a picture of what the page shows, at most :data:`LARGEST` pixels of it; the page is not wider than that."""
    width, scrolled, height = browser.execute_script(SIZE)
    assert scrolled == width, "tables scroll, the page does not"
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, LARGEST), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    data = base64.b64decode(taken["data"])
    assert data.startswith(b"\x89PNG")
    if PICTURES and width > NARROW:
        Path(PICTURES).mkdir(exist_ok=True)
        Path(PICTURES, name).write_bytes(data)


def shows_list(browser):
    return sorted(texts(browser, "#groups td:first-child")) == GROUPS


def shows_group(browser):
    traces, marks = browser.execute_script(CHART)
    return traces == PARTITIONS and marks and len(texts(browser, "#members td")) == 12


def test_the_pictures_show_the_list_a_group_and_a_fleet(browser, scene):
    for width in (WIDE, NARROW):
        browser.set_window_size(width, 1000)
        try:
            picture_list(browser, scene)
            picture_group(browser, scene)
            picture_fleet(browser, scene)
        finally:
            browser.set_window_size(WIDE, 900)
            browser.get("about:blank")  # it asks no server that has ended


def picture_list(browser, scene):
    browser.get(f"{scene.url}/")
    eventually(lambda: shows_list(browser))
    headings = texts(browser, "#groups th")
    assert headings[:6] == ["Group", "Status", "Lag", "Lag, time", "Trend", "Unknown"]
    assert texts(browser, "#servers .good") == ["ZooKeeper", "broker 0"]
    counted = texts(browser, "#counts button")
    assert {"1 RANGE", "1 MIGRATED"} <= set(counted)
    assert sum(int(one.split()[0]) for one in counted) == len(GROUPS)
    assert browser.execute_script(WRAPPED, "#groups td, #groups th") == []
    picture(browser, "serve-list.png")


def picture_group(browser, scene):
    browser.get("about:blank")  # the same page with another fragment would not be loaded again
    browser.get(f"{scene.url}/#{GROUP}")
    eventually(lambda: shows_group(browser))
    titles = texts(browser, "#group-view h3")
    assert titles == ["Partitions", "Members", "Rebalances"]
    members = texts(browser, "#members th")
    assert members == ["Member", "Client", "Host", "Pattern", "Owned", "Threads"]
    assert browser.execute_script(WRAPPED, "#partitions td:not(.text), #members td, th") == []
    picture(browser, "serve.png")


def picture_fleet(browser, scene):
    browser.get(f"{scene.url}/fleet")
    eventually(lambda: len(texts(browser, "#fleet tbody tr")) == 4)
    headings = texts(browser, "#fleet th")
    assert headings[:6] == ["Group", "State", "Reason", "Wave", "Owner", "Members"]
    assert texts(browser, "#totals") == ["4 not started"]
    assert browser.execute_script(WRAPPED, "#fleet td:not(.text), #fleet th") == []
    picture(browser, "serve-fleet.png")
