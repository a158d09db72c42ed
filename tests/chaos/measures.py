"""What a ledger shows where it is known what was done to a member: how long others took, and what it did too late."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from zkconsumer.model import TopicPartition
from zkconsumer.testing.checker import SLACK_S, own_tenure
from zkconsumer.testing.ledger import Claimed, Delivered, Ledger, Produced, Registered


def session_of(ledger: Ledger, owner: str, at: float) -> int:
    """The session in which a member was registered at a time, 0 if it was not."""
    sessions = [
        registration.session
        for registration in ledger.of(Registered)
        if registration.owner == owner and registration.at <= at + SLACK_S
    ]
    return sessions[-1] if sessions else 0


def seconds_until_reassigned(ledger: Ledger, session: int, since: float) -> float | None:
    """Seconds from ``since`` until all partitions that a session owned then were claimed in other sessions.

    Returns:
        Infinity if one of them never was; None if the session owned none.
    """
    claims = [following for _, following in _successors(ledger, session, since)]
    if not claims:
        return None
    return max(math.inf if claim is None else claim.at - since for claim in claims)


def seconds_until_delivered(ledger: Ledger, session: int, since: float) -> float | None:
    """As :func:`seconds_until_reassigned`, until another session delivered a record of each of these partitions."""
    firsts = [
        next(
            (delivery.at for delivery in ledger.deliveries.get(partition, ()) if _delivers(ledger, claim, delivery)),
            math.inf,
        )
        for partition, claim in _successors(ledger, session, since)
    ]
    return max(firsts) - since if firsts else None


def longest_wait(ledger: Ledger, since: float) -> float:
    """The longest time for which a partition delivered nothing although it had a record to deliver, in seconds.

    Records that were never delivered do not count: they are lost, or no broker has them any more.

    Args:
        ledger: all records of the run.
        since: what was before is not counted.
    """
    acknowledged = {one.number: one.at for one in ledger.of(Produced)}
    return max((_longest_wait(one, acknowledged, since) for one in ledger.deliveries.values()), default=0.0)


def _longest_wait(deliveries: Sequence[Delivered], acknowledged: Mapping[int, float], since: float) -> float:
    """``deliveries`` of one partition, by time."""
    firsts = {one.number: index for index, one in reversed([*enumerate(deliveries)])}
    longest, oldest = 0.0, math.inf
    for index, one in reversed([*enumerate(deliveries)]):
        if firsts[one.number] == index:
            oldest = min(oldest, acknowledged.get(one.number, one.at))
        before = deliveries[index - 1].at if index else -math.inf
        longest = max(longest, one.at - max(before, oldest, since))
    return longest


def _delivers(ledger: Ledger, claim: Claimed | None, delivery: Delivered) -> bool:
    """True if a record was delivered by virtue of a claim or of a later one."""
    partition = TopicPartition(delivery.topic, delivery.partition)
    tenure = own_tenure(ledger, partition, delivery)
    return claim is not None and tenure is not None and tenure.claim.zxid >= claim.zxid


def _successors(ledger: Ledger, session: int, since: float) -> Iterator[tuple[TopicPartition, Claimed | None]]:
    """The partitions that a session owned at a time, each with the next claim in another session."""
    for partition, tenures in ledger.tenures.items():
        for index, tenure in enumerate(tenures):
            if tenure.claim.session == session and tenure.overlaps(since, since, SLACK_S):
                later = (successor.claim for successor in tenures[index + 1 :] if successor.claim.session != session)
                yield partition, next(later, None)


def stale_deliveries(
    ledger: Ledger, owner: str, *, since: float, deadline: float, until: float = math.inf
) -> tuple[Delivered, ...]:
    """Records that a member handed out after a deadline and by virtue of a claim from before an event.

    Args:
        ledger: all records of the run.
        owner: consumer id of the member.
        since: time of the event.
        deadline: by when it had to stop.
        until: when it was free to continue, besides by a claim after ``since``.
    """
    stale = []
    for partition, deliveries in ledger.deliveries.items():
        for delivery in deliveries:
            if delivery.owner != owner or not deadline < delivery.asked <= delivery.at < until:
                continue
            tenure = own_tenure(ledger, partition, delivery)
            if tenure is None or tenure.claim.at <= since:
                stale.append(delivery)
    return tuple(stale)
