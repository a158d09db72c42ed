"""Which groups ``fleet init`` writes into the file of a fleet, and what it notes of each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from zkconsumer.operate.migrate.rules.fleetfile import FoundGroup
from zkconsumer.operate.migrate.rules.surveyverdict import Level, Survey, SurveyVerdict


def found_groups(surveys: Iterable[Survey]) -> list[FoundGroup]:
    """The groups that were not migrated, those with the fewest partitions first.

    A group whose offsets are all in Kafka is in no wave: there is nothing to write, and a mirror would give it offsets
    in ZooKeeper that it never had.
    """
    found = []
    for one in sorted(surveys, key=lambda one: (len(one.facts.partitions), one.facts.group)):
        if one.verdict is SurveyVerdict.MIGRATED:
            continue
        counts = f"{len(one.facts.members)} members, {len(one.facts.partitions)} partitions"
        needs_none = one.facts.storage == "kafka"
        remarks = ["all offsets are in Kafka: no plan needed"] if needs_none else []
        remarks += [_for_file(finding.text) for finding in one.findings if finding.level is not Level.NOTE]
        note = f"{one.verdict.value}, {counts}{': ' if remarks else ''}{'; '.join(remarks)}"
        is_ready = one.verdict is not SurveyVerdict.NOT_READY and not needs_none
        found.append(FoundGroup(one.facts.group, note, is_ready))
    return found


def _for_file(text: str) -> str:
    """A remark for people who edit the file: an option of ``migrate plan`` as the key that the file has for it.

    >>> _for_file("decide (--missing earliest or --missing latest)")
    'decide (missing = "earliest" or missing = "latest")'
    """
    return re.sub(r"--missing (\w+)", r'missing = "\1"', text)
