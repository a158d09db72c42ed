"""The watch of lag, while its ZooKeeper session ends, and while groups cannot be read."""

import json
import time
from contextlib import closing, nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from kazoo.exceptions import SessionExpiredError

from tests.fixtures.groups import group_znodes
from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cli import grouplag, groupsource
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.observedgroup import GroupsLook
from zkconsumer.operate.groups.rules import lagstatus, lagstretches
from zkconsumer.operate.groups.rules.lagstretches import LagSample


def test_the_help_names_the_times_by_which_lag_is_judged():
    text = " ".join(CliRunner().invoke(grouplag.status, ["--help"]).stdout.split())
    assert f"no live owner for {lagstretches.OWNERLESS_S:.0f} s" in text
    assert f"a window of less than {lagstretches.JUDGED_S:.0f} s cannot judge" in text
    fewest, most = lagstatus.samples_for(lagstretches.JUDGED_S), lagstatus.samples_for(0.001)
    assert f"as many as cover {lagstretches.JUDGED_S:.0f} s, at least {fewest}, at most {most}" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--interval", "2s", "--samples", "5"],
            "5 samples every 2 s cover 8 s, and a verdict on lag needs 65 s: give --samples 34, or --interval 17s",
        ),
        (["--interval", "500ms"], "100 samples every 0.5 s cover 49.5 s"),
        (["--samples", "2"], "give --samples 8, or --interval 65s"),
    ],
)
def test_samples_that_can_never_show_that_a_group_is_stuck_are_refused(words, message):
    ended = CliRunner().invoke(grouplag.status, ["--zookeeper", "h:1", "--group", "g", *words])
    assert (ended.exit_code, message in " ".join(ended.stderr.split())) == (2, True), ended.stderr


def test_status_takes_groups_by_name_or_by_pattern():
    ended = CliRunner().invoke(grouplag.status, ["--zookeeper", "h:1", "--group", "g", "--match", "g.*"])
    assert (ended.exit_code, "give --group or --match, not both" in ended.stderr) == (2, True)


def test_a_watch_outlasts_the_expiry_of_its_session(monkeypatch):
    with closing(session_in_memory(ZooKeeperInMemory())) as session:
        session.ensure_path("/consumers", b"")
        ask, asked = session._client._ask, []

        def expired_at_first(request):
            asked.append(request)
            return SessionExpiredError() if len(asked) == 1 else ask(request)

        monkeypatch.setattr(session._client, "_ask", expired_at_first)
        monkeypatch.setattr(groupsource, "tool_session", lambda _config: nullcontext(session))
        options = ["--zookeeper", "h:1", "--interval", "10ms", "--for", "1s"]
        ended = CliRunner().invoke(grouplag.watch, options)
    assert ended.exit_code == 0, ended.exception
    assert "expired" in ended.stderr
    assert len(asked) > 1


SILENT = BrokerUnavailable("no broker answers")


class Source:
    """A group that each sample reads, does not read, or fails at, as a test says; the last one again and again."""

    times = SimpleNamespace(look_up=None)
    unlisted = ()

    def __init__(self, samples):
        self.samples = list(samples)

    def begin_round(self):
        pass

    def names(self):
        return ["g"]

    def look(self, groups, at):
        sample = self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]
        if sample == "failed":
            raise SILENT
        if sample == "unread":
            return GroupsLook({}, {}, {"g": SILENT}, ())
        if sample in ("stuck", "no log end"):
            end = None if sample == "no log end" else 9
            seen = LagSample(at, 5, 1, 0, end, "g_a-0", True, is_unread=end is None)
            group = group_znodes(members={"g_a": Subscription.static({"t": 1})})
            return GroupsLook({"g": group}, {"g": {TopicPartition("t", 0): seen}}, {}, ())
        return GroupsLook({"g": group_znodes()}, {"g": {}}, {}, ())


READ, UNREAD = "g: is read again", "g: cannot be read: no broker answers"


@pytest.mark.parametrize(
    ("samples", "lines", "code"),
    [
        (["read", "unread", "unread", "read"], [UNREAD, READ], 0),
        (["read", "failed", "failed", "read"], [UNREAD, READ], 0),
        (["read", "unread", "failed"], [UNREAD], 3),
        (["read", "read", "unread"], [UNREAD], 3),
    ],
)
def test_a_watch_shows_that_a_group_cannot_be_read_and_ends_with_3_if_so_at_the_end(monkeypatch, samples, lines, code):
    sampler = LagSampler(Source(samples), window=2)
    monkeypatch.setattr(grouplag, "_open_sampler", lambda *_: nullcontext(sampler))
    ended = CliRunner().invoke(grouplag.watch, ["--zookeeper", "h:1", "--interval", "10ms", "--for", "500ms"])
    first, *others = [line.split(" ", 1)[1] for line in ended.stdout.splitlines()]
    assert (first, others) == ("g: watching, NO MEMBERS, lag 0", lines)
    assert ended.exit_code == code, ended.exception


def test_a_watch_of_a_group_that_was_never_read_ends_with_its_error(monkeypatch):
    sampler = LagSampler(Source(["unread"]), window=2)
    monkeypatch.setattr(grouplag, "_open_sampler", lambda *_: nullcontext(sampler))
    ended = CliRunner().invoke(grouplag.watch, ["--group", "g", "--zookeeper", "h:1", "--for", "10ms"])
    assert (ended.stdout.splitlines()[0].split(" ", 1)[1], ended.exception) == (UNREAD, SILENT)


LOST = "warning: the lag of group g cannot be judged: {} of 34 samples could not read all of it"


@pytest.mark.parametrize(
    ("samples", "status", "warning"),
    [
        (["stuck"], "STALL", ""),
        (["stuck"] * 12 + ["no log end"] * 3 + ["stuck"], "STALL", ""),
        (["stuck"] * 12 + ["unread"] * 19 + ["stuck"], "STALL", ""),
        (["no log end"] * 3 + ["stuck"], "UNKNOWN", LOST.format(3)),
    ],
)
def test_lost_samples_do_not_hide_that_a_group_is_stuck(monkeypatch, samples, status, warning):
    """It was UNKNOWN, with exit code 0 and without a warning, if a broker was silent for 5 s of 66 s."""
    sampler = LagSampler(Source(samples), window=34, with_ages=False)
    monkeypatch.setattr(grouplag, "_open_sampler", lambda *_: nullcontext(sampler))
    monkeypatch.setattr(
        grouplag, "_ticks", lambda interval, count: (time.monotonic() + interval * (n + 1) for n in range(count))
    )
    ended = CliRunner().invoke(
        grouplag.status, ["--zookeeper", "h:1", "--match", "g.*", "--interval", "2s", "--json"], catch_exceptions=False
    )
    (found,) = json.loads(ended.stdout)
    assert (found["status"], ended.stderr.strip(), ended.exit_code) == (status, warning, 3)


def test_a_watch_in_a_pipe_prints_the_lag_from_time_to_time(capsys):
    view = grouplag._ChangeLines(as_json=False, every=0.0)
    sampler = LagSampler(Source(["read"]), window=2)
    sampler.sample(["g"], 0.0)
    view.show(sampler)
    view.show(sampler)
    lines = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["g: watching, NO MEMBERS, lag 0", "g: NO MEMBERS, lag 0", "g: NO MEMBERS, lag 0"]
