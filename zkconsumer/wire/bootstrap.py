"""The brokers that ``bootstrap.servers`` names."""

from __future__ import annotations

from zkconsumer.model import Broker


def bootstrap_brokers(servers: str | None) -> tuple[Broker, ...]:
    """The brokers of a valid ``bootstrap.servers``; they have negative ids, since theirs are not known.

    >>> [str(broker) for broker in bootstrap_brokers("one:9092, [::1]:9093")]
    ['broker one:9092', 'broker ::1:9093']
    """
    brokers = []
    for number, address in enumerate((servers or "").split(",") if servers else (), 1):
        host, _, port = address.strip().rpartition(":")
        brokers.append(Broker(-number, host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(brokers)
