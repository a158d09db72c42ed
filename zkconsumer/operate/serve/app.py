"""The ASGI application of ``serve``: routes, and what protects the page. It only reads the newest snapshot."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.lagfindings import with_lag_findings
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.operate.serve import burrow
from zkconsumer.operate.serve.documents import OLD, group_document, groups_document, history_pieces, server_documents
from zkconsumer.operate.serve.exporter import CONTENT_TYPE, exposition
from zkconsumer.operate.serve.groupsnapshots import GroupSnapshot, GroupsSnapshot
from zkconsumer.operate.serve.grouptable import parse_number, parse_query
from zkconsumer.operate.serve.hosts import is_allowed_host

_STATIC: Final = Path(__file__).parent / "static"
_DAY_S: Final = 86_400
_NO_SAMPLE: Final = "there is no sample yet; check the log of `zkconsumer serve` if there is none soon"
_STALE: Final = f"{OLD}; /readyz and the log say why"
_HANGING_S: Final = 600.0
"""In seconds; no sample takes so long, even if it waits for each server that it asks."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'",  # plotly makes style sheets
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_NOT_STORED: Final = {"Cache-Control": "no-store"}

_UNNAMED_CLUSTER: Final = "local"

Endpoint = Callable[[Request], Response]


class Protection:
    """Refuses requests that name another host, and adds the headers that confine the page.

    Args:
        app: answers what is allowed.
        hosts: see :func:`~zkconsumer.operate.serve.hosts.is_allowed_host`.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        app = self._app
        if not is_allowed_host(Headers(scope=scope).get("host", ""), self._hosts):
            app = PlainTextResponse("this Host is not allowed; add it with --allow-host NAME\n", 400)
        await app(scope, receive, send_protected)


def plotly_script() -> Path:
    """The script in the installed package plotly, which is not imported.

    Raises:
        UsageError: it is not installed.
    """
    package = importlib.util.find_spec("plotly")
    places = [] if package is None else [*(package.submodule_search_locations or ())]
    for place in places:
        script = Path(place, "package_data", "plotly.min.js")
        if script.exists():
            return script
    raise UsageError("the script of plotly is missing; install it with: pip install 'zkconsumer[web]'")


class Sampled(NamedTuple):
    """What is known of the last sample, also of one that failed.

    Attributes:
        servers: returns which servers it has asked, and which answer.
        ended: returns when it ended, in seconds of the clock of :attr:`GroupsSnapshot.at`.
    """

    servers: Callable[[], Sequence[ServerAnswer]]
    ended: Callable[[], float]


def web_app(
    newest: Callable[[], GroupsSnapshot | None],
    clock: Callable[[], float],
    cluster: str | None,
    hosts: Collection[str],
    failure: Callable[[], str | None] = lambda: None,
    explain: Callable[[str], Sequence[Finding]] | None = None,
    fleet: Callable[[], dict[str, Any]] | None = None,
    sampled: Sampled | None = None,
) -> Starlette:
    """The application.

    Args:
        newest: returns the last snapshot, None if there is none.
        clock: the clock of :attr:`GroupsSnapshot.at`.
        cluster: name in Burrow's paths and label of all metrics; None for ``local``, and no label.
        hosts: names that requests may address this server by, besides IP addresses.
        failure: returns why the last sample failed, None if it did not.
        explain: finds what keeps a group from consuming, on a thread of its own; None if that is not offered.
        fleet: reads how far the migration of many groups has come, likewise; None if that is not offered.
        sampled: what is known of the last sample; None for one that has ended now, and has asked no server.

    Raises:
        UsageError: plotly is not installed.
    """
    script = plotly_script()
    sampled = sampled or Sampled(lambda: (), clock)

    async def plotly(_: Request) -> Response:
        return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": f"max-age={_DAY_S}"})

    async def page(_: Request) -> Response:
        return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    routes: list[BaseRoute] = [
        Route("/", page),
        Route("/static/plotly.min.js", plotly),
        Mount("/static", StaticFiles(directory=_STATIC)),
        *_Monitoring(newest, clock, cluster, failure, sampled.ended).routes(),
        *_Groups(newest, clock, failure, sampled.servers, explain, has_fleet=fleet is not None).routes(),
        *(() if fleet is None else _Fleet(fleet).routes()),
        *_Burrow(newest, clock, cluster or _UNNAMED_CLUSTER).routes(),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Protection, hosts=hosts)])


# Endpoints that evaluate all groups are functions without `async`, which Starlette runs on threads of its own: for
# thousands of groups the first evaluation of a snapshot takes a second, and other requests are answered meanwhile.


class _Monitoring:
    """What monitors ask for."""

    def __init__(
        self,
        newest: Callable[[], GroupsSnapshot | None],
        clock: Callable[[], float],
        cluster: str | None,
        failure: Callable[[], str | None],
        ended: Callable[[], float],
    ) -> None:
        self._newest = newest
        self._clock = clock
        self._cluster = cluster
        self._failure = failure
        self._ended = ended

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", self._health),
            Route("/readyz", self._readiness),
            Route("/metrics", self._metrics),
        ]

    async def _health(self, _: Request) -> Response:
        """Whether samples are tried: only if not, a restart may help."""
        ended_s = self._clock() - self._ended()
        text = f"{self._describe_sample()}; the last try ended {ended_s:.0f} s ago\n"
        return PlainTextResponse(text, 503 if ended_s > _HANGING_S else 200)

    async def _readiness(self, _: Request) -> Response:
        """Whether what is shown is the present."""
        snapshot = self._newest()
        is_present = snapshot is not None and not snapshot.is_stale(self._clock())
        return PlainTextResponse(f"{self._describe_sample()}\n", 200 if is_present else 503)

    def _describe_sample(self) -> str:
        snapshot, failure = self._newest(), self._failure()
        text = _NO_SAMPLE if snapshot is None else f"the last sample began {self._clock() - snapshot.at:.0f} s ago"
        return text if failure is None else f"{text}; it is tried again, as {failure}"

    def _metrics(self, _: Request) -> Response:
        text = exposition(self._newest(), self._clock(), self._cluster, self._failure())
        return Response(text, headers={"Content-Type": CONTENT_TYPE})


class _Groups:
    """The documents of the group commands."""

    def __init__(
        self,
        newest: Callable[[], GroupsSnapshot | None],
        clock: Callable[[], float],
        failure: Callable[[], str | None],
        servers: Callable[[], Sequence[ServerAnswer]],
        explain: Callable[[str], Sequence[Finding]] | None,
        *,
        has_fleet: bool,
    ) -> None:
        self._newest = newest
        self._clock = clock
        self._failure = failure
        self._servers = servers
        self._explain = explain
        self._has_fleet = has_fleet
        self._one_at_a_time = _OneAtATime("findings")

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/api/groups", self._all),
            # Names of groups of brokers may have slashes, which arrive decoded.
            Route("/api/groups/{group:path}/history", self._one(self._history)),
            Route("/api/groups/{group:path}/findings", self._one(self._findings)),
            Route("/api/groups/{group:path}", self._one(self._group)),
        ]

    def _all(self, request: Request) -> Response:
        snapshot = self._newest()
        if snapshot is None:
            return self._no_sample()
        try:
            query = parse_query(request.query_params)
        except UsageError as error:
            return _error(str(error), 400)
        document = groups_document(snapshot, self._clock(), query, self._failure(), self._servers())
        return _json({**document, "has_fleet": self._has_fleet})

    def _group(self, _: Request, snapshot: GroupsSnapshot, group: GroupSnapshot) -> Response:
        return _json(group_document(snapshot, group, self._clock(), self._failure(), self._servers()))

    def _history(self, request: Request, snapshot: GroupsSnapshot, group: GroupSnapshot) -> Response:
        most = request.query_params.get("most")
        try:
            count = None if most is None else parse_number("most", most)
        except UsageError as error:
            return _error(str(error), 400)
        pieces = history_pieces(snapshot, group, self._clock(), count)
        return StreamingResponse(_in_turns(pieces), media_type="application/json", headers=_NOT_STORED)

    def _findings(self, _: Request, snapshot: GroupsSnapshot, group: GroupSnapshot) -> Response:  # noqa: ARG002
        """What one look shows, and what the samples show in addition."""
        if self._explain is None:
            return _error("findings are not offered", 404)
        explain, name = self._explain, group.observed.group

        def document() -> dict[str, Any]:
            left = ((rebalance.at_ms, rebalance.left) for rebalance in group.rebalances)
            findings = with_lag_findings(explain(name), group.lag, left)
            return {"group": name, "findings": [finding._asdict() for finding in findings]}

        return self._one_at_a_time.answer(document)

    def _no_sample(self) -> Response:
        """Before the first sample that succeeds, and which servers did not answer."""
        return _json({"error": self._failure() or _NO_SAMPLE, "servers": server_documents(self._servers())}, 503)

    def _one(self, answered: Callable[[Request, GroupsSnapshot, GroupSnapshot], Response]) -> Endpoint:
        def answer(request: Request) -> Response:
            snapshot = self._newest()
            if snapshot is None:
                return self._no_sample()
            group = snapshot.groups.get(request.path_params["group"])
            if group is None:
                return _error("no such group, or --match excludes it; /api/groups lists the groups", 404)
            return answered(request, snapshot, group)

        return answer


class _OneAtATime:
    """Questions that ask ZooKeeper and brokers again, for seconds if they are silent: not several at a time.

    Args:
        what: is asked for, in the plural.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._asking = threading.Lock()

    def answer(self, document: Callable[[], dict[str, Any]]) -> Response:
        if not self._asking.acquire(blocking=False):
            return _error(f"another request for {self._what} is in progress; try again", 503)
        try:
            return _json(document())
        except (ZkConsumerError, OSError) as error:
            return _error(str(error), 503)
        finally:
            self._asking.release()


class _Fleet:
    """The migration of many groups."""

    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        self._read = read
        self._one_at_a_time = _OneAtATime("the fleet")

    def routes(self) -> list[BaseRoute]:
        return [Route("/fleet", self._page), Route("/api/fleet", self._document)]

    async def _page(self, _: Request) -> Response:
        return FileResponse(_STATIC / "fleet.html", headers={"Cache-Control": "no-cache"})

    def _document(self, _: Request) -> Response:
        return self._one_at_a_time.answer(self._read)


async def _in_turns(pieces: Iterable[str]) -> AsyncIterator[str]:
    """The pieces of an answer; other requests are answered between them."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


class _Burrow:
    """Burrow's paths; each answer repeats the request. Its documents have no field for the age of what they show."""

    def __init__(self, newest: Callable[[], GroupsSnapshot | None], clock: Callable[[], float], cluster: str) -> None:
        self._newest = newest
        self._clock = clock
        self._cluster = cluster

    def routes(self) -> list[BaseRoute]:
        consumers = "/v3/kafka/{cluster}/consumer"
        return [
            Route("/v3/kafka", self._clusters),
            Route(consumers, self._consumers),
            Route(f"{consumers}/{{group:path}}/status", self._status(every_partition=False)),
            Route(f"{consumers}/{{group:path}}/lag", self._status(every_partition=True)),
        ]

    def _present(self) -> GroupsSnapshot | None:
        """The newest snapshot, unless it is stale."""
        snapshot = self._newest()
        return None if snapshot is None or snapshot.is_stale(self._clock()) else snapshot

    def _unavailable(self, request: Request) -> Response:
        message = _NO_SAMPLE if self._newest() is None else _STALE
        return _burrow(request, burrow.error_document(message), 503)

    async def _clusters(self, request: Request) -> Response:
        return _burrow(request, burrow.clusters_document(self._cluster))

    async def _consumers(self, request: Request) -> Response:
        snapshot = self._present()
        if snapshot is None:
            return self._unavailable(request)
        if request.path_params["cluster"] != self._cluster:
            return _burrow(request, burrow.error_document("cluster not found"), 404)
        return _burrow(request, burrow.consumers_document(snapshot))

    def _status(self, *, every_partition: bool) -> Endpoint:
        def answer(request: Request) -> Response:
            snapshot = self._present()
            if snapshot is None:
                return self._unavailable(request)
            cluster, name = request.path_params["cluster"], request.path_params["group"]
            group = snapshot.groups.get(name) if cluster == self._cluster else None
            if group is None:
                return _burrow(request, burrow.not_found_document(cluster, name), 404)
            if (reason := group.why_unknown) is not None:
                return _burrow(request, burrow.error_document(reason), 503)
            return _burrow(request, burrow.status_document(snapshot, cluster, group, every_partition=every_partition))

        return answer


def _burrow(request: Request, document: dict[str, Any], status: int = 200) -> Response:
    return _json({**document, "request": {"url": request.url.path, "host": socket.gethostname()}}, status)


def _error(message: str, status: int) -> Response:
    return _json({"error": message}, status)


def _json(document: dict[str, Any], status: int = 200) -> Response:
    """JSON in ASCII: a registration may hold a lone surrogate, which UTF-8 cannot express."""
    content = json.dumps(document, separators=(",", ":"))
    return Response(content, status, media_type="application/json", headers=_NOT_STORED)
