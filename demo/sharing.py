"""First act: consumer processes share a group, a third joins, one is killed, and no record is lost."""

from __future__ import annotations

from contextlib import ExitStack

from demo import checks
from demo.checks import Check
from demo.delivery import compare, read_output
from demo.feed import Feed
from demo.members import Member
from demo.midwork import MidWork
from demo.observer import Observer
from demo.stage import PARTITIONS, TOPIC, Stage
from demo.timeline import Sample, number_ranges, shares_text

GROUP = "flights-audit"

_PATIENCE_S = 60.0
_PACE = 20_000.0
"""Records/s produced while members join and leave: slow enough that all of it happens before the data end."""
_WORK = 10_000
"""Records that the victim must consume as one of three before it is killed: a second of work at that rate."""
# Shares of the data up to which the feed continues before the next step.
_BEFORE_START, _BEFORE_JOIN, _BEFORE_TAKEOVER = 0.3, 0.6, 0.9
_STEP = 0.03
"""Share released for each commit of the victim: half a second of work at that rate, its commit interval."""


class Sharing:
    """The first act. Used once; it ends all processes that it starts."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._story = stage.story
        self._servers = stage.servers
        self._sizes = stage.records.partition_sizes(PARTITIONS)
        self._members = [
            Member(
                f"consumer-{number}",
                GROUP,
                TOPIC,
                stage.servers.connection,
                stage.workspace.consumers,
                stage.workspace.logs,
            )
            for number in (1, 2, 3)
        ]
        stage.names.update(_names(self._members))
        self._checks: list[Check] = []

    def play(self) -> list[Check]:
        """Play the act and return its checks.

        Raises:
            ZkConsumerError: a step failed.
        """
        first, victim, third = self._members
        with ExitStack() as cleanup:
            for member in self._members:
                cleanup.callback(member.end)
            self._feed = cleanup.enter_context(Feed(self._servers.brokers, TOPIC, self._stage.records))
            reader = self._servers.reader(GROUP)
            self._watch = cleanup.enter_context(
                Observer(reader, self._stage.timeline, self._stage.clock, self._expect_alive)
            )
            self._load()
            self._two_share([first, victim])
            shared = self._third_joins(third)
            self._kill(victim, [first, third], shared)
            self._finish([first, third])
        return self._compare()

    def _expect_alive(self) -> None:
        self._servers.expect_alive()
        self._feed.expect_alive()
        for member in self._members:
            member.expect_alive()

    def _load(self) -> None:
        """Produce a first part of the data, so that the consumers have work when they join."""
        total = self._feed.release(_BEFORE_START)
        with self._story.waiting("producing the first records", total) as advance:
            self._watch.wait_for(
                lambda sample: sum(sample.ends) >= total,
                f"{total:,} records are produced",
                _PATIENCE_S,
                lambda sample: advance(sum(sample.ends), ""),
            )
        self._story.step(f"The first {total:,} records are produced; the others follow while all this happens")

    def _two_share(self, members: list[Member]) -> None:
        for member in members:
            member.start()
        self._stage.mark("two consumers start")
        sample = self._await_shared("two consumers join", members)
        self._checks.append(checks.shared("two members share", sample, _names(members)))
        self._story.step(f"Two consumer processes share group {GROUP}: {self._shares(sample)}")
        self._feed.release(_BEFORE_JOIN, _PACE)
        with self._story.waiting("both consume"):
            self._watch.wait_for(
                lambda now: all(now.committed_of(now.owned_by(member.consumer_id)) for member in members),
                "both consumers commit what they have consumed",
                _PATIENCE_S,
            )

    def _third_joins(self, third: Member) -> Sample:
        third.start()
        self._stage.mark("a third starts")
        sample = self._await_shared("a third consumer joins", self._members)
        self._checks.append(checks.shared("a third joins", sample, _names(self._members)))
        self._story.step(f"A third joins: {self._shares(sample)}")
        return sample

    def _kill(self, victim: Member, survivors: list[Member], shared: Sample) -> None:
        before = self._await_work(victim, shared)
        owned = before.owned_by(victim.consumer_id)
        produced = self._feed.done / len(self._stage.records)
        killed_at = self._stage.clock()
        self._stage.mark(f"SIGKILL {victim.name}", victim.consumer_id)
        exit_code = victim.kill()
        self._feed.release(_BEFORE_TAKEOVER, _PACE)
        self._story.step(f"SIGKILL for {victim.name}, with {produced:.0%} of the records produced")
        self._story.add(f"owners before: {self._shares(before)}")
        after = self._await_shared(f"the session of {victim.name} expires, the others take over", survivors)
        self._feed.release(1.0, _PACE)
        self._checks += [
            checks.killed_at_work(exit_code, owned, before.committed_of(owned), sum(self._sizes[n] for n in owned)),
            checks.shared("the others take over", after, _names(survivors)),
        ]
        self._story.add(f"owners after:  {self._shares(after)}")
        self._story.add(
            f"partitions {number_ranges(owned)} had new owners {after.at - killed_at:.1f} s after the kill "
            f"(session timeout {victim.session_timeout_s:g} s)"
        )

    def _await_work(self, victim: Member, shared: Sample) -> Sample:
        """Wait until the victim is in the middle of its work; more records are released for each observed commit.

        If all were released at once, the victim could finish them while a busy machine stalls for some seconds.
        """
        judge = MidWork(victim.consumer_id, _WORK)
        share, committed = _BEFORE_JOIN, -1

        def release_more(sample: Sample) -> None:
            nonlocal share, committed
            now_committed = sample.committed_of(sample.owned_by(victim.consumer_id))
            if now_committed != committed:
                share, committed = min(share + _STEP, _BEFORE_TAKEOVER), now_committed
                self._feed.release(share, _PACE)

        release_more(shared)
        with self._story.waiting(f"waiting until {victim.name} is in the middle of its work"):
            return self._watch.wait_for(
                lambda sample: judge(sample, victim.output_bytes()),
                f"{victim.name} consumes as one of three",
                _PATIENCE_S,
                release_more,
            )

    def _finish(self, survivors: list[Member]) -> None:
        total = len(self._stage.records)
        with self._story.waiting("producing and consuming the rest", total) as advance:
            self._watch.wait_for(
                lambda sample: sum(sample.ends) >= total and sample.lag == 0,
                "all records are consumed and committed",
                _PATIENCE_S,
                lambda sample: advance(sum(sample.ends) - sample.lag, f"(lag {sample.lag:,})"),
            )
        self._stage.mark("SIGTERM both")
        for member in survivors:
            member.ask_to_leave()
        with self._story.waiting("both consumers leave"):
            codes = [member.await_end() for member in survivors]
        left = self._watch.wait_for(lambda _: True, "the group is read once more", _PATIENCE_S)
        self._checks.append(checks.ended("consumers end cleanly", codes, left.deserted))
        self._story.step(f"All {total:,} records are consumed; SIGTERM: both consumers commit and leave the group")

    def _compare(self) -> list[Check]:
        """Compare the output with the source, and the znodes with the logs; return all checks in order."""
        with self._story.waiting("comparing every record with the source"):
            outputs = [read_output(member.output) for member in self._members]
            delivery = compare(self._stage.records, outputs)
        final = self._servers.read(GROUP, self._stage.clock())
        self._story.step(
            f"{delivery.lines:,} lines compared with the source; count missing: {delivery.missing:,}, "
            f"count duplicates: {delivery.duplicates:,}"
        )
        return [
            checks.loaded(self._sizes, final.ends),
            *self._checks,
            *checks.delivered(delivery),
            checks.no_lag(GROUP, final, self._sizes),
        ]

    def _await_shared(self, what: str, members: list[Member]) -> Sample:
        with self._story.waiting(what) as advance:
            return self._watch.wait_for(
                lambda sample: sample.shared_by(_names(members)),
                what,
                _PATIENCE_S,
                lambda sample: advance(0, f"({self._shares(sample)})"),
            )

    def _shares(self, sample: Sample) -> str:
        return shares_text(self._stage.names, sample)


def _names(members: list[Member]) -> dict[str, str]:
    return {member.consumer_id: member.name for member in members}
