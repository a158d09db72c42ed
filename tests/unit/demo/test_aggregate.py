"""The aggregate from the source, compared with the simplest computation."""

from collections import defaultdict

import pytest

from demo.aggregate import FIGURES, differing, from_rows, from_source
from demo.flights import read_flights


def test_aggregate_of_all_flights_equals_a_plain_loop() -> None:
    table = read_flights()
    plain: dict[str, list] = defaultdict(lambda: [0, 0, 0, None, None])
    columns = (table[name].to_pylist() for name in ("origin", "dest", "dep_time", "distance", "air_time", "dep_delay"))
    for origin, dest, departed, distance, air_time, delay in zip(*columns, strict=True):
        figures = plain[f"{origin}-{dest}"]
        figures[0] += 1
        figures[1] += departed is not None
        figures[2] += distance
        if air_time is not None:
            figures[3] = (figures[3] or 0) + air_time
        if delay is not None:
            figures[4] = delay if figures[4] is None else max(delay, figures[4])
    found = from_source(table)
    assert found == {route: tuple(figures) for route, figures in plain.items()}
    assert found["EWR-LGA"] == (1, 0, 17, None, None), "a route whose only flight was cancelled"


@pytest.mark.parametrize(
    ("actual", "routes"),
    [
        ({"A-B": (1, 1), "C-D": (2, None)}, []),
        ({"A-B": (1, 2), "C-D": (2, None)}, ["A-B"]),
        ({"A-B": (1, 1)}, ["C-D"]),
        ({"A-B": (1, 1), "C-D": (2, None), "E-F": (0,)}, ["E-F"]),
        ({}, ["A-B", "C-D"]),
    ],
)
def test_differing(actual: dict, routes: list[str]) -> None:
    assert differing({"A-B": (1, 1), "C-D": (2, None)}, actual) == routes


def test_rows_of_the_query() -> None:
    row = {"route": "A-B", **{name: number for number, name in enumerate(FIGURES)}}
    assert from_rows([row]) == {"A-B": (0, 1, 2, 3, 4)}
