"""The page of ``zkconsumer serve`` in a real Chromium, over real servers."""

import time
from contextlib import ExitStack
from urllib.parse import quote

import pytest
from selenium.common.exceptions import StaleElementReferenceException

from tests.fixtures.groupnodes import GroupNodes
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.zookeeper.rules.znodes import MigratedNode, MigrationMark

pytestmark = pytest.mark.timeout(300)

HOSTILE = "<img src=x onerror=document.title='owned'>&lt;b&gt;\"'"
HOSTILE_OWNER = "\x1b[2J\u202eevil\n<script>document.title='owned'</script>-0"

ROWS = """
return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(
    (row) => [...row.cells].map((cell) => cell.textContent))
"""
CHART = """
const chart = document.getElementById('chart');
if (!chart.data || !chart.querySelector('.scatterlayer')) return null;
return {
    at: (chart.data[0]?.x ?? []).map((x) => x.getTime()),
    names: chart.data.map((trace) => trace.name),
    lags: chart.data.map((trace) => trace.y),
    drawn: [...chart.querySelectorAll('.scatterlayer .trace')].map(
        (trace) => trace.querySelectorAll('.points path').length),
    lines: chart.querySelectorAll('.shapelayer path').length,
    legend: [...chart.querySelectorAll('.legend .legendtext')].map((one) => one.textContent),
}
"""


@pytest.fixture
def serve(browser, sandbox, unique_name):
    """Serve the groups of this test until its end, with a sample each second."""
    with ExitStack() as running:

        def start(*more):
            options = ("--interval", "1s", "--samples", "3", "--match", f"{unique_name}.*", *more)
            served = running.enter_context(serving(sandbox.zookeeper_connect, *options))
            # Before the first sample it answers 503, which the browser would log.
            eventually(lambda: served.get("/api/groups")[0] == 200)
            return served

        yield start
        # The page asks each second: once its server has ended, it would log that nothing answers.
        browser.get("about:blank")


@pytest.fixture
def lagging(group, topic_factory, produce):
    """A topic of three partitions with 1, 2 and 3 records, of which a member has consumed none; the topic."""
    topic = topic_factory(partitions=3)
    produce(topic, [{"value": b"v", "partition": p} for p in range(3) for _ in range(p + 1)])
    group.register("c", {topic: 1})
    for partition in range(3):
        group.own(topic, partition, "c")
        group.commit(topic, partition, 0)
    return topic


def rows(browser, table):
    return browser.execute_script(ROWS, table)


def click(browser, selector):
    """Click on an element of a table, which the page makes again each second."""

    def is_clicked():
        try:
            browser.find_element("css selector", selector).click()
        except StaleElementReferenceException:
            return False
        return True

    eventually(is_clicked)


def test_the_list_leads_to_a_group(browser, serve, group, lagging):
    served = serve()
    browser.get(f"{served.url}/")
    # The lag is unknown until the broker has answered.
    wanted = [[group.name, "6", "0", "1", "3/3"]]
    eventually(lambda: [[row[0], row[2], *row[5:8]] for row in rows(browser, "#groups")] == wanted)
    click(browser, "#groups a")
    eventually(lambda: len(rows(browser, "#partitions")) == 3)
    assert not browser.find_element("id", "groups-view").is_displayed()


@pytest.fixture
def fleet(zookeeper, unique_name):
    """The names of 130 groups without members."""
    groups = [GroupNodes(zookeeper, f"{unique_name}-{number:03}") for number in range(130)]
    for group in groups:
        group.commit("t", 0, 5)
    yield [group.name for group in groups]
    for group in groups:
        zookeeper.delete(group.root, recursive=True)


def shown(browser):
    return [row[0] for row in rows(browser, "#groups")]


def test_a_link_shows_the_same_part_of_many_groups(browser, serve, fleet):
    served = serve()
    browser.get(f"{served.url}/")
    eventually(lambda: shown(browser) == fleet[:100])
    assert browser.find_element("id", "shown").text == "1 to 100 of 130"
    browser.find_element("id", "following").click()
    eventually(lambda: shown(browser) == fleet[100:])
    searched = fleet[10][-14:-1]  # some characters before it, since random ones may begin with -01, too
    browser.find_element("id", "search").send_keys(searched)
    eventually(lambda: shown(browser) == fleet[10:20])
    click(browser, "#groups th[data-sort=group]")
    eventually(lambda: shown(browser) == fleet[10:20])
    click(browser, "#groups th[data-sort=group]")
    eventually(lambda: shown(browser) == fleet[10:20][::-1])
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    eventually(lambda: shown(browser) == fleet[10:20][::-1])
    assert browser.find_element("id", "search").get_attribute("value") == searched
    assert browser.find_element("css selector", "th[data-sort=group]").get_attribute("aria-sort") == "descending"


def test_a_click_on_the_heading_sorts_by_lag(browser, serve, zookeeper, unique_name, topic_factory, produce):
    """A group whose lag is unknown is below those with known lag, in both orders."""
    topic = topic_factory(partitions=1)
    produce(topic, [{"value": b"v", "partition": 0}] * 12)
    behind = {"a": 2, "b": 11, "c": 0, "d": 10, "e": None}  # as text, 11 and 10 are below 2
    groups = {name: GroupNodes(zookeeper, f"{unique_name}-{name}") for name in behind}
    for name, lag in behind.items():
        groups[name].register("c", {topic: 1})
        groups[name].own(topic, 0, "c")
        if lag is not None:
            groups[name].commit(topic, 0, 12 - lag)
    try:
        browser.get(f"{serve().url}/")
        lags = "return [...document.querySelectorAll('#groups tbody tr')].map((row) => row.cells[2].textContent)"
        eventually(lambda: sorted(browser.execute_script(lags)) == ["-", "0", "10", "11", "2"])
        by_name = {group.name: name for name, group in groups.items()}
        click(browser, "#groups th[data-sort='-lag']")
        eventually(lambda: "".join(by_name.get(name, "?") for name in shown(browser)) == "bdace")
        header = browser.find_element("css selector", "th[data-sort='-lag']")
        assert header.get_attribute("aria-sort") == "descending", "worst first"
        click(browser, "#groups th[data-sort='-lag']")
        eventually(lambda: "".join(by_name.get(name, "?") for name in shown(browser)) == "cadbe")
        assert browser.find_element("css selector", "th[data-sort='-lag']").get_attribute("aria-sort") == "ascending"
    finally:
        browser.get("about:blank")
        for group in groups.values():
            zookeeper.delete(group.root, recursive=True)


def test_states_are_counted_and_choose_groups(browser, serve, fleet, group, lagging, zookeeper):
    mark = MigrationMark("migrated", "kafka:elsewhere", 0)
    GroupNodes(zookeeper, fleet[7]).write("zkconsumer/migrated", MigratedNode.encode(mark))
    served = serve()
    browser.get(f"{served.url}/")
    eventually(lambda: len(shown(browser)) == 100)
    counts = "return [...document.querySelectorAll('#counts button')].map((one) => one.textContent)"
    eventually(lambda: browser.execute_script(counts) == ["129 NO MEMBERS", "1 MIGRATED", "1 UNKNOWN"])
    click(browser, "#counts .status-MIGRATED")
    eventually(lambda: [row[:2] for row in rows(browser, "#groups")] == [[fleet[7], "MIGRATED"]])
    click(browser, "#counts .status-MIGRATED")
    eventually(lambda: len(shown(browser)) == 100)
    click(browser, "#counts .status-UNKNOWN")
    eventually(lambda: shown(browser) == [group.name])
    trend = browser.find_elements("css selector", "#groups td.trend polyline")
    assert len(trend) == 1
    click(browser, "#counts .status-UNKNOWN")
    eventually(lambda: len(shown(browser)) == 100)


WIDER = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
CUT = """
const ofStatus = [...document.querySelectorAll('#groups tr.stale td:nth-child(2)')];
return [...ofStatus, document.querySelector('#groups').parentElement].map(
    (one) => [one.scrollWidth, one.clientWidth]).filter(([needed, has]) => needed > has)
"""
LINES = """
return [...document.querySelectorAll('#groups td a')].map(
    (link) => new Set([...link.getClientRects()].map((one) => one.y)).size)
"""


@pytest.mark.parametrize("width", [1280, 500])
def test_names_stay_on_a_line_at_each_width(browser, serve, group, lagging, width, zookeeper):
    group.root = f"{group.root}-{'long-name-' * 12}"
    group.consume(lagging, (0, 1, 2), 0)
    browser.set_window_size(width, 900)
    try:
        browser.get(f"{serve().url}/")
        eventually(lambda: len(shown(browser)) == 2)
        assert browser.execute_script(LINES) == [1, 1]
        assert not browser.execute_script(WIDER), "tables scroll, the page does not"
        click(browser, "#groups a")
        eventually(lambda: len(rows(browser, "#partitions")) == 3)
        assert not browser.execute_script(WIDER)
    finally:
        browser.set_window_size(1280, 900)
        zookeeper.delete(f"/consumers/{group.name}", recursive=True)


def test_a_click_finds_what_keeps_a_group_from_consuming(browser, serve, group, lagging):
    served = serve()
    browser.get(f"{served.url}/#{quote(group.name)}")
    group.disown(lagging, 2)
    eventually(lambda: len(rows(browser, "#partitions")) == 3)
    browser.find_element("id", "explain").click()
    eventually(lambda: browser.find_elements("css selector", "#findings li"))
    text = browser.find_element("id", "findings").text
    assert f"no-owner: {lagging} 2" in text
    assert "next: " in text


def test_the_table_is_what_the_api_answers(browser, serve, group, lagging):
    served = serve()
    browser.get(f"{served.url}/#{quote(group.name)}")
    shown = ("topic", "partition", "status", "committed", "log_end", "lag")

    def expected():
        found = served.group(group.name)
        return found and [[*(str(one[name]) for name in shown), one["owner"]] for one in found["partitions"]]

    def same():
        # A lag is unknown until the broker has answered.
        found = [[*row[:6], row[9]] for row in rows(browser, "#partitions")]
        return found == expected() and [row[5] for row in found] == ["1", "2", "3"]

    eventually(same)
    assert [(row[0], row[4]) for row in rows(browser, "#members")] == [(f"{group.name}_c", "3")]


def test_each_partition_has_a_trace_with_the_points_of_the_api(browser, serve, group, lagging):
    served = serve()
    browser.get(f"{served.url}/#{quote(group.name)}")
    found = []

    def same():
        chart, history = browser.execute_script(CHART), served.group(group.name, "/history")
        found[:] = [chart, history]
        if not (chart and len(chart["at"]) > 2 and chart["at"] == history["at_ms"]):
            return False
        # Plotly draws later than it takes the points; one whose lag was unknown is not drawn.
        return chart["drawn"] == [len([lag for lag in lags if lag is not None]) for lags in chart["lags"]]

    eventually(same)
    chart, history = found
    assert chart["names"] == [f"{one['topic']}-{one['partition']}" for one in history["partitions"]]
    assert chart["lags"] == [one["lag"] for one in history["partitions"]]
    assert len(chart["drawn"]) == 3


def test_rebalances_are_marked_on_the_time_axis(browser, serve, group, lagging):
    served = serve()
    browser.get(f"{served.url}/#{quote(group.name)}")
    eventually(lambda: (chart := browser.execute_script(CHART)) and len(chart["at"]) > 1)
    assert browser.execute_script(CHART)["lines"] == 0
    group.register("d", {lagging: 1})
    group.own(lagging, 2, "d")
    eventually(lambda: browser.execute_script(CHART)["lines"] >= 1)
    eventually(lambda: f"{group.name}_d" in " ".join(cell for row in rows(browser, "#rebalances") for cell in row))


def test_hostile_names_are_inert(browser, serve, group, zookeeper, unique_name):
    group.name += HOSTILE
    group.root += HOSTILE
    group.commit(HOSTILE, 0, 7)
    group.write(f"owners/{HOSTILE}/0", HOSTILE_OWNER)
    group.register("<b>", {HOSTILE: 1})
    served = serve()
    browser.get(f"{served.url}/")
    eventually(lambda: rows(browser, "#groups"))
    assert rows(browser, "#groups")[0][0] == group.name
    click(browser, "#groups a")
    eventually(lambda: (chart := browser.execute_script(CHART)) and chart["legend"])
    assert browser.execute_script(CHART)["legend"] == [f"{HOSTILE}-0"]
    eventually(lambda: rows(browser, "#partitions"))
    ((topic, *_, owner, _),) = rows(browser, "#partitions")
    assert topic == HOSTILE
    assert owner.startswith("\\u{1b}[2J\\u{202e}evil\\u{a}<script>")
    assert browser.find_elements("css selector", "main img, main script, main b") == []
    assert browser.title == "Consumer groups"


def test_the_migration_of_a_fleet(browser, serve, sandbox, group, lagging, tmp_path):
    """Names and owners come from a file that people edit."""
    text = (
        f'[cluster]\nzookeeper = "{sandbox.zookeeper_connect}"\n[groups."{group.name}"]\nwave = 1\nowner = "<b>ann"\n'
    )
    (tmp_path / "main.toml").write_text(f"{text}[groups.gone]\nwave = 2\n", encoding="utf-8")
    served = serve("--fleet", str(tmp_path))
    browser.get(f"{served.url}/")
    eventually(lambda: browser.find_element("id", "fleet-link").is_displayed())
    click(browser, "#fleet-link a")
    eventually(lambda: rows(browser, "#fleet"))
    first, second = rows(browser, "#fleet")
    assert first == [group.name, "not started", "", "1", "<b>ann", "1", "-", f"kafka:{group.name}", "main"]
    assert second[1] == "gone wrong"
    assert browser.find_element("id", "totals").text == "1 not started, 1 gone wrong"


def test_a_server_that_ends_is_reported(browser, serve, group, lagging):
    served = serve()
    browser.get(f"{served.url}/")
    eventually(lambda: rows(browser, "#groups"))
    served.process.terminate()
    served.process.wait(120)
    eventually(lambda: browser.find_element("id", "failure").is_displayed())
    assert browser.find_element("id", "failure").text.startswith("No answer")
    browser.get("about:blank")
    browser.get_log("browser")  # takes the requests that failed out of the log


def test_values_of_a_group_that_cannot_be_read_are_marked_as_old(browser, start_zookeeper, sandbox, topic_factory):
    server = start_zookeeper()
    with connected(server.address) as client:
        GroupNodes(client, "g").commit(topic_factory(), 0, 0)
    timeouts = ("-p", "zookeeper.session.timeout.ms=3000", "-p", "zookeeper.connection.timeout.ms=2000")
    named = ("--bootstrap-server", sandbox.bootstrap_servers, "--interval", "500ms", "--match", "g")
    try:
        with serving(server.address, *named, *timeouts) as served:
            eventually(lambda: served.document("/api/groups").get("groups"))
            browser.get(f"{served.url}/")
            eventually(lambda: rows(browser, "#groups"))
            assert browser.find_elements("css selector", ".stale") == []
            server.pause()
            eventually(lambda: "UNKNOWN, was NO MEMBERS; values of 20" in rows(browser, "#groups")[0][1])
            assert browser.find_elements("css selector", "#groups tr.stale")
            assert browser.execute_script(CUT) == [], "the whole status is shown, and the table does not scroll"
            reasons = browser.find_element("id", "problems")
            eventually(lambda: "groups in ZooKeeper cannot be listed now" in reasons.text)
            assert reasons.location["y"] < browser.find_element("id", "groups").location["y"]
            browser.get(f"{served.url}/#g")
            eventually(lambda: browser.find_elements("css selector", "#partitions.stale"))
            time.sleep(2)  # four intervals without a sample
            server.resume()

            def breaks():
                chart = browser.execute_script(CHART)
                return chart and None in chart["lags"][0][1:-1] and len(chart["at"]) == len(chart["lags"][0])

            eventually(breaks)  # no line is drawn over the time without samples
            browser.get("about:blank")
    finally:
        server.resume()


BADGES = """
return [...document.querySelectorAll('#servers li')].map(
    (one) => [one.firstElementChild.textContent.slice(0, 12), one.firstElementChild.className,
              one.firstElementChild.title, one.textContent])
"""
COLOURS = "return getComputedStyle(document.querySelector('#servers .status')).backgroundColor"


def test_a_badge_of_a_broker_is_red_while_it_does_not_answer(browser, private_sandbox):
    box = private_sandbox(**PATIENT)
    topic = Topics(box.bootstrap_servers).create("t")
    with connected(box.zookeeper_connect) as client:
        GroupNodes(client, "g").commit(topic, 0, 0)
    (broker,) = box.brokers

    def badges():
        return {name: (kind, title, text) for name, kind, title, text in browser.execute_script(BADGES)}

    def kinds():
        return {name: kind for name, (kind, _, _) in badges().items()}

    good = {"ZooKeeper": "status good", "broker 0": "status good"}
    with serving(box.zookeeper_connect, "--interval", "1s") as served:
        eventually(lambda: served.get("/api/groups")[0] == 200)
        browser.get(f"{served.url}/")
        eventually(lambda: kinds() == good)
        assert badges()["broker 0"][1] == f"{box.bootstrap_servers} answers"
        broker.pause()
        try:
            eventually(lambda: kinds() == {"ZooKeeper": "status good", "broker 0 sil": "status bad"})
            _, title, text = badges()["broker 0 sil"]
            assert title.startswith(box.bootstrap_servers)
            assert title.removeprefix(f"{box.bootstrap_servers}: ") in text, "the reason is beside the badge, too"
            (_, found) = served.document("/api/groups")["servers"]
            assert (found["kind"], found["id"], found["answers"]) == ("broker", 0, False)
            assert abs(found["silent_since_ms"] / 1000 - time.time()) < 120
            colours = []
            for scheme in ("light", "dark"):
                emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
                colours.append(browser.execute_script(COLOURS))
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
            assert colours == ["rgb(251, 213, 210)", "rgb(79, 26, 23)"]
            browser.get(f"{served.url}/#g")
            eventually(lambda: browser.find_element("id", "group-view").is_displayed() and "broker 0 sil" in kinds())
        finally:
            broker.resume()
        eventually(lambda: kinds() == good)
        browser.get("about:blank")


@pytest.mark.slow
def test_a_link_shows_the_points_from_before_a_kill_in_the_middle_of_a_sample(browser, private_sandbox, tmp_path):
    box = private_sandbox(**PATIENT)
    topic = Topics(box.bootstrap_servers).create("t", 2)
    produce_records(box.bootstrap_servers, topic, [{"value": b"v", "partition": number % 2} for number in range(10)])
    interval_s = 2
    options = (
        *("--listen", f"{HOST}:{free_port()}"),
        *("--interval", f"{interval_s}s"),
        *("--history-file", str(tmp_path / "history")),
    )
    with connected(box.zookeeper_connect) as client:
        group = GroupNodes(client, "g")
        group.consume(topic, (0, 1), 1)
        with serving(box.zookeeper_connect, *options) as served:
            eventually(lambda: (found := served.group("g", "/history")) and len(found["at_ms"]) > 3)
            group.commit(topic, 0, 3)
            eventually(lambda: served.group("g", "/history")["partitions"][0]["lag"][-1] == 2)
            box.brokers[0].pause()  # so the next sample waits for it, for one interval
            try:
                eventually(lambda: time.time() > served.group("g")["sampled_ms"] / 1000 + 1.3 * interval_s)
                before = served.group("g", "/history")
                served.process.kill()
                served.process.wait(60)
            finally:
                box.brokers[0].resume()
        with serving(box.zookeeper_connect, *options) as again:
            assert again.url == served.url
            eventually(lambda: (found := again.group("g")) and found["sampled_ms"] > before["at_ms"][-1])
            browser.get(f"{served.url}/#g")
            eventually(lambda: (chart := browser.execute_script(CHART)) and chart["at"])
            chart = browser.execute_script(CHART)
            for number, partition in enumerate(before["partitions"]):
                drawn = dict(zip(chart["at"], chart["lags"][number], strict=True))
                assert [drawn[at] for at in before["at_ms"]] == partition["lag"]
            assert chart["at"][-1] > before["at_ms"][-1]
            browser.get("about:blank")
