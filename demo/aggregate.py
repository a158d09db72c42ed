"""The aggregate that the demo's Spark query computes, computed from the source file without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

FIGURES = ("flights", "departed", "distance", "air_time", "worst_delay")
"""Figures of each route: flights planned, flights departed, sum of miles, sum of minutes, largest delay."""

Aggregate = Mapping[str, tuple[int | None, ...]]
"""Route to its :data:`FIGURES`; None if no flight has the field."""


def from_source(table: Any) -> Aggregate:
    """Aggregate the flights by route."""
    routes = pc.binary_join_element_wise(table["origin"], table["dest"], "-")
    grouped = pa.table({**{name: table[name] for name in table.column_names}, "route": routes}).group_by("route")
    result = grouped.aggregate(
        [
            ("row", "count"),
            ("dep_time", "count"),
            ("distance", "sum"),
            ("air_time", "sum"),
            ("dep_delay", "max"),
        ]
    ).select(["route", "row_count", "dep_time_count", "distance_sum", "air_time_sum", "dep_delay_max"])
    return _by_route(zip(*(column.to_pylist() for column in result.columns), strict=True))


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Aggregate:
    """Parse the result rows of the Spark query; see ``sparkjob.py``."""
    return _by_route((row["route"], *(row[name] for name in FIGURES)) for row in rows)


def _by_route(rows: Iterable[tuple[Any, ...]]) -> Aggregate:
    return {route: tuple(figures) for route, *figures in rows}


def differing(expected: Aggregate, actual: Aggregate) -> list[str]:
    """Routes whose figures differ, or that only one of the two has."""
    return sorted(route for route in expected.keys() | actual.keys() if expected.get(route) != actual.get(route))
