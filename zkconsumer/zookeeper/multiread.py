"""MultiRead: many znodes in one request (opcode 22, ZooKeeper 3.6 and later), which kazoo does not have.

Measured: 5,000 reads in 0.05 s, against 0.7-1.3 s for as many pipelined requests (DESIGN 4.4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from kazoo.exceptions import EXCEPTIONS, NoNodeError, ZookeeperError
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct, multiheader_struct, read_buffer, stat_struct
from kazoo.protocol.states import ZnodeStat

_FIRST_VERSION: Final = (3, 6)
_ERROR: Final = -1
_READ_HEADER: Final = bytes(MultiHeader(GetData.type, False, -1).serialize())

Found: TypeAlias = tuple[bytes | None, Any] | ZookeeperError | None
"""Data and stat of a node, None where there is none, or why the server refused to read it."""


def supports_multi_read(srvr: str) -> bool:
    """True if the answer to the command ``srvr`` names a version that knows the request.

    Older ones close the connection when they get it, so it must not be tried on them.

    >>> supports_multi_read("Zookeeper version: 3.9.5-abc"), supports_multi_read("Zookeeper version: 3.4.14-1")
    (True, False)
    """
    version = re.search(r"version: (\d+)\.(\d+)", srvr)
    return version is not None and (int(version[1]), int(version[2])) >= _FIRST_VERSION


class MultiRead:
    """One request for the data of several nodes; kazoo sends it and calls :meth:`deserialize` with the answer.

    Args:
        paths: absolute, with the chroot.
    """

    type = 22
    watcher = None

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytearray:
        """The request's body."""
        body = bytearray()
        for path in self.paths:
            body += _READ_HEADER
            body += GetData(path, None).serialize()
        body += multiheader_struct.pack(_ERROR, True, -1)
        return body

    def deserialize(self, data: bytes, offset: int) -> list[Found]:
        """What was found at each path."""
        results: list[Found] = []
        while True:
            kind, done, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if done:
                return results
            if kind == _ERROR:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                results.append(None if code == NoNodeError.code else EXCEPTIONS[code]())
            else:
                content, offset = read_buffer(data, offset)
                results.append((content, ZnodeStat._make(stat_struct.unpack_from(data, offset))))
                offset += stat_struct.size
