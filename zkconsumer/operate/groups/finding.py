"""Finding: one thing that keeps a group from consuming, with its evidence and what to do about it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was found.

    Attributes:
        kind: its name, for programs.
        subject: member, partition, topic or broker.
        evidence: what was read, in words.
        to_do: what people should do, or look at, in words; empty if the command alone is to be run.
        next_command: the command to run then, as it can be pasted into a shell; empty if there is none.
        is_problem: False if nothing is wrong, such as of a group that was migrated.
    """

    kind: str
    subject: str
    evidence: str
    to_do: str
    next_command: str = ""
    is_problem: bool = True


def utc_time(ms: int) -> str:
    """A time in ms since the epoch, in UTC; as a number, if it lies outside the years that dates have.

    >>> utc_time(0), utc_time(10**18)
    ('1970-01-01T00:00:00Z', '1000000000000000000')
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)


def describe_topic(topic: str, bootstrap_servers: str | None) -> str:
    """To run Kafka's command that shows the leaders and replicas of a topic; with the servers if they are known."""
    servers = ["--bootstrap-server", bootstrap_servers] if bootstrap_servers else []
    return f"run {shlex.join(['kafka-topics.sh', '--describe', '--topic', topic, *servers])}"
