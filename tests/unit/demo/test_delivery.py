"""The comparison of the consumers' output with the source."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from demo.delivery import Delivery, compare, read_output
from demo.flights import Records


def line(source: Records, row: int, **changed: Any) -> str:
    document = {
        "topic": "t",
        "partition": int(source.partitions[row]),
        "offset": int(source.offsets[row]),
        "timestamp": int(source.timestamps[row]),
        "key": source.keys[row].as_py(),
        "value": source.values[row].as_py(),
    }
    return json.dumps({**document, **changed}) + "\n"


def delivery(tmp_path: Path, source: Records, *files: Iterable[str]) -> Delivery:
    paths = []
    for number, lines in enumerate(files):
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("".join(lines))
    return compare(source, [read_output(path) for path in paths])


def test_everything_once_over_several_files(tmp_path: Path, source: Records) -> None:
    found = delivery(tmp_path, source, [line(source, 3), line(source, 0)], [line(source, n) for n in (1, 4, 2)], [])
    assert found == Delivery(source=5, lines=5, missing=0, duplicates=0, duplicated_partitions=(), altered=0)


def test_missing_and_duplicates(tmp_path: Path, source: Records) -> None:
    found = delivery(tmp_path, source, [line(source, n) for n in (0, 1, 1)], [line(source, n) for n in (1, 2)])
    assert found == Delivery(source=5, lines=5, missing=2, duplicates=2, duplicated_partitions=(1,), altered=0)


@pytest.mark.parametrize(
    "change",
    [
        {"value": '{"row":99}'},
        {"value": None},
        {"key": "k4"},
        {"key": None},
        {"timestamp": 1},
        {"timestamp": None},
        {"partition": 1},
        {"offset": 7},
    ],
)
def test_a_line_with_any_difference_is_no_delivery(tmp_path: Path, source: Records, change: dict[str, Any]) -> None:
    lines = [line(source, n) for n in (1, 2, 3, 4)]
    found = delivery(tmp_path, source, [*lines, line(source, 0, **change)])
    assert found == Delivery(source=5, lines=5, missing=1, duplicates=0, duplicated_partitions=(), altered=1)


def test_an_incomplete_last_line_is_ignored(tmp_path: Path, source: Records) -> None:
    whole = [line(source, n) for n in range(5)]
    for length in (1, 30, len(whole[4]) - 1):
        found = delivery(tmp_path, source, [*whole[:4], whole[4][:length]])
        assert found == Delivery(source=5, lines=4, missing=1, duplicates=0, duplicated_partitions=(), altered=0)


@pytest.mark.parametrize("rubbish", ['"offset":3}\n', "[]\n", '{"value":"x"}\n', "\0\0\0\n"])
def test_lines_that_are_no_records_are_counted(tmp_path: Path, source: Records, rubbish: str) -> None:
    found = delivery(tmp_path, source, [rubbish, *(line(source, n) for n in range(5))])
    assert found == Delivery(source=5, lines=6, missing=0, duplicates=0, duplicated_partitions=(), altered=1)


def test_without_output_all_records_are_missing(source: Records) -> None:
    assert compare(source, []) == Delivery(
        source=5, lines=0, missing=5, duplicates=0, duplicated_partitions=(), altered=0
    )
