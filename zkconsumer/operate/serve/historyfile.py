"""HistoryFile: the history of all groups in an SQLite file, so that a restart of ``serve`` loses nothing.

One row of a group and a sample holds the numbers of all its partitions; 10,000 partitions take 160 KB for each sample.
Times in the file are in ms since the epoch; those of samples are converted when the file is read, since the clock of
samples begins again with each process.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import lag
from zkconsumer.operate.groups.rules.lagstretches import LagSample, Stretch, Stretches
from zkconsumer.operate.serve.groupsnapshots import (
    GroupSnapshot,
    GroupsSnapshot,
    LagRow,
    Rebalance,
    RecordedGroup,
    packed,
    unpacked,
)

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_APPENDED_BETWEEN: Final = 100
"""Snapshots from one search for groups that are gone to the next."""

_SCHEMA: Final = """
CREATE TABLE groups (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE);
CREATE TABLE partitions (id INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, names TEXT NOT NULL,
    UNIQUE (group_id, names));
CREATE TABLE samples (
    at_ms INTEGER NOT NULL, group_id INTEGER NOT NULL, partitions_id INTEGER NOT NULL,
    committed BLOB NOT NULL, log_ends BLOB NOT NULL, PRIMARY KEY (at_ms, group_id)
) WITHOUT ROWID;
CREATE TABLE rebalances (
    at_ms INTEGER NOT NULL, group_id INTEGER NOT NULL, partitions INTEGER NOT NULL, joined TEXT NOT NULL,
    gone TEXT NOT NULL, PRIMARY KEY (at_ms, group_id)
) WITHOUT ROWID;
CREATE TABLE stretches (group_id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, of_partitions TEXT NOT NULL);
"""


class EarlierGroup(NamedTuple):
    """What a former process has recorded of a group.

    Attributes:
        recorded: its rows and rebalances.
        samples: the last samples of each partition of the newest row, oldest first.
    """

    recorded: RecordedGroup
    samples: Mapping[TopicPartition, Sequence[LagSample]]


class _Partitions(NamedTuple):
    """The partitions of a group's newest row, and their id in the file."""

    id: int
    partitions: tuple[TopicPartition, ...]


class HistoryFile:
    """The file of one ``serve``. One thread uses it.

    Args:
        path: of the file, which is created if there is none.
        kept_ms: how long a sample is kept, in ms.

    Raises:
        ZkConsumerError: the file is something else, or another process uses it, or it cannot be written.
    """

    def __init__(self, path: Path, kept_ms: int) -> None:
        self._path = path
        self._kept_ms = kept_ms
        self._appended = 0
        self._group_ids: dict[str, int] = {}
        self._newest: dict[int, _Partitions] = {}
        try:
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                self._begin()
            except sqlite3.Error:
                self._database.close()
                raise
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise ZkConsumerError(
                    f"history {path} is in use by another process, such as another `serve` ({error}); name another file"
                ) from error
            raise ZkConsumerError(
                f"history {path} cannot be used: {error}; check that its directory exists and that the disk has "
                "space, or name another file"
            ) from error

    def _begin(self) -> None:
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master")}
        if version == 0 and not tables:
            self._database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION or not {"groups", "samples"} <= tables:
            raise sqlite3.DatabaseError("it is not the history of this release")

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()

    # -- what a former process has recorded ----------------------------------------------------------------------------

    def earlier(self, now: float, now_ms: int, window: int) -> dict[str, EarlierGroup]:
        """The history of each group.

        Args:
            now: the present time, in seconds of the clock of samples.
            now_ms: the same in ms since the epoch.
            window: how many samples of each partition are wanted besides the rows.

        Raises:
            ZkConsumerError: the file cannot be read.
        """
        try:
            return self._earlier(now - now_ms / 1000, now_ms, window)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise ZkConsumerError(f"history {self._path} cannot be read: {error}; name another file") from error

    def _earlier(self, shift: float, now_ms: int, window: int) -> dict[str, EarlierGroup]:
        execute, kept = self._database.execute, (now_ms - self._kept_ms, now_ms)
        self._try_to_delete(*kept)
        names = {key: _name(name) for key, name in execute("SELECT id, name FROM groups")}
        self._group_ids = {name: key for key, name in names.items()}
        sets = {key: _partitions(text) for key, text in execute("SELECT id, names FROM partitions")}
        rows: dict[int, list[LagRow]] = {key: [] for key in names}
        recent: dict[int, list[tuple[int, int, array[int], array[int]]]] = {key: [] for key in names}
        for at_ms, key, partitions_id, *blobs in execute(
            "SELECT at_ms, group_id, partitions_id, committed, log_ends FROM samples WHERE at_ms BETWEEN ? AND ? "
            "ORDER BY at_ms",
            kept,
        ):
            committed, ends = (_numbers(blob) for blob in blobs)
            rows[key].append(LagRow(at_ms, sets[partitions_id], _lags(committed, ends)))
            recent[key] = [*recent[key][-(window - 1) :], (at_ms, partitions_id, committed, ends)]
            self._newest[key] = _Partitions(partitions_id, sets[partitions_id])
        rebalances: dict[int, list[Rebalance]] = {key: [] for key in names}
        for at_ms, key, count, joined, gone in execute(
            "SELECT * FROM rebalances WHERE at_ms BETWEEN ? AND ? ORDER BY at_ms", kept
        ):
            rebalances[key].append(Rebalance(at_ms, count, tuple(json.loads(joined)), tuple(json.loads(gone))))
        lasting = {key: (at_ms, json.loads(text)) for key, at_ms, text in execute("SELECT * FROM stretches")}
        groups = {}
        for key, name in names.items():
            if not rows[key]:  # it could not be deleted
                continue
            at_ms, of_partitions = lasting.get(key, (None, ()))
            known = of_partitions if at_ms == rows[key][-1].at_ms else ()
            samples = _samples(recent[key], sets, rows[key], known, shift, window)
            groups[name] = EarlierGroup(RecordedGroup(tuple(rows[key]), tuple(rebalances[key])), samples)
        return groups

    def _try_to_delete(self, since_ms: int, now_ms: int) -> None:
        """Delete what is not read; on a full disk it stays, until a sample is added again."""
        try:
            self._delete_outside(since_ms, now_ms)
            self._delete_orphans()
        except sqlite3.Error as error:
            _log.warning("%s", self._unwritten(error))

    def _unwritten(self, error: sqlite3.Error) -> str:
        return f"history {self._path} cannot be written: {error}; check its disk"

    def _delete_outside(self, since_ms: int, now_ms: int) -> None:
        """Delete what is too old, and what is of the future: it was recorded before the clock was set back.

        Such a row would count as the newest one, and what lasts would begin in the future: no partition would be STALL
        or STOP until the clock has caught up.
        """
        for table in ("samples", "rebalances"):
            self._database.execute(f"DELETE FROM {table} WHERE at_ms < ? OR at_ms > ?", (since_ms, now_ms))

    def _delete_orphans(self) -> None:
        """Delete groups and sets of partitions of which no sample is left. It reads the whole file."""
        execute = self._database.execute
        execute("DELETE FROM partitions WHERE id NOT IN (SELECT partitions_id FROM samples)")
        for table, column in (("groups", "id"), ("stretches", "group_id")):
            execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT group_id FROM samples)")
        self._group_ids.clear()
        self._newest.clear()

    # -- what this process records -------------------------------------------------------------------------------------

    def append(self, snapshot: GroupsSnapshot) -> None:
        """Record a snapshot, and delete what has become too old; all of it or nothing.

        Raises:
            ZkConsumerError: the file cannot be written.
        """
        try:
            self._database.execute("BEGIN")
            try:
                for name, group in snapshot.groups.items():
                    if group.unread is None:
                        self._append(name, group, snapshot)
                self._delete_outside(snapshot.at_ms - self._kept_ms, snapshot.at_ms)
                self._appended += 1
                if self._appended % _APPENDED_BETWEEN == 0:
                    self._delete_orphans()
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # a full disk has ended it
                    self._database.execute("ROLLBACK")
                self._group_ids.clear()  # ids may be those of rows that do not exist
                self._newest.clear()
                raise
        except sqlite3.Error as error:
            raise ZkConsumerError(self._unwritten(error)) from error

    def _append(self, name: str, group: GroupSnapshot, snapshot: GroupsSnapshot) -> None:
        key = self._group_ids.get(name) or self._group_id(name)
        row, newest = group.history[-1], [series[-1] for series in group.samples.values()]
        self._database.execute(
            "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?)",
            (
                row.at_ms,
                key,
                self._partitions_id(key, row.partitions),
                packed(sample.committed for sample in newest).tobytes(),
                packed(sample.log_end for sample in newest).tobytes(),
            ),
        )
        lasting = _stretches(group.samples, row.at_ms / 1000 - snapshot.at)
        self._database.execute(
            "INSERT OR REPLACE INTO stretches VALUES (?, ?, ?)", (key, row.at_ms, json.dumps(lasting))
        )
        for rebalance in reversed(group.rebalances):
            if rebalance.at_ms < row.at_ms:
                break
            self._database.execute(
                "INSERT OR REPLACE INTO rebalances VALUES (?, ?, ?, ?, ?)",
                (rebalance.at_ms, key, rebalance.partitions, json.dumps(rebalance.joined), json.dumps(rebalance.left)),
            )

    def _group_id(self, name: str) -> int:
        encoded = name.encode("utf-8", "surrogatepass")
        self._database.execute("INSERT OR IGNORE INTO groups (name) VALUES (?)", (encoded,))
        (key,) = self._database.execute("SELECT id FROM groups WHERE name = ?", (encoded,)).fetchone()
        self._group_ids[name] = int(key)
        return int(key)

    def _partitions_id(self, key: int, partitions: tuple[TopicPartition, ...]) -> int:
        known = self._newest.get(key)
        if known is not None and known.partitions == partitions:
            return known.id
        names = json.dumps([[partition.topic, partition.partition] for partition in partitions])
        self._database.execute("INSERT OR IGNORE INTO partitions (group_id, names) VALUES (?, ?)", (key, names))
        (partitions_id,) = self._database.execute(
            "SELECT id FROM partitions WHERE group_id = ? AND names = ?", (key, names)
        ).fetchone()
        self._newest[key] = _Partitions(int(partitions_id), partitions)
        return int(partitions_id)


def _name(encoded: bytes) -> str:
    return encoded.decode("utf-8", "surrogatepass")


def _partitions(names: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic, number in json.loads(names))


def _numbers(blob: bytes) -> array[int]:
    numbers = array("q")
    numbers.frombytes(blob)
    return numbers


def _lags(committed: Sequence[int], ends: Sequence[int]) -> array[int]:
    return packed(lag(unpacked(offset), unpacked(end)) for offset, end in zip(committed, ends, strict=True))


def _stretches(samples: Mapping[TopicPartition, Sequence[LagSample]], shift: float) -> list[list[object]]:
    """Stretches of the partitions that have lag; the others' are not needed. Times are those of the epoch, in s."""
    return [
        [partition.topic, partition.partition, [_moved(stretch, shift) for stretch in series[-1].stretches[1:]]]
        for partition, series in samples.items()
        if any(series[-1].stretches[1:])
    ]


def _moved(stretch: Stretch | None, shift: float) -> Stretch | None:
    return None if stretch is None else stretch._replace(began=stretch.began + shift)


def _samples(
    recent: Sequence[tuple[int, int, array[int], array[int]]],
    sets: Mapping[int, tuple[TopicPartition, ...]],
    rows: Sequence[LagRow],
    lasting: Iterable[tuple[str, int, Iterable[list[Any] | None]]],
    shift: float,
    window: int,
) -> dict[TopicPartition, list[LagSample]]:
    """The samples of the partitions of the newest row. Who owned them is not recorded."""
    _, newest_id, *_ = recent[-1]
    series: dict[TopicPartition, list[LagSample]] = {partition: [] for partition in sets[newest_id]}
    for at_ms, partitions_id, committed, ends in recent:
        for partition, offset, end in zip(sets[partitions_id], committed, ends, strict=True):
            if partition in series:
                at = at_ms / 1000 + shift
                sample = LagSample(at, unpacked(offset), None, None, unpacked(end), None, owner_live=False)
                series[partition].append(sample)
    former = {id(row.partitions): row.partitions for row in rows}
    indices = {key: {partition: index for index, partition in enumerate(row)} for key, row in former.items()}
    known = {
        TopicPartition(topic, number): [
            None if stretch is None else _moved(Stretch(*stretch), shift) for stretch in stretches
        ]
        for topic, number, stretches in lasting
    }
    for partition, samples in series.items():
        last, stretches = samples[-1], known.get(partition, ())
        if any(sample.lag is not None for sample in samples) or any(stretches):
            lags = (
                (row.at_ms / 1000 + shift, row.lag(indices[id(row.partitions)].get(partition)))
                for row in reversed(rows)
            )
            samples[-1] = last._replace(stretches=Stretches(_seen(last, lags, window), *stretches))
    return series


def _seen(last: LagSample, lags: Iterable[tuple[float, int | None]], window: int) -> Stretch | None:
    """For how long a partition is known to have been seen; ``lags`` are those at the times of the rows, newest first.

    The lag of the last sample may be unknown: 1. a broker is silent, or restarts; 2. this process is restarted.
    """
    seen: Stretch | None = None
    for at, lag_then in lags:
        if seen is not None and seen.judges(last.at, window):  # earlier rows change no verdict
            break
        if lag_then is not None:
            seen = (
                Stretch(at, 1, last.committed or 0, None, lag_then, lag_then)
                if seen is None
                else seen._replace(began=at, samples=seen.samples + 1)
            )
    return seen
