"""The watch of lag, while its ZooKeeper session ends."""

from contextlib import closing, nullcontext

from click.testing import CliRunner
from kazoo.exceptions import SessionExpiredError

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cli import grouplag, groupsource


def test_a_watch_outlasts_the_expiry_of_its_session(monkeypatch):
    with closing(session_in_memory(ZooKeeperInMemory())) as session:
        session.ensure_path("/consumers", b"")
        ask, asked = session._client._ask, []

        def expired_at_first(request):
            asked.append(request)
            return SessionExpiredError() if len(asked) == 1 else ask(request)

        monkeypatch.setattr(session._client, "_ask", expired_at_first)
        monkeypatch.setattr(groupsource, "tool_session", lambda _config: nullcontext(session))
        options = ["--zookeeper", "h:1", "--interval", "100ms", "--for", "150ms"]
        ended = CliRunner().invoke(grouplag.watch, options)
    assert ended.exit_code == 0, ended.exception
    assert "expired" in ended.stderr
    assert len(asked) > 1
