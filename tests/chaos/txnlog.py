"""ZooKeeper's transaction log: every write that a server has done, with the session that did it. No I/O here.

A client that watches znodes misses what happens between two of its reads, and cannot see who wrote. The log has both,
and the server's own time of each transaction. Its format has been the same since ZooKeeper 3.4
(``org.apache.zookeeper.server.persistence.FileTxnLog``, ``zookeeper.jute``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_FILE_HEADER: Final = struct.Struct(">4siq")
_ENTRY_HEADER: Final = struct.Struct(">qi")
_TXN_HEADER: Final = struct.Struct(">qiqqi")
_INT: Final = struct.Struct(">i")

_CREATE, _DELETE, _SET_DATA, _MULTI, _CREATE2 = 1, 2, 5, 14, 15
_ERROR = -1
_CREATE_CONTAINER, _DELETE_CONTAINER, _CREATE_TTL = 19, 20, 21
_CLOSE_SESSION: Final = -11


@dataclass(frozen=True, slots=True)
class Change:
    """One write to one znode, or the end of the session.

    Attributes:
        kind: ``create``, ``set``, ``delete`` or ``close``.
        path: of the znode, empty for ``close``.
        data: that was written.
        ephemeral: True if the created node lives as long as its session.
        version: of the node's data afterwards.
    """

    kind: Literal["create", "set", "delete", "close"]
    path: str = ""
    data: bytes = b""
    ephemeral: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that were done together.

    Attributes:
        zxid: its number.
        session: of the client.
        time_ms: of the server, in ms since the epoch.
        changes: in their order.
    """

    zxid: int
    session: int
    time_ms: int
    changes: tuple[Change, ...]


class _Reader:
    """Reads values of ZooKeeper's serialisation, jute, from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        values = form.unpack_from(self._data, self._at)
        self._at += form.size
        return values

    def integer(self) -> int:
        return self.unpack(_INT)[0]

    def buffer(self) -> bytes:
        length = max(0, self.integer())  # -1: null
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        return self.buffer().decode()

    def boolean(self) -> bool:
        self._at += 1
        return self._data[self._at - 1] != 0


def parse(log: bytes, after: int = 0) -> Iterator[Transaction]:
    """The transactions of one log file that made changes; ends where the file's written part ends.

    Args:
        log: content of the file.
        after: zxid of the last transaction to skip.

    Raises:
        ValueError: it is no transaction log.
    """
    if len(log) < _FILE_HEADER.size:
        return
    magic, _, _ = _FILE_HEADER.unpack_from(log)
    if magic != b"ZKLG":
        raise ValueError(f"not a transaction log: it begins with {magic!r}")
    at = _FILE_HEADER.size
    while at + _ENTRY_HEADER.size <= len(log):
        _, length = _ENTRY_HEADER.unpack_from(log, at)
        at += _ENTRY_HEADER.size
        # Space for entries is allocated with zeros in advance; one that is being written lacks its end, the letter B.
        if length <= 0 or log[at + length : at + length + 1] != b"B":
            return
        if _TXN_HEADER.unpack_from(log, at)[2] > after:
            transaction = _transaction(log[at : at + length])
            if transaction.changes:
                yield transaction
        at += length + 1


def _transaction(entry: bytes) -> Transaction:
    reader = _Reader(entry)
    session, _, zxid, time_ms, kind = reader.unpack(_TXN_HEADER)
    if kind == _MULTI:
        parts = [(reader.integer(), reader.buffer()) for _ in range(reader.integer())]
        # A transaction that failed is logged, too: an error for what failed and all after it, before it what was asked.
        done = [] if any(number == _ERROR for number, _ in parts) else parts
        changes = [change for number, data in done if (change := _change(number, _Reader(data))) is not None]
    else:
        only = _change(kind, reader)
        changes = [] if only is None else [only]
    return Transaction(zxid, session & 0xFFFFFFFFFFFFFFFF, time_ms, tuple(changes))


def _change(kind: int, reader: _Reader) -> Change | None:
    """None for what changes no znode."""
    if kind == _CLOSE_SESSION:
        return Change("close")
    if kind in (_CREATE, _CREATE2, _CREATE_CONTAINER, _CREATE_TTL):
        path, data = reader.text(), reader.buffer()
        for _ in range(max(0, reader.integer())):  # access: permissions, scheme, id
            reader.integer(), reader.text(), reader.text()
        return Change("create", path, data, ephemeral=kind in (_CREATE, _CREATE2) and reader.boolean())
    if kind == _SET_DATA:
        path, data = reader.text(), reader.buffer()
        return Change("set", path, data, version=reader.integer())
    if kind in (_DELETE, _DELETE_CONTAINER):
        return Change("delete", reader.text())
    return None
