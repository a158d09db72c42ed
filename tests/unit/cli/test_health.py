"""``zkconsumer health`` against real HTTP servers, and the port that it shares with ``consume``."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click
import pytest
from click.testing import CliRunner

from tests.unit.connector.test_processhealth import page
from zkconsumer.cli.consume import _with_metrics_port
from zkconsumer.cli.health import health
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.sandbox.ports import free_port


@pytest.fixture
def serve():
    """Serve one page: ``serve(text, status=200) -> port``."""
    servers = []

    def start(text, status=200):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        return server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def run(*arguments, **environment):
    return CliRunner(env=environment).invoke(health, [str(argument) for argument in arguments])


def test_exit_codes_distinguish_healthy_from_unhealthy(serve):
    well = run("--port", serve(page()))
    assert (well.exit_code, well.output) == (0, "healthy\n")
    waiting = run("--port", serve(page(connected=0.0)))
    assert waiting.exit_code == 0
    note = "not connected to ZooKeeper or the coordinator; it connects again by itself"
    assert waiting.output == f"healthy\ngroup g: {note}\n"
    ill = run("--port", serve(page(closed=1.0)))
    assert (ill.exit_code, ill.output) == (3, "group g: has left the group, and delivers nothing more\n")


def test_a_consumer_is_ready_when_it_waits_for_nothing(serve):
    assert run("--ready", "--port", serve(page())).exit_code == 0
    for waiting in (page(rebalancing=1.0), page(connected=0.0), page(delivering=0.0)):
        refused = run("--ready", "--port", serve(waiting))
        assert (refused.exit_code, refused.output.startswith("group g: ")) == (3, True)


def test_json_and_the_port_from_the_environment(serve):
    ill = run("--json", ZKCONSUMER_METRICS_PORT=str(serve(page(delivering=0.0, closed=1.0))))
    document = json.loads(ill.output)
    assert document["healthy"] is False
    assert (len(document["problems"]), len(document["notes"])) == (1, 1)


def test_a_consumer_that_does_not_answer_is_an_error(serve):
    port = free_port()
    silent = run("--port", port)
    assert isinstance(silent.exception, ZkConsumerError)
    assert f"metrics.port={port}" in str(silent.exception)
    missing = run("--port", serve("", status=404))
    assert "answers 404" in str(missing.exception)
    assert isinstance(run().exception, UsageError)


def test_the_environment_gives_a_metrics_port_unless_one_is_set():
    plain = ConsumerConfig(zookeeper_connect="h:1", group_id="g")
    assert _with_metrics_port(plain, "9404").metrics_port == 9404
    assert _with_metrics_port(plain, "") is plain
    chosen = ConsumerConfig(zookeeper_connect="h:1", group_id="g", metrics_port=0)
    assert _with_metrics_port(chosen, "9404") is chosen
    for wrong, reason in (("many", "must be an integer"), ("65536", "must be at most 65535")):
        with pytest.raises(click.UsageError, match=f"ZKCONSUMER_METRICS_PORT={wrong}: {reason}"):
            _with_metrics_port(plain, wrong)
