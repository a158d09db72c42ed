"""Health of a consumer process, by its own metrics: whether it is connected to ZooKeeper and delivers records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_GAUGES: Final = {
    "zkconsumer_zookeeper_connected": "not connected to ZooKeeper",
    "zkconsumer_delivering": "delivers no records because ZooKeeper has not answered for too long",
}
"""Gauges that are 1 in a healthy consumer, and the problem if they are not."""

_MEMBER_STATE: Final = "zkconsumer_member_state"


def health_problems(exposition: str) -> list[str]:
    """Problems of the consumers that a metrics page describes; empty if all of them are healthy.

    Args:
        exposition: the page in Prometheus's text format.

    Returns:
        One sentence for each problem, with the group. A page without metrics of a consumer is a problem, too.
    """
    from prometheus_client.parser import text_string_to_metric_families

    problems: list[str] = []
    found: set[str] = set()
    try:
        samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    except ValueError as error:
        return [f"the metrics cannot be read: {error}; check that metrics.port is the port of a consumer"]
    for sample in samples:
        found.add(sample.name)
        problem = _problem_of(sample.name, sample.labels, sample.value)
        if problem:
            problems.append(f"group {sample.labels.get('group_id', '')}: {problem}")
    missing = [name for name in _GAUGES if name not in found]
    if missing:
        problems.append(f"no metric {', '.join(missing)}; check that metrics.port is the port of a consumer")
    return problems


def _problem_of(name: str, labels: Mapping[str, str], value: float) -> str | None:
    if name in _GAUGES:
        return None if value == 1 else _GAUGES[name]
    if name == _MEMBER_STATE and labels.get("state") == "closed" and value == 1:
        return "has left the group"
    return None
