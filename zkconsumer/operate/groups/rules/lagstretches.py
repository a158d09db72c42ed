"""What the samples of a partition show over time: stretches of samples with lag and no owner, no progress, no commit.

A stretch outlives the window of samples by which a partition is judged (:mod:`.lagstatus`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zkconsumer.model import TopicIdentity
from zkconsumer.offsets.rules.lag import lag
from zkconsumer.offsets.rules.storedoffsets import usable_offset

OWNERLESS_S: Final = 30.0
"""A partition may have lag and no live owner for this long, in seconds: rebalances and session timeouts take time."""

JUDGED_S: Final = 65.0
"""Samples have to cover this time, in seconds, to judge a partition with lag: a healthy member commits once in it, as
auto.commit.interval.ms is 60 s by default."""


class Stretch(NamedTuple):
    """Successive samples that show the same, up to the newest. Those whose lag is unknown do not end it.

    Attributes:
        began: the time of the first of them.
        samples: how many there are whose lag is known or could not be read: a broker that is silent for some samples
            does not change what those before and after it show of the time between them.
        committed: the offset at the first of them.
        mzxid: the transaction that wrote it.
        first_lag, last_lag: of the first and of the last of them whose lag is known.
        owner: the last live one; None if there was none.
        owner_changes: how often a live owner was another one than the live one before.
    """

    began: float
    samples: int
    committed: int
    mzxid: int | None
    first_lag: int
    last_lag: int
    owner: str | None = None
    owner_changes: int = 0

    def judges(self, now: float, window: int) -> bool:
        """True if it has as many samples as a window and covers :data:`JUDGED_S`, ``now`` being the newest's time."""
        return self.samples >= window and now - self.began >= JUDGED_S


class Stretches(NamedTuple):
    """What successive samples of a partition show, however many are kept of them. None: not at the newest one.

    Attributes:
        seen: samples since the first one.
        ownerless: there is lag and no live owner.
        unmoved: there is lag and a live owner, and no offset is written. A time without an owner of at most
            :data:`OWNERLESS_S` does not end it: a member that ends and is started again and again makes no progress.
        unfallen: there is lag, which never fell.
        uncommitted: there are records, a live owner, and no committed offset. In it the offset is 0, and the lags are
            log ends.
        unwritten: there is lag, and no offset is written, with an owner or without.
    """

    seen: Stretch | None = None
    ownerless: Stretch | None = None
    unmoved: Stretch | None = None
    unfallen: Stretch | None = None
    uncommitted: Stretch | None = None
    unwritten: Stretch | None = None


class LagSample(NamedTuple):
    """One look at a partition.

    Attributes:
        at: when, in seconds of any clock that does not step.
        committed: the next offset to consume, read before the log end; None if there is none.
        mzxid: the transaction that wrote it; None if it is unknown or the offset is stored in Kafka.
        log_start: the first offset in the log; None if it is unknown.
        log_end: the next offset to be written; None if it is unknown.
        owner: text of the owner znode; None if there is none.
        owner_live: True if the owner's consumer is registered.
        age_s: how long ago the record at the committed offset was written, in seconds, by its timestamp; None if that
            is unknown.
        stretches: what this sample and those before it show; see :func:`follow`.
        is_unread: True if the lag is unknown because an offset or a log end could not be read that may exist.
        topic: which topic of the name it is; None if that is unknown.
    """

    at: float
    committed: int | None
    mzxid: int | None
    log_start: int | None
    log_end: int | None
    owner: str | None
    owner_live: bool
    stretches: Stretches = Stretches()
    age_s: float | None = None
    is_unread: bool = False
    topic: TopicIdentity | None = None

    @property
    def lag(self) -> int | None:
        """See :func:`~zkconsumer.offsets.rules.lag.lag`."""
        return lag(self.committed, self.log_end)


def follow(former: Stretches, sample: LagSample) -> LagSample:
    """A sample with the stretches that it continues, begins or ends.

    A sampler keeps a window of samples; a member can have stopped long before. So how long a partition has had no owner
    or no progress is not read from the window.

    Args:
        former: of the sample before, empty if this is the first one.
        sample: the newest one.
    """
    lag, committed = sample.lag, sample.committed
    if lag is None or committed is None:
        # A broker that was silent for one sample shows neither progress nor an owner.
        if sample.is_unread:
            former = with_lost_sample(former)
        return sample._replace(
            stretches=former._replace(
                ownerless=None if sample.owner_live else former.ownerless,
                unmoved=former.unmoved if sample.owner_live else None,
                uncommitted=_uncommitted(former.uncommitted, sample),
            )
        )
    fell = former.unfallen is not None and lag < former.unfallen.last_lag
    ownerless = _continued(former.ownerless, sample) if lag and not sample.owner_live else None
    unmoved = _unless_written(former.unmoved, sample)
    is_owned = ownerless is None or (unmoved is not None and sample.at - ownerless.began <= OWNERLESS_S)
    return sample._replace(
        stretches=Stretches(
            seen=_continued(former.seen, sample),
            ownerless=ownerless,
            unmoved=_continued(unmoved, sample) if lag and is_owned else None,
            unfallen=_continued(None if fell else former.unfallen, sample) if lag else None,
            unwritten=_continued(_unless_written(former.unwritten, sample), sample) if lag else None,
        )
    )


def with_lost_sample(former: Stretches) -> Stretches:
    """The same after a sample that could not be read: it counts in each stretch, and ends none."""
    return Stretches(*(None if one is None else one._replace(samples=one.samples + 1) for one in former))


def _unless_written(stretch: Stretch | None, sample: LagSample) -> Stretch | None:
    """The stretch, unless an offset was written since it began."""
    written = (sample.committed, sample.mzxid)
    return None if stretch is None or (stretch.committed, stretch.mzxid) != written else stretch


def _uncommitted(former: Stretch | None, sample: LagSample) -> Stretch | None:
    if usable_offset(sample.committed) is not None or not sample.owner_live:
        return None
    if sample.is_unread or sample.log_start is None or sample.log_end is None:
        return former
    return _continued(former, sample._replace(committed=0)) if sample.log_end > sample.log_start else None


def _continued(stretch: Stretch | None, sample: LagSample) -> Stretch:
    lag, committed = sample.lag, sample.committed
    assert lag is not None
    assert committed is not None
    owner = sample.owner if sample.owner_live else None
    if stretch is None:
        return Stretch(sample.at, 1, committed, sample.mzxid, lag, lag, owner)
    return stretch._replace(
        samples=stretch.samples + 1,
        last_lag=lag,
        owner=owner or stretch.owner,
        owner_changes=stretch.owner_changes + (None not in (owner, stretch.owner) and owner != stretch.owner),
    )
