"""Finding: one thing that keeps a group from consuming, with its evidence and the next command."""

from __future__ import annotations

import shlex
from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        kind: its name, for programs.
        subject: member, partition, topic or broker.
        evidence: what was read, in words.
        next_command: what to run or to look at next.
    """

    kind: str
    subject: str
    evidence: str
    next_command: str


def describe_topic(topic: str, bootstrap_servers: str | None) -> str:
    """The command that shows the leaders and replicas of a topic, with the servers if they are known."""
    servers = ["--bootstrap-server", bootstrap_servers] if bootstrap_servers else []
    return shlex.join(["kafka-topics.sh", "--describe", "--topic", topic, *servers])
