"""Routes and headers, over a snapshot of values."""

import asyncio
import json
import re
import threading
from dataclasses import replace

import httpx
import pytest

from tests.unit.operate.serve.conftest import group_snapshot, lag_sample
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.rules.lagstatus import LagStatus
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.operate.serve.app import Sampled, web_app
from zkconsumer.operate.serve.groupsnapshots import Rebalance

CLOCK_AT = 101.0


@pytest.fixture
def ask(one_group):
    """Ask the application: ``ask(path, newest=snapshot, clock=seconds)``."""

    def get(path, newest=one_group, clock=CLOCK_AT, method="GET", servers=(), tried=None, failure=None, **headers):
        app = web_app(
            lambda: newest,
            lambda: clock,
            "c",
            {"localhost"},
            lambda: failure,
            sampled=Sampled(lambda: servers, lambda: clock if tried is None else tried),
        )

        async def request():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8087") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(request())

    return get


def test_findings_are_asked_for_one_at_a_time(one_group):
    release, explained = threading.Event(), []

    def explain(group):
        explained.append(group)
        assert release.wait(60)
        if len(explained) > 1:
            raise ZooKeeperUnavailable("no server answers")
        return [Finding("no-owner", "t 0", "nobody owns it", "wait")]

    app = web_app(lambda: one_group, lambda: CLOCK_AT, "c", {"localhost"}, explain=explain)

    async def requests():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8087") as client:
            first = asyncio.create_task(client.get("/api/groups/g/findings"))
            while not explained:
                await asyncio.sleep(0)
            busy = await client.get("/api/groups/g/findings")
            release.set()
            return busy, await first, await client.get("/api/groups/g/findings")

    busy, first, failed = asyncio.run(requests())
    assert (busy.status_code, failed.status_code, failed.json()) == (503, 503, {"error": "no server answers"})
    looked, sampled = first.json()["findings"]
    assert looked["kind"] == "no-owner"
    assert (sampled["kind"], sampled["subject"]) == ("stall", "t 0"), "one look does not show it"


def test_findings_of_a_group_without_members_name_those_that_left_last(one_group):
    """By the history of `serve`: one look does not know them."""
    group = replace(one_group.groups["g"], rebalances=(Rebalance(61_000, 1, (), ("g_a",)),))
    newest = replace(one_group, groups={"g": group})
    no_member = [Finding("no-member", "g", "none is registered", "start one")]
    app = web_app(lambda: newest, lambda: CLOCK_AT, "c", {"localhost"}, explain=lambda _: no_member)

    async def request():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8087") as client:
            return await client.get("/api/groups/g/findings")

    finding = asyncio.run(request()).json()["findings"][0]
    assert finding["evidence"] == "none is registered; the last member g_a left before 1970-01-01T00:01:01Z"


EVERY_PATH = (
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/groups",
    "/v3/kafka",
    "/static/page.js",
    "/static/plotly.min.js",
    "/x",
)


@pytest.mark.parametrize("path", EVERY_PATH)
def test_every_answer_confines_the_page(ask, path):
    answer = ask(path)
    assert answer.headers["content-security-policy"] == "default-src 'self'; style-src 'self' 'unsafe-inline'"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", EVERY_PATH)
def test_another_host_gets_nothing(ask, path):
    answer = ask(path, host="evil.example")
    assert (answer.status_code, answer.text.strip()) == (400, "this Host is not allowed; add it with --allow-host NAME")


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/api/groups/g", "/v3/kafka/c/consumer/g/lag"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(ask, path, method):
    assert ask(path, method=method).status_code == 405


def test_readiness_is_that_of_the_samples(ask):
    assert ask("/readyz").status_code == 200
    assert ask("/readyz", clock=131.0).status_code == 503
    assert ask("/readyz", newest=None).status_code == 503


def test_health_is_that_of_the_thread_that_samples(ask, one_group):
    """A probe of liveness restarts what is unhealthy; that ZooKeeper is silent is no reason to."""
    failed = "no ZooKeeper server answers"
    for newest, clock in ((one_group, 131.0), (one_group, 5000.0), (None, 131.0)):
        answer = ask("/healthz", newest=newest, clock=clock, tried=clock - 20.0, failure=failed)
        assert (answer.status_code, failed in answer.text) == (200, True)
    assert ask("/healthz", clock=5000.0, tried=4000.0).status_code == 503


@pytest.mark.parametrize("path", ["/api/groups", "/api/groups/g", "/api/groups/g/history", "/v3/kafka/c/consumer"])
def test_before_the_first_sample_there_is_no_answer(ask, path):
    answer = ask(path, newest=None)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/api/groups", "/api/groups/g"])
def test_without_a_sample_it_is_shown_which_servers_are_silent(ask, path):
    silent = ServerAnswer("broker", 0, "b:1", False, 5, "refused")
    answer = ask(path, newest=None, servers=(silent,)).json()
    assert [(one["address"], one["answers"], one["reason"]) for one in answer["servers"]] == [("b:1", False, "refused")]


@pytest.mark.parametrize("path", ["/v3/kafka/c/consumer", "/v3/kafka/c/consumer/g/status"])
def test_burrow_does_not_answer_from_samples_that_are_stale(ask, path):
    """Its documents do not show when the sample was taken."""
    assert ask(path).status_code == 200
    stale = ask(path, clock=131.0)
    assert (stale.status_code, stale.json()["error"]) == (503, True)


def test_a_group_that_could_not_be_read_is_stale_and_burrow_does_not_answer(ask, one_group):
    one_group.groups["g"] = replace(one_group.groups["g"], unread="no broker answers")
    found = ask("/api/groups/g").json()
    assert (found["stale"], found["failure"], found["sampled_ms"]) == (True, "no broker answers", 100_000)
    assert ask("/api/groups").json()["stale"] is False
    burrow = ask("/v3/kafka/c/consumer/g/status")
    assert (burrow.status_code, burrow.json()["message"]) == (503, "no broker answers")


@pytest.mark.parametrize("is_known", [True, False])
def test_burrow_does_not_answer_for_a_group_of_which_no_lag_could_be_read(ask, one_group, is_known):
    """It answered OK for a group that had stopped, while the broker with its logs was silent."""
    former = one_group.groups["g"]
    silent = lag_sample(100.0, log_end=None)._replace(is_unread=True)
    blind = group_snapshot({"t-0": [lag_sample(30.0), silent]}, history=former.history)
    one_group.groups["g"] = replace(blind, former=former if is_known else None)
    for path in ("status", "lag"):
        burrow = ask(f"/v3/kafka/c/consumer/g/{path}")
        assert (burrow.status_code, "the log end is unknown" in burrow.json()["message"]) == (503, True)


def test_a_problem_has_one_name_and_stays_one_in_an_outage(ask, one_group):
    stale = {"clock": 131.0}
    for outage in ({}, stale):
        (line,) = ask("/api/groups", **outage).json()["groups"]
        assert (line["problem"], ask("/api/groups/g", **outage).json()["problem"]) == (True, True), outage
    one_group.groups["g"] = replace(one_group.groups["g"], unread="no broker answers")
    (line,) = ask("/api/groups").json()["groups"]
    assert (line["status"], line["was"], line["problem"]) == ("UNKNOWN", "STALL", True)
    assert ask("/api/groups/g").json()["problem"] is True


def test_a_history_is_of_as_many_partitions_as_asked_for(ask):
    counts = {
        most: len(ask(f"/api/groups/g/history{most}").json()["partitions"]) for most in ("", "?most=1", "?most=9")
    }
    assert counts == {"": 2, "?most=1": 1, "?most=9": 2}
    assert ask("/api/groups/g/history?most=-1").status_code == 400


def test_groups_that_do_not_exist(ask):
    assert ask("/api/groups/h").status_code == 404
    assert ask("/api/groups/h/history").status_code == 404
    assert ask("/v3/kafka/c/consumer/h/status").json()["status"]["status"] == "NOTFOUND"
    assert ask("/v3/kafka/d/consumer").json()["error"]


def test_burrow_repeats_the_request(ask):
    answer = ask("/v3/kafka/c/consumer/g/lag").json()
    assert answer["request"]["url"] == "/v3/kafka/c/consumer/g/lag"
    assert answer["error"] is False


def test_metrics_are_text_for_prometheus(ask):
    assert ask("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_only_its_own_files_are_served(ask):
    assert ask("/static/%2e%2e/app.py").status_code == 404
    assert ask("/static/page.css").headers["content-type"].startswith("text/css")


def test_the_page_orders_the_states_of_groups_as_the_api_does(ask):
    """A state that the page does not have would have no button, and groups with it could not be chosen."""
    states = re.search(r"^const STATES = (\[.*\]);$", ask("/static/page.js").text, re.MULTILINE)
    assert json.loads(states[1]) == [status.value for status in sorted(LagStatus, key=lambda one: -one.severity)]


def test_the_page_names_no_other_site(ask):
    text = "".join(ask(path).text for path in ("/", "/static/page.js", "/static/page.css"))
    assert "https://" not in text
    assert "http://" not in text
