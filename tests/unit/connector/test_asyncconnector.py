import inspect

import pytest

from zkconsumer import AsyncConsumerConnector, AsyncMessageStream, ConsumerConnector, MessageStream

ONLY_ASYNC = {
    AsyncConsumerConnector: {"open"},  # a constructor cannot await; the synchronous one connects in its constructor
    AsyncMessageStream: set(),
}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(kind, name):
    member = inspect.getattr_static(kind, name)
    return None if isinstance(member, property) else [*inspect.signature(member).parameters]


@pytest.mark.parametrize(
    ("synchronous", "asynchronous"),
    [(ConsumerConnector, AsyncConsumerConnector), (MessageStream, AsyncMessageStream)],
)
def test_the_asynchronous_classes_have_the_same_names_and_arguments(synchronous, asynchronous):
    assert public(asynchronous) - ONLY_ASYNC[asynchronous] == public(synchronous)
    for name in public(synchronous):
        assert arguments(asynchronous, name) == arguments(synchronous, name), name
