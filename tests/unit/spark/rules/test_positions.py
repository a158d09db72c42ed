from dataclasses import replace

import pytest

from zkconsumer.model import Stamp, Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, our_metadata
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST, AtTime
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.options import Timestamps
from zkconsumer.spark.rules.positions import Choice, Reason, choose_starts, chosen_by_others, group_by_reason
from zkconsumer.spark.rules.sourceoffset import KnownTopic, SourceOffset

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
IDENTITY = TopicIdentity("id", 40)
TOPICS = {"t": Topic((0, 1, 2, 3), IDENTITY)}
NEW_QUERY = SourceOffset("g")
OURS = "zkconsumer:1"


def choose(stored, finished=NEW_QUERY, *, starting="group", reset="largest", topics=TOPICS):
    marked = {p: one if isinstance(one, StoredOffset) else StoredOffset(one, 1) for p, one in stored.items()}
    return choose_starts(marked, topics, finished, starting=starting, reset=reset)


def places(choices):
    return {partition: choice.place for partition, choice in choices.items()}


def finished(spans, stored=None, known=3):
    """The end of a batch; the store held the beginning of each span when it was planned, or ``stored``."""
    stored = stored or {p: StoredOffset(span.start, 7) for p, span in spans.items()}
    return SourceOffset("g", 9, {"t": KnownTopic(known, "id")}, spans, stored)


def test_a_new_query_starts_at_the_groups_offset_or_the_reset():
    assert choose({T0: 5, T1: None}) == {T0: Choice(5, Reason.GROUP), T1: Choice(LATEST, Reason.RESET)}
    assert places(choose({T0: 0, T1: None}, reset="smallest")) == {T0: 0, T1: EARLIEST}


@pytest.mark.parametrize(("word", "expected"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_starting_offsets_of_a_new_query_override_the_groups(word, expected):
    assert places(choose({T0: 5, T1: None}, starting=word)) == {T0: expected, T1: expected}


def test_partitions_missing_in_json_offsets_start_at_the_groups():
    chosen = choose({T0: 5, T1: 6, T2: None}, starting={T0: 9, T2: EARLIEST})
    assert places(chosen) == {T0: 9, T1: 6, T2: EARLIEST}


def test_times_apply_to_the_given_partitions():
    given = Timestamps(given={T1: 7}, or_latest=True)
    assert places(choose({T0: 5, T1: 6}, starting=given)) == {T0: 5, T1: AtTime(7, or_latest=True)}
    assert places(choose({T0: 5}, starting=Timestamps(everywhere=9))) == {T0: AtTime(9, or_latest=False)}


@pytest.mark.parametrize("starting", ["group", "latest", "earliest", {T0: 3}, Timestamps(everywhere=9)])
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (StoredOffset(20, 8), Choice(20, Reason.FINISHED)),
        (StoredOffset(10, 7), Choice(20, Reason.UNCOMMITTED)),
        (StoredOffset(10, 8), Choice(10, Reason.MOVED)),
        (StoredOffset(15, 8), Choice(15, Reason.MOVED)),
        (StoredOffset(0, 8), Choice(0, Reason.MOVED)),
        (StoredOffset(21, 8), Choice(21, Reason.MOVED)),
        (StoredOffset(None), Choice(20, Reason.NOT_STORED)),
        (StoredOffset(-1, 8), Choice(20, Reason.NOT_STORED)),
    ],
)
def test_after_a_batch_the_checkpoint_applies_unless_the_offset_moved(starting, stored, expected):
    assert choose({T0: stored}, finished({T0: Span(10, 20)}), starting=starting) == {T0: expected}


@pytest.mark.parametrize("mark", [7, OURS, "", "theirs", None])
@pytest.mark.parametrize("at_planning", [500, 0, 10, 15])
def test_an_unchanged_offset_is_a_missing_commit_of_this_query(mark, at_planning):
    """At the first plan of a query the group's offset may be far from the query's start."""
    stored = StoredOffset(at_planning, mark)
    assert choose({T0: stored}, finished({T0: Span(0, 20)}, {T0: stored})) == {T0: Choice(20, Reason.UNCOMMITTED)}


def test_an_offset_that_a_migration_copied_is_no_move_of_another_client():
    checkpoint = finished({T0: Span(50, 100)}, {T0: StoredOffset(50, 7)})
    copied = StoredOffset(50, our_metadata("migrate-12ab34cd12ab34cd", "topic-id"))
    assert choose({T0: copied}, checkpoint) == {T0: Choice(100, Reason.UNCOMMITTED)}
    moved = copied._replace(offset=40)
    assert choose({T0: moved}, checkpoint) == {T0: Choice(40, Reason.MOVED)}


@pytest.mark.parametrize(
    ("at_planning", "stored"),
    [
        (StoredOffset(10, OURS), StoredOffset(10, "")),
        (StoredOffset(10, OURS), StoredOffset(10, "zkconsumer:2")),
        (StoredOffset(10, ""), StoredOffset(15, "")),
        (StoredOffset(500, ""), StoredOffset(10, "")),
        (StoredOffset(None), StoredOffset(10, "")),
        (StoredOffset(None), StoredOffset(10, 7)),
        (StoredOffset(10, None), StoredOffset(10, 7)),
        (StoredOffset(10, 7), StoredOffset(10, 8)),
    ],
)
def test_another_mark_or_offset_than_at_planning_is_law(at_planning, stored):
    chosen = choose({T0: stored}, finished({T0: Span(10, 20)}, {T0: at_planning}))
    assert chosen == {T0: Choice(stored.offset, Reason.MOVED)}


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (Stamp("q", 10), Choice(20, Reason.REWOUND)),
        (Stamp("q", 9), Choice(50, Reason.MOVED)),
        (Stamp("q", 8), Choice(20, Reason.UNCOMMITTED)),
        (Stamp("another", 10), Choice(50, Reason.MOVED)),
        (None, Choice(50, Reason.MOVED)),
    ],
)
def test_an_older_checkpoint_of_the_query_that_committed_decides(stamp, expected):
    checkpoint = replace(finished({T0: Span(10, 20)}), query="q")
    assert choose({T0: StoredOffset(50, 8, stamp)}, checkpoint) == {T0: expected}
    without_query = finished({T0: Span(10, 20)})
    assert choose({T0: StoredOffset(50, 8, stamp)}, without_query) == {T0: Choice(50, Reason.MOVED)}
    assert choose({T1: StoredOffset(50, 8, stamp)}, checkpoint) == {T1: Choice(50, Reason.GROUP)}


def test_a_partition_that_was_never_owned_starts_at_the_groups_offset():
    assert choose({T1: 4}, finished({T0: Span(0, 5)}), starting="earliest") == {T1: Choice(4, Reason.GROUP)}


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("group", Choice(LATEST, Reason.RESET)),
        ("earliest", Choice(EARLIEST, Reason.OPTION)),
        ("latest", Choice(LATEST, Reason.OPTION)),
        (Timestamps(everywhere=9), Choice(AtTime(9, or_latest=False), Reason.OPTION)),
    ],
)
def test_starting_offsets_apply_to_partitions_of_the_first_plan(starting, expected):
    chosen = choose({T2: None, T3: None}, finished({T0: Span(0, 5)}), starting=starting)
    assert chosen == {T2: expected, T3: Choice(EARLIEST, Reason.APPEARED)}


def test_a_topic_that_appeared_after_the_first_plan_is_read_from_its_beginning():
    after = SourceOffset("g", 1, {}, {})
    assert choose({T0: None, T1: StoredOffset(3, 41)}, after, starting="latest") == {
        T0: Choice(EARLIEST, Reason.APPEARED),
        T1: Choice(3, Reason.GROUP),
    }


@pytest.mark.parametrize("stored", [StoredOffset(None), StoredOffset(20, 7), StoredOffset(3, 8)])
def test_a_topic_that_was_created_again_starts_at_its_beginning(stored):
    topics = {"t": Topic((0, 1), TopicIdentity("another", 90))}
    chosen = choose({T0: stored, T1: stored}, finished({T0: Span(10, 20)}), topics=topics)
    assert chosen == dict.fromkeys([T0, T1], Choice(EARLIEST, Reason.RECREATED))


def test_an_offset_that_the_member_found_to_be_another_topics_is_ignored():
    """1. The query reads the topic that was created again; 2. a commit of the earlier one arrives late."""
    chosen = choose_starts(
        {T0: StoredOffset(7, OURS), T1: StoredOffset(7, OURS), T2: StoredOffset(None)},
        TOPICS,
        finished({T0: Span(0, 5), T2: Span(0, 3)}),
        starting="group",
        reset="largest",
        outdated={T0, T1, T2},
    )
    assert chosen == {
        T0: Choice(5, Reason.OLDER_THAN_TOPIC),
        T1: Choice(EARLIEST, Reason.OLDER_THAN_TOPIC),
        T2: Choice(3, Reason.NOT_STORED),
    }


@pytest.mark.parametrize("known", [{}, {"t": KnownTopic(0, "id")}])
def test_an_offset_that_is_older_than_a_topic_that_appeared_is_another_topics(known):
    """Also if no member of ours has consumed the earlier one, so that the member finds nothing outdated."""
    after = SourceOffset("g", 9, known)
    chosen = choose({T1: StoredOffset(7, 39), T2: StoredOffset(7, 41), T3: StoredOffset(7, OURS)}, after)
    assert chosen == {
        T1: Choice(EARLIEST, Reason.OLDER_THAN_TOPIC),
        T2: Choice(7, Reason.GROUP),
        T3: Choice(7, Reason.GROUP),
    }


@pytest.mark.parametrize("before", [NEW_QUERY, finished({T0: Span(0, 5)})])
def test_an_offset_of_a_topic_of_the_first_plan_may_be_older_than_the_topic(before):
    """A ZooKeeper that was restored in pieces has the znodes of both in any order."""
    assert choose({T1: StoredOffset(7, 39)}, before) == {T1: Choice(7, Reason.GROUP)}


def test_a_topic_that_got_its_id_by_an_upgrade_is_the_same():
    known = SourceOffset("g", 9, {"t": KnownTopic(3, 40)}, {T0: Span(10, 20)}, {T0: StoredOffset(10, 7)})
    assert choose({T0: StoredOffset(20, 8)}, known)[T0].reason is Reason.FINISHED


def test_partitions_are_grouped_by_reason():
    chosen = {T1: Choice(1, Reason.GROUP), T0: Choice(2, Reason.GROUP), T2: Choice(LATEST, Reason.RESET)}
    assert group_by_reason(chosen) == {Reason.GROUP: [T0, T1], Reason.RESET: [T2]}


@pytest.mark.parametrize(
    ("place", "varies"), [(LATEST, True), (AtTime(5, or_latest=True), True), (EARLIEST, False), (5, False)]
)
def test_the_end_and_a_time_are_other_offsets_later(place, varies):
    assert Choice(place, Reason.OPTION).varies is varies


@pytest.mark.parametrize(
    ("choice", "stored", "is_others"),
    [
        (Choice(20, Reason.MOVED), StoredOffset(20, 8), True),
        (Choice(20, Reason.GROUP), StoredOffset(20, 8), True),
        (Choice(20, Reason.MOVED), StoredOffset(20, 8, Stamp("another", 3)), True),
        (Choice(20, Reason.MOVED), StoredOffset(20, 8, Stamp("q", 3)), False),
        (Choice(20, Reason.MOVED), StoredOffset(20, 7), False),
        (Choice(15, Reason.MOVED), StoredOffset(15, 8), False),
        (Choice(10, Reason.FINISHED), StoredOffset(10, 8), False),
        (Choice(EARLIEST, Reason.APPEARED), StoredOffset(None), False),
    ],
)
def test_a_start_is_another_clients_if_it_has_stored_the_offset_in_this_run(choice, stored, is_others):
    before, positions = {T0: StoredOffset(5, 7)}, {T0: 15}
    others = [T0] if is_others else []
    assert chosen_by_others({T0: choice}, {T0: stored}, before, positions, "q") == others


def test_what_another_client_stored_of_a_partition_that_was_not_owned_before_is_its_choice():
    gained = {p: Choice(5, Reason.GROUP) for p in (T2, T1)}
    stored = dict.fromkeys(gained, StoredOffset(5, 7))
    assert chosen_by_others(gained, stored, {T0: StoredOffset(5, 7)}, {}, None) == [T1, T2]
