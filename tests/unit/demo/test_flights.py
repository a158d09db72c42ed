"""The data set and the records made of it."""

import json

import numpy as np
import pytest

from demo.flights import FIELDS, Records, as_records, parse_flights, read_flights

PARTITIONS = 8


@pytest.fixture(scope="module")
def records() -> Records:
    return as_records(read_flights(), PARTITIONS)


def test_all_flights_are_there_with_all_fields(records: Records) -> None:
    assert len(records) == 336_776
    assert records.table.column_names == list(FIELDS)


def test_values_are_the_json_of_the_rows(records: Records) -> None:
    cancelled = int(np.flatnonzero(records.table["dep_time"].is_null().to_numpy())[0])
    without_plane = int(np.flatnonzero(records.table["tailnum"].is_null().to_numpy())[0])
    for row in (0, cancelled, without_plane, 100_000, len(records) - 1):
        fields = records.table.slice(row, 1).to_pylist()[0]
        assert records.values[row].as_py() == json.dumps(fields, separators=(",", ":"))
        assert fields["row"] == row


def test_no_text_needs_escaping(records: Records) -> None:
    text = "".join(
        text
        for name in ("carrier", "tailnum", "origin", "dest")
        for text in records.table[name].unique().to_pylist()
        if text
    )
    assert text.isascii()
    assert text.isalnum()


def test_a_key_is_a_route_and_lives_in_one_partition(records: Records) -> None:
    places = set(zip(records.keys.to_pylist(), records.partitions.tolist(), strict=True))
    assert len(places) == records.key_count() == 224
    assert ("JFK-LAX", 5) in places


def test_every_partition_gets_records_and_they_are_numbered(records: Records) -> None:
    sizes = records.partition_sizes(PARTITIONS)
    assert sum(sizes) == len(records)
    assert min(sizes) > 20_000
    for partition, size in enumerate(sizes):
        assert records.offsets[records.partitions == partition].tolist() == list(range(size))


def test_timestamps_are_those_of_the_flights() -> None:
    header = ",".join(name for name in FIELDS if name != "row")
    line = "2013,1,1,,1630,,,1815,,EV,4308,,EWR,RDU,,416,16,30,2013-01-01T21:00:00Z"
    records = as_records(parse_flights(f"{header}\n{line}\n".encode()), 1)
    assert records.timestamps.tolist() == [1_357_074_000_000]
    assert json.loads(records.values[0].as_py())["tailnum"] is None
