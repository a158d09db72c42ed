"""asking_order: which broker is asked first for what any of them can answer."""

from __future__ import annotations

from collections.abc import Container, Sequence

from zkconsumer.model import Broker


def asking_order(brokers: Sequence[Broker], connected: Container[Broker], answered: Broker | None) -> list[Broker]:
    """The order in which to ask brokers for what any of them can answer.

    Brokers with an open connection come first: among a hundred brokers, each request would otherwise open a connection.
    But the broker that answered last comes after one other. It may be cut off from the controller, and would repeat the
    same outdated answer forever. So two connections are opened, and requests alternate between them.

    Args:
        brokers: in random order.
        connected: brokers to which a connection is open.
        answered: the broker that answered the last request, if any.

    >>> a, b, c = (Broker(number, "host", 9092) for number in range(3))
    >>> [broker.id for broker in asking_order([a, b, c], {c}, None)]
    [2, 0, 1]
    >>> [broker.id for broker in asking_order([a, b, c], {c}, c)]
    [0, 2, 1]
    >>> [broker.id for broker in asking_order([a, b, c], {b, c}, c)]
    [1, 2, 0]
    """
    order = sorted((broker for broker in brokers if broker != answered), key=lambda broker: broker not in connected)
    if answered is not None and answered in brokers:
        order.insert(1, answered)
    return order
