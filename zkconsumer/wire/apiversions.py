"""The API versions that a broker supports: as it reports them (KIP-35), or as known of releases that cannot."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.fields import Fields, reporting_malformed

ApiRanges = Mapping[int, tuple[int, int]]
"""API key to the oldest and newest version that a broker supports."""

FETCH: Final = 1
API_VERSIONS: Final = 18
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_DELETE: Final = 47

MUTED_SINCE: Final[Mapping[int, int]] = MappingProxyType(
    {
        FETCH: 8,
        LIST_OFFSETS: 3,
        METADATA: 6,
        OFFSET_COMMIT: 4,
        9: 4,  # OffsetFetch
        10: 2,  # FindCoordinator
        11: 3,  # JoinGroup
        12: 2,  # Heartbeat
        13: 2,  # LeaveGroup
        14: 2,  # SyncGroup
        15: 2,  # DescribeGroups
        16: 2,  # ListGroups
        19: 3,  # CreateTopics
        23: 2,  # OffsetForLeaderEpoch
        32: 2,  # DescribeConfigs
        42: 1,  # DeleteGroups
        OFFSET_DELETE: 0,
        48: 0,  # DescribeClientQuotas
        68: 0,  # ConsumerGroupHeartbeat
        69: 0,  # ConsumerGroupDescribe
    }
)
"""The API versions since which a broker answers at once where a quota is exceeded (KIP-219): the client has to wait for
the throttle time. In earlier versions the broker holds the answer back."""

WITHOUT_THROTTLE: Final = frozenset(
    {
        0,  # Produce: its throttle time is the last field, and only the sandbox sends it
        17,  # SaslHandshake
        API_VERSIONS,  # since version 1, and version 0 is asked
        36,  # SaslAuthenticate
    }
)
"""The APIs whose answers have no throttle time that is read."""

_BEFORE_THROTTLE: Final[Mapping[int, int]] = MappingProxyType({OFFSET_DELETE: 2})  # after the error code
_THROTTLE: Final = struct.Struct(">i")

_ERROR_CODE: Final = struct.Struct(">h")
_RANGE: Final = struct.Struct(">hhh")  # api key, oldest version, newest version

_PRODUCE, _OFFSET_FETCH, _FIND_COORDINATOR = 0, 9, 10
_JOIN_GROUP, _LIST_GROUPS = 11, 16
OLD_RELEASES: Final[Mapping[str, ApiRanges]] = MappingProxyType(
    {
        "0.8.2": {
            _PRODUCE: (0, 0),
            FETCH: (0, 0),
            LIST_OFFSETS: (0, 0),
            METADATA: (0, 0),
            OFFSET_COMMIT: (0, 1),
            _OFFSET_FETCH: (0, 1),
            _FIND_COORDINATOR: (0, 0),
        },
        "0.9.0": {
            _PRODUCE: (0, 1),
            FETCH: (0, 1),
            LIST_OFFSETS: (0, 0),
            METADATA: (0, 0),
            OFFSET_COMMIT: (0, 2),
            _OFFSET_FETCH: (0, 1),
            _FIND_COORDINATOR: (0, 0),
            **dict.fromkeys(range(_JOIN_GROUP, _LIST_GROUPS + 1), (0, 0)),  # all requests of groups
        },
    }
)
"""The versions of releases that do not know ApiVersions."""


def mutes(api_key: int, api_version: int) -> bool:
    """True if the broker mutes a connection for the throttle time of its answer to this request."""
    return api_version >= MUTED_SINCE.get(api_key, api_version + 1)


def read_throttle_ms(api_key: int, api_version: int, body: memoryview) -> int:
    """For how long the broker mutes the connection after this answer, in ms; 0 where it is not muted."""
    at = _BEFORE_THROTTLE.get(api_key, 0)
    if not mutes(api_key, api_version) or len(body) < at + _THROTTLE.size:
        return 0
    (throttle_ms,) = _THROTTLE.unpack_from(body, at)
    return int(throttle_ms)


def parse_api_versions(body: memoryview) -> dict[int, tuple[int, int]]:
    """Parse an ApiVersions response of version 0, which every broker since 0.10 supports.

    Raises:
        ProtocolError: the response is malformed or has an error code.
    """
    with reporting_malformed("ApiVersions", 0):
        fields = Fields(body)
        (code,) = fields.take(_ERROR_CODE)
        if not code:
            ranges = {key: (oldest, newest) for key, oldest, newest in fields.rows(_RANGE)}
            fields.end()
            return ranges
    raise ProtocolError(f"answered ApiVersions with {error_name(code)}")
