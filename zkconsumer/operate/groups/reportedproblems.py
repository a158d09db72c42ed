"""ReportedProblems: what samples could not read, each reported once until a sample is complete again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ProblemReport(NamedTuple):
    """What to report after a sample.

    Attributes:
        new: problems that were not reported since the last complete sample, in order.
        ended: True if this sample is complete and an earlier one was not.
    """

    new: tuple[str, ...]
    ended: bool


class ReportedProblems:
    """Remembers what was reported; one thread uses it.

    Brokers that end are noticed in different words by each sample, and the words come again: so a problem is not
    compared with those of the last sample only.
    """

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def after(self, problems: Sequence[str]) -> ProblemReport:
        """What to report, given all problems of the newest sample."""
        new = tuple(problem for problem in dict.fromkeys(problems) if problem not in self._reported)
        ended = bool(self._reported) and not problems
        self._reported = set() if ended else self._reported.union(new)
        return ProblemReport(new, ended)
