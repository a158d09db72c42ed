"""The consumers' output, compared record by record with the source.

The output of a killed process may end in an incomplete line. That record was never committed, so another consumer has
to deliver it again: the incomplete line is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from demo.flights import Records

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)


@dataclass(frozen=True)
class Output:
    """The complete lines of one file: a table of the JSON lines, and the number of the others."""

    lines: Any
    unreadable: int = 0


@dataclass(frozen=True)
class Delivery:
    """The result of the comparison.

    Attributes:
        source: number of records in the source.
        lines: number of complete lines in all outputs.
        missing: number of source records without an unaltered line.
        duplicates: number of unaltered lines after the first one of the same record.
        duplicated_partitions: partitions with duplicates.
        altered: number of lines that differ from the source in value, key, timestamp, partition or offset, or are not
            JSON.
    """

    source: int
    lines: int
    missing: int
    duplicates: int
    duplicated_partitions: tuple[int, ...]
    altered: int


def read_output(path: Path) -> Output:
    """Read a file of ``consume --format json``."""
    data = path.read_bytes()
    data = data[: data.rfind(b"\n") + 1]
    try:
        return Output(_parse(data))
    except (pa.ArrowInvalid, KeyError):
        # Arrow fails at the first malformed line; this slower way counts them.
        good = [line for line in data.splitlines() if _is_record(line)]
        return Output(_parse(b"".join(line + b"\n" for line in good)), data.count(b"\n") - len(good))


def _parse(data: bytes) -> Any:
    if not data:
        return _SCHEMA.empty_table()
    options = pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
    return pyarrow.json.read_json(pa.BufferReader(data), parse_options=options).select(_SCHEMA.names)


def _is_record(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and all(
        isinstance(document.get(field.name), str if field.type == pa.string() else int) for field in _SCHEMA
    )


def compare(source: Records, outputs: Sequence[Output]) -> Delivery:
    """Compare the outputs of all consumers with the produced records.

    A line counts as a delivery only if value, key, timestamp, partition and offset are those of one source record.
    """
    lines = pa.concat_tables([_SCHEMA.empty_table(), *(output.lines for output in outputs)])
    unreadable = sum(output.unreadable for output in outputs)
    rows = pc.index_in(lines["value"], value_set=source.values)
    found = np.asarray(rows.is_valid())
    row = rows.fill_null(0).to_numpy()
    same = found & np.asarray(pc.equal(lines["key"], source.keys.take(pa.array(row))).fill_null(False))
    for name, expected in (
        ("timestamp", source.timestamps),
        ("partition", source.partitions),
        ("offset", source.offsets),
    ):
        same &= lines[name].fill_null(-1).to_numpy() == expected[row]
    deliveries = np.bincount(row[same], minlength=len(source))
    return Delivery(
        source=len(source),
        lines=lines.num_rows + unreadable,
        missing=int((deliveries == 0).sum()),
        duplicates=int(np.maximum(deliveries - 1, 0).sum()),
        duplicated_partitions=tuple(np.unique(source.partitions[deliveries > 1]).tolist()),
        altered=int((~same).sum()) + unreadable,
    )
