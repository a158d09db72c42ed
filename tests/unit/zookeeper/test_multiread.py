"""The bytes of requests that kazoo lacks, and how paths are distributed over them."""

import pytest

from zkconsumer.errors import SessionExpired
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.zookeeper.multiread import ArmWatches, in_requests


def test_paths_are_split_by_number_and_by_size():
    assert [len(part) for part in in_requests(f"/{n}" for n in range(9000))] == [4000, 4000, 1000]
    long = ["/" + "x" * 100_000] * 5
    assert [len(part) for part in in_requests(long)] == [2, 2, 1]
    assert list(in_requests([])) == []


def test_watches_are_registered_when_their_request_is_sent():
    registered = []
    request = ArmWatches(0x123456789A, ["/a", "/bc"], ["/d"], lambda: registered.append(True))
    assert not registered
    body = (0x123456789A).to_bytes(8) + (2).to_bytes(4) + b"\0\0\0\2/a\0\0\0\3/bc" + (1).to_bytes(4) + b"\0\0\0\2/d"
    assert bytes(request.serialize()) == body + (0).to_bytes(4)
    assert registered == [True]
    assert (request.type, request.deserialize(b"", 0)) == (101, True)


def test_without_a_registration_there_is_no_fence():
    """The root must not be used: it always exists, so nothing would be fenced."""
    membership = MemberRegistration(None, "g", "g_a", "range", lambda: 0)
    with pytest.raises(SessionExpired, match="g_a is not registered"):
        _ = membership.fence
