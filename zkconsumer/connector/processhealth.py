"""Health of a consumer process, by its own metrics: whether the process itself works.

Orchestrators restart what is unhealthy. So a process is unhealthy if a restart may help: it is not a consumer, or it
has left the group and delivers nothing more. What a consumer waits for and continues from by itself is a note: a
restart while ZooKeeper is away would end the session, and the new process could not join.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_GAUGES: Final = {
    "zkconsumer_zookeeper_connected": "not connected to ZooKeeper or the coordinator; it connects again by itself",
    "zkconsumer_delivering": "delivers no records until ZooKeeper or the coordinator answers",
}
"""Gauges that every consumer has, and the note if they are not 1."""

_MEMBER_STATE: Final = "zkconsumer_member_state"


class Health(NamedTuple):
    """Health of the consumers of a process, in sentences that name the group.

    Attributes:
        problems: what makes it unhealthy; empty if it is healthy.
        notes: what the consumers wait for.
    """

    problems: list[str]
    notes: list[str]


def health_of(exposition: str) -> Health:
    """The health of the consumers that a metrics page describes. A page without a consumer is a problem.

    Args:
        exposition: the page in Prometheus's text format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    problems: list[str] = []
    notes: list[str] = []
    names: set[str] = set()
    try:
        samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    except ValueError as error:
        return Health([f"the metrics cannot be read: {error}; check that metrics.port is the port of a consumer"], [])
    for sample in samples:
        names.add(sample.name)
        group = f"group {sample.labels.get('group_id', '')}"
        if sample.name in _GAUGES and sample.value != 1:
            notes.append(f"{group}: {_GAUGES[sample.name]}")
        if sample.name == _MEMBER_STATE and sample.value == 1:
            match sample.labels.get("state"):
                case "closed":
                    problems.append(f"{group}: has left the group, and delivers nothing more")
                case "latent" | "rebalancing":
                    notes.append(f"{group}: joins the group or rebalances")
    missing = [name for name in _GAUGES if name not in names]
    if missing:
        problems.append(f"no metric {', '.join(missing)}; check that metrics.port is the port of a consumer")
    return Health(problems, notes)
