"""GroupSampling: the thread that samples the groups again and again, and publishes a snapshot each time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.operate.groups.grouplist import matching
from zkconsumer.operate.groups.lagsamples import LagSampler
from zkconsumer.operate.groups.reportedproblems import ReportedProblems
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.operate.serve.groupsnapshots import GroupsSnapshot, LagRecorder
from zkconsumer.operate.serve.historyfile import HistoryFile

_log = logging.getLogger(__name__)


class GroupSampling:
    """Samples on a thread of its own until :meth:`stop`.

    The first of several samples that fail is logged; the last snapshot stays, and becomes stale. What a sample cannot
    read is logged when that changes.

    Args:
        sampler: used by this thread alone, from :meth:`start` on.
        recorder: makes a snapshot of each sample; used by this thread alone as well.
        interval: seconds from the beginning of a sample to that of the next.
        file: keeps each snapshot; used by this thread alone. None if the history is in memory only.
        pattern: regex of the groups, see :func:`~zkconsumer.operate.groups.grouplist.matching`.
        on_failure: called on the thread if it ends because of a defect.

    Attributes:
        newest: the last snapshot, None before the first; only the thread writes it.
        unsampled: why the last sample failed, None if it did not; only the thread writes it.
        servers: which servers the last sample has asked, also one that failed, and which answer; only the thread
            writes it.
        ended: when the last sample ended, also one that failed, in seconds of the monotonic clock; when this was made,
            before the first one; only the thread writes it.
        failure: why the thread ended, None if it did not.
    """

    def __init__(
        self,
        sampler: LagSampler,
        recorder: LagRecorder,
        interval: float,
        *,
        file: HistoryFile | None = None,
        pattern: str | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._sampler = sampler
        self._recorder = recorder
        self._interval = interval
        self._file = file
        self._pattern = pattern
        self._on_failure = on_failure
        self._is_file_failing = False
        self._reported = ReportedProblems()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="serve-sampling", daemon=True)
        self.newest: GroupsSnapshot | None = None
        self.unsampled: str | None = None
        self.servers: tuple[ServerAnswer, ...] = ()
        self.ended = time.monotonic()
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begin with the first sample."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End after the sample in progress; idempotent.

        Args:
            timeout: seconds to wait for that.

        Returns:
            True if the thread has ended.
        """
        self._stopping.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def describe(self) -> str:
        """The newest snapshot in one line, for the log."""
        newest = self.newest
        if newest is None:
            return "none yet"
        age = time.monotonic() - newest.at
        return f"{len(newest.groups)} groups, {age:.0f} s ago, took {newest.seconds:.1f} s, problems: {newest.problems}"

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                self._sample(began)
                self.ended = time.monotonic()
                self._stopping.wait(max(0.0, began + self._interval - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - a defect ends the command, not only this thread
            _log.exception("sampling has ended")
            self.failure = error
            self._on_failure()

    def _sample(self, began: float) -> None:
        at_ms = round(time.time() * 1000)
        try:
            self._sampler.sample(matching(self._sampler.groups(), self._pattern), began)
        except ZkConsumerError as error:
            level = logging.DEBUG if self.unsampled is not None else logging.WARNING
            _log.log(level, "no sample, trying again every %g s: %s", self._interval, error)
            self.unsampled = str(error)
            return
        finally:
            self.servers = self._sampler.servers()
        if self.unsampled is not None:
            _log.warning("samples are taken again")
        self.unsampled = None
        self._log_problems()
        seconds = time.monotonic() - began
        self.newest = self._recorder.record(self._sampler, at=began, at_ms=at_ms, seconds=seconds)
        if self._file is not None:
            self._append(self._file, self.newest)

    def _append(self, file: HistoryFile, snapshot: GroupsSnapshot) -> None:
        """Keep a snapshot in the file. If that fails, sampling continues, and the next snapshot is tried again."""
        try:
            file.append(snapshot)
        except ZkConsumerError as error:
            _log.log(logging.DEBUG if self._is_file_failing else logging.WARNING, "%s", error)
            self._is_file_failing = True
        else:
            if self._is_file_failing:
                _log.warning("the history is written again; a restart misses what was sampled in between")
            self._is_file_failing = False

    def _log_problems(self) -> None:
        report = self._reported.after(self._sampler.problems)
        if report.new:
            _log.warning("a sample is incomplete: %s", name_some(sorted(report.new)))
        if report.ended:
            _log.warning("samples are complete again")
