"""What a scripted broker reports about permissions."""

from types import SimpleNamespace

import pytest

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.permissions import may_commit, unreadable_topics

READ, DESCRIBE = 3, 8


class ScriptedBroker:
    """A connection with one answer; None for a broker that is too old for the question."""

    def __init__(self, answer):
        self._answer = answer

    def knows(self, key, version):
        return self._answer is not None

    def version(self, key, name, oldest, newest):
        if self._answer is None:
            raise ProtocolError("no common version")
        return newest

    def call(self, request):
        request.encode()  # the library accepts its fields in this version
        return self._answer


def group(operations, error=0):
    return SimpleNamespace(groups=[SimpleNamespace(group_id="g", error_code=error, authorized_operations=operations)])


def test_topics_without_read_are_named():
    topics = [("a", {READ, DESCRIBE}), ("b", {DESCRIBE}), ("c", None)]
    answer = SimpleNamespace(
        topics=[SimpleNamespace(name=name, authorized_operations=operations) for name, operations in topics]
    )
    assert unreadable_topics(ScriptedBroker(answer), ["a", "b", "c"]) == {"b", "c"}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (group({READ}), True),
        (group({DESCRIBE}), False),
        (group(None), False),
        (group(None, error=30), None),
    ],
)
def test_a_commit_needs_read_on_the_group(answer, expected):
    assert may_commit(ScriptedBroker(answer), "g") is expected


def test_older_brokers_do_not_report_permissions():
    assert unreadable_topics(ScriptedBroker(None), ["a"]) is None
    assert may_commit(ScriptedBroker(None), "g") is None
