"""One trial: a group goes through a schedule of faults, and its ledger is checked and judged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from tests.chaos.feed import LedgerFeed
from tests.chaos.group import Group
from tests.chaos.injector import Injector
from tests.chaos.kinds import JVM, SESSION_S
from tests.chaos.members import JvmMember
from tests.chaos.ownrow import OwnRow
from tests.chaos.rows import Row
from tests.chaos.schedule import Fault, Schedule, shrink
from tests.chaos.servers import Servers
from tests.chaos.verdicts import Evidence, Verdict
from zkconsumer.testing.checker import check, lost_records
from zkconsumer.testing.ledger import Ledger
from zkconsumer.testing.ledgerfile import SUFFIX, LedgerFile

_BACKLOG_S = 10
_STALLED_S = 40.0
"""After this long without a delivery nothing more is coming: longer than a session, an outage, a rebalance and the
start of a process on a busy machine together.
"""
_STALLED_BROKEN_S = 15.0
"""The same for members that are broken on purpose, which may have lost records."""
_LOOK_S = 0.4
_ATTEMPTS = 3


def run_undisturbed_trial(servers: Servers, row: Row, schedule: Schedule, *, broken: Sequence[str] = ()) -> Verdict:
    """As :func:`run_trial`, and again where a trial has failed in which the machine did more than the schedule.

    Sessions last 2 s: on a machine that stands still for longer every member can lose its own, its partitions, and
    what it had not committed. A trial that failed without that is not repeated.
    """
    for _ in range(_ATTEMPTS):
        verdict = run_trial(servers, row, schedule, broken=broken)
        if not (verdict.failures and verdict.disturbance):
            break
    return verdict


def run_trial(
    servers: Servers, row: Row, schedule: Schedule, *, broken: Sequence[str] = (), backlog: int | None = None
) -> Verdict:
    """Run a schedule and judge it; the files of a trial that failed stay in the directory of the servers.

    ``backlog`` records are there when the members start, by default what the row produces in 10 s.
    """
    if isinstance(row, OwnRow):
        return row.trial(servers, schedule)
    name = f"{row.name}-{uuid.uuid4().hex[:8]}"
    address, failures, erases = servers.box.bootstrap_servers, [], schedule.erases
    with (
        Group(
            servers,
            name,
            manual=schedule.manual,
            done=schedule.done,
            storage=schedule.storage,
            broken=broken,
            listens=schedule.listens,
            erases=erases,
        ) as group,
        LedgerFeed(
            address,
            name,
            group.ledger,
            backlog=_BACKLOG_S * row.per_second if backlog is None else backlog,
            per_second=row.per_second,
            idempotent=not erases,
        ) as feed,
    ):
        try:
            group.join(schedule.members)
            Injector(group, feed).run(schedule)
            group.settle()
        except AssertionError as error:  # a group that does not settle is a result
            failures.append(str(error))
        feed.stop()
        if erases:
            group.note_gone()
        await_deliveries(group, _STALLED_BROKEN_S if broken else _STALLED_S)
        try:
            group.leave_all()
        except Exception as error:  # noqa: BLE001 - one that does not leave is a result, too
            failures.append(f"leaving: {error}")
        ledger = group.whole_ledger()
        ours = frozenset(member.owner for member in group.everyone if not isinstance(member, JvmMember))
        kind = next((kind for kind in schedule.members if kind != JVM), JVM)
        verdict = row.verdict(Evidence(ledger, check(ledger), ours, SESSION_S, schedule.manual, kind))
        verdict.failures = [*failures, *verdict.failures]
        if step := group.clock_step():
            verdict.disturbance = f"the time of day has stepped by {step:.3f} s"
    if verdict.failures:
        (group.directory / "schedule.json").write_text(schedule.to_json(), encoding="utf-8")
        keep_ledger(group, ledger)
    else:
        group.remove_files()
    return verdict


def keep_ledger(group: Group, ledger: Ledger) -> None:
    """Make one file of all records, so that they can be checked again when the servers are gone."""
    for path in group.directory.glob(f"*{SUFFIX}"):
        path.unlink()
    whole = LedgerFile(group.directory / f"whole{SUFFIX}")
    whole.append(*ledger.records)
    whole.close()


def await_deliveries(group: Group, patience_s: float = _STALLED_S) -> None:
    """Return when every record was delivered, or when nothing has been delivered for so many seconds."""
    size, changed = group.delivered(), time.monotonic()
    while lost_records(group.recorded()):
        time.sleep(_LOOK_S)
        now = time.monotonic()
        if (newest := group.delivered()) != size:
            size, changed = newest, now
        elif now - changed > patience_s:
            return


def shrink_schedule(servers: Servers, row: Row, schedule: Schedule, *, broken: Sequence[str] = ()) -> Schedule:
    """A schedule with as few of the faults as still fail."""

    def fails(faults: Sequence[Fault]) -> bool:
        smaller = replace(schedule, faults=tuple(faults))
        return bool(run_undisturbed_trial(servers, row, smaller, broken=broken).failures)

    return replace(schedule, faults=tuple(shrink(schedule.faults, fails)))
