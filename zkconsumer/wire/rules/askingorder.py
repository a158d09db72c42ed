"""asking_order: which broker is asked first for what any of them can answer."""

from __future__ import annotations

from collections.abc import Container, Sequence

from zkconsumer.model import Broker


def asking_order(
    brokers: Sequence[Broker],
    connected: Container[Broker],
    answered: Broker | None,
    silent: Container[Broker] = (),
) -> list[Broker]:
    """The order in which to ask brokers for what any of them can answer.

    Brokers with an open connection come first: among a hundred brokers, each request would otherwise open a connection.
    But the broker that answered last comes after one other. It may be cut off from the controller, and would repeat the
    same outdated answer forever. So two connections are opened, and requests alternate between them. Brokers that were
    silent lately come last: each question would wait for the timeout of such a broker.

    Args:
        brokers: in random order.
        connected: brokers to which a connection is open.
        answered: the broker that answered the last request, if any.
        silent: brokers that did not answer in time lately.

    >>> a, b, c = (Broker(number, "host", 9092) for number in range(3))
    >>> [broker.id for broker in asking_order([a, b, c], {c}, None)]
    [2, 0, 1]
    >>> [broker.id for broker in asking_order([a, b, c], {c}, c)]
    [0, 2, 1]
    >>> [broker.id for broker in asking_order([a, b, c], {b, c}, c)]
    [1, 2, 0]
    >>> [broker.id for broker in asking_order([a, b], {a, b}, a, {b})]
    [0, 1]
    """
    order = sorted(
        (broker for broker in brokers if broker != answered), key=lambda b: (b in silent, b not in connected)
    )
    if answered is not None and answered in brokers:
        order.insert(0 if order and order[0] in silent else 1, answered)
    return order
