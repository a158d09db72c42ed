"""The verdict of a survey, from facts."""

from dataclasses import replace

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.topicorigins import NOT_STORED, JudgedOffset, WrittenFor
from zkconsumer.operate.migrate.rules.surveyverdict import (
    Level,
    SurveyedMember,
    SurveyedPartition,
    SurveyFacts,
    SurveyVerdict,
    survey,
)
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.rules.describedgroup import KafkaGroup
from zkconsumer.zookeeper.rules.znodes import MigrationMark

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogRange(10, 100)
WEEK = 7 * 24 * 60
STORES = ("in_zookeeper", "in_kafka")
OF_EARLIER = JudgedOffset(50, WrittenFor.EARLIER)
GOOD = SurveyFacts(
    "g",
    partitions=(
        SurveyedPartition(P0, in_zookeeper=JudgedOffset(50), log=LOG),
        SurveyedPartition(P1, in_zookeeper=JudgedOffset(100), log=LOG),
    ),
    kafka=KafkaGroup("Dead"),
    retention_minutes={0: WEEK},
    releases={0: (3, 9)},
)


def change(partition, **changes):
    """With other offsets, as numbers or judged ones."""
    stores = {
        store: JudgedOffset(changes[store])
        for store in STORES
        if not isinstance(changes.get(store, NOT_STORED), JudgedOffset)
    }
    return replace(partition, **{**changes, **stores})


def partitions(**changes):
    return (change(GOOD.partitions[0], **changes), GOOD.partitions[1])


@pytest.mark.parametrize(
    ("state", "members", "verdict"),
    [
        ("migrated", (), SurveyVerdict.MIGRATED),
        ("migrated", (SurveyedMember("g_a", "jvm", "static"),), SurveyVerdict.NOT_READY),
        ("migrating", (), SurveyVerdict.NOT_READY),
        ("undoing", (), SurveyVerdict.NOT_READY),
    ],
)
def test_a_migration_that_is_not_done_is_no_reason_to_begin_another(state, members, verdict):
    found = survey(replace(GOOD, mark=MigrationMark(state, "kafka:g", 1), members=members))
    assert (found.verdict, found.next) == (verdict, "zkconsumer groups explain --group g")


@pytest.mark.parametrize(
    ("znode", "advice", "following"),
    [
        ("malformed", "hold no number", "offsets reset --group g --topic t:0 --to-earliest"),
        ("refused", "give this client access", "migrate survey --group g"),
    ],
)
def test_an_offset_that_cannot_be_read_is_not_missing(znode, advice, following):
    """`migrate plan --missing earliest` would be refused for it, and a reset, too, if the znode may not be read."""
    found = survey(replace(GOOD, partitions=partitions(in_zookeeper=None, znode=znode), problems=("znode t/0",)))
    blockers = [finding for finding in found.findings if finding.level is Level.BLOCKER]
    assert [blocker.code for blocker in blockers] == ["unreadable", "unknown-offset"]
    assert advice in blockers[1].text
    assert found.next == f"zkconsumer {following}"


def test_a_group_in_which_there_is_nothing_can_be_deleted():
    assert survey(replace(GOOD, layout="empty", partitions=())).next == "zkconsumer groups delete --group g"


@pytest.mark.parametrize(
    ("kafka", "lost", "verdict", "codes"),
    [
        (KafkaGroup("Stable", "consumer", 2), "", SurveyVerdict.MIGRATED, ["migrated"]),
        (KafkaGroup("Empty"), "", SurveyVerdict.MIGRATED, ["no-member", "migrated"]),
        (KafkaGroup("Dead"), "it is lost", SurveyVerdict.NOT_READY, ["lost", "migrated"]),
        (None, "", SurveyVerdict.MIGRATED, ["kafka-group", "unreadable", "migrated"]),
    ],
)
def test_a_migrated_group_is_judged_as_brokers_have_it(kafka, lost, verdict, codes):
    problems = () if kafka is not None else ("no broker answers",)
    mark = MigrationMark("migrated", "kafka:g", 1)
    found = survey(
        replace(GOOD, mark=mark, kafka=kafka, lost=lost, problems=problems, continues_at_brokers=True, members=())
    )
    assert (found.verdict, [finding.code for finding in found.findings]) == (verdict, codes)
    assert ("(Stable, 2 members)" in found.findings[-1].text) == (codes == ["migrated"])


def test_people_stop_members_before_a_command_that_writes():
    member = SurveyedMember("g_a", "jvm", "static")
    outside = partitions(in_zookeeper=5)
    to_do = [
        survey(facts).to_do
        for facts in (
            GOOD,
            replace(GOOD, members=(member,)),
            replace(GOOD, members=(member,), partitions=outside),
            replace(GOOD, members=(member,), partitions=partitions(in_kafka=60), kafka=None),
            replace(GOOD, kafka=None),
        )
    ]
    assert to_do == ["", "stop its members", "stop its members", "clear the blockers", "clear the blockers"]


def test_a_plan_is_written_to_the_file_that_is_named():
    assert survey(replace(GOOD, plan_file="g plan")).next.endswith("--output 'g plan'")


@pytest.mark.parametrize("members", [(), (SurveyedMember("g_a", "jvm", "static"),)])
def test_a_group_whose_topics_were_all_deleted_is_not_ready(members):
    gone = tuple(replace(partition, exists=False, log=None) for partition in GOOD.partitions)
    found = survey(replace(GOOD, partitions=gone, members=members))
    assert found.verdict is SurveyVerdict.NOT_READY
    assert "topics of all its offsets were deleted" in found.findings[0].text
    command = "migrate survey" if members else "groups delete"
    assert found.next == f"zkconsumer {command} --group g"
    some = survey(replace(GOOD, partitions=(gone[0], GOOD.partitions[1])))
    assert (some.verdict, some.findings[0].level) == (SurveyVerdict.READY, Level.WARNING)


def test_a_stopped_group_with_all_offsets_is_ready():
    found = survey(GOOD)
    assert (found.verdict, found.findings) == (SurveyVerdict.READY, ())
    assert found.next == "zkconsumer migrate plan --from zookeeper:g --to kafka:g --output g.plan.json"


def test_blockers_come_first_and_notes_last():
    members = (SurveyedMember("g_a", "jvm", "static"),)
    found = survey(replace(GOOD, members=members, retention_minutes={}, releases={0: (0, 8, 2)}))
    levels = [one.level for one in found.findings]
    assert levels == sorted(levels, key=list(Level).index)
    assert set(levels) == set(Level)
    assert found.next == "zkconsumer migrate survey --group g"


@pytest.mark.parametrize(
    ("stored", "storage", "missing"),
    [
        (((50, None), (None, None)), "zookeeper", [P1]),
        (((50, None), (None, 50)), "both", []),
        (((None, None), (None, 50)), "kafka", []),
        (((None, None), (None, None)), "none", [P0, P1]),
    ],
)
def test_which_store_has_offsets(stored, storage, missing):
    rows = zip((P0, P1), stored, strict=True)
    facts = SurveyFacts(
        "g", partitions=tuple(SurveyedPartition(p, True, *map(JudgedOffset, offsets)) for p, offsets in rows)
    )
    assert (facts.storage, facts.missing) == (storage, missing)


def test_what_a_finding_lists_is_sorted():
    members = tuple(
        SurveyedMember(f"g_{name}", name, "white_list", regex) for name, regex in zip("fbdaec", "135246", strict=True)
    )
    releases = {number: (3, number) for number in (30, 4, 21, 7, 15)}
    texts = [one.text for one in survey(replace(GOOD, members=members, releases=releases)).findings]
    assert any("(a, b, c, d, e, f)" in text for text in texts)
    assert any("4 has 3.4, 7 has 3.7, 15 has 3.15, 21 has 3.21, 30 has 3.30" in text for text in texts)
    assert [text.split("'")[1] for text in texts if text.startswith("white list")] == list("123456")


def test_members_that_have_not_committed_yet_are_surveyed_again():
    """A plan that began them at the start of the log would take back what they consume now."""
    members = (SurveyedMember("g_a", "jvm", "static"),)
    nothing = tuple(change(one, in_zookeeper=None) for one in GOOD.partitions)
    found = survey(replace(GOOD, members=members, partitions=nothing))
    assert (found.verdict, found.findings[0].code) == (SurveyVerdict.NOT_READY, "no-commit")
    assert found.next == "zkconsumer migrate survey --group g"


def test_progress_of_the_present_topic_in_kafka_is_kept_beside_offsets_of_an_earlier_one():
    kept = partitions(in_zookeeper=OF_EARLIER, in_kafka=JudgedOffset(60, WrittenFor.PRESENT))
    assert survey(replace(GOOD, partitions=kept)).verdict is SurveyVerdict.READY


def test_a_group_with_members_is_ready_once_they_are_stopped():
    found = survey(replace(GOOD, members=(SurveyedMember("g_a", "jvm", "static"),)))
    assert (found.verdict, [one.code for one in found.findings]) == (SurveyVerdict.RUNNING, ["members"])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"layout": "kafka-0.7"}, "layout"),
        ({"layout": "last-processed"}, "layout"),
        ({"layout": "empty", "partitions": ()}, "layout"),
        ({"partitions": partitions(in_zookeeper=None)}, "no-offset"),
        ({"partitions": partitions(in_zookeeper=OF_EARLIER)}, "no-offset"),
        ({"partitions": partitions(in_zookeeper=OF_EARLIER, in_kafka=50)}, "no-offset"),
        (
            {"partitions": partitions(in_zookeeper=OF_EARLIER, in_kafka=JudgedOffset(9, WrittenFor.PRESENT))},
            "outside-log",
        ),
        ({"partitions": partitions(in_zookeeper=9)}, "outside-log"),
        ({"partitions": partitions(in_zookeeper=101)}, "outside-log"),
        ({"partitions": partitions(in_zookeeper=None, in_kafka=5)}, "outside-log"),
        ({"partitions": partitions(in_kafka=51)}, "kafka-ahead"),
        ({"kafka": None}, "kafka-group"),
        ({"kafka": KafkaGroup("Stable", "consumer", 2)}, "kafka-group"),
        ({"releases": {0: (3, 9), 1: (0, 8, 2)}}, "brokers"),
        ({"problems": ("znode cannot be read",)}, "unreadable"),
    ],
)
def test_what_has_to_be_decided_first_makes_it_not_ready(changes, code):
    found = survey(replace(GOOD, **changes))
    assert found.verdict is SurveyVerdict.NOT_READY
    assert code in [one.code for one in found.findings if one.level is Level.BLOCKER]
    assert found.findings[0].level is Level.BLOCKER


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"retention_minutes": {0: 1440, 1: WEEK}}, "retention", "is 1440"),
        ({"retention_minutes": {0: None}}, "retention", "not every broker reports"),
        ({"retention_minutes": {}}, "retention", "not every broker reports"),
        ({"releases": {0: (3, 9), 1: (2, 8)}}, "brokers", "1 has 2.8"),
        (
            {"partitions": partitions(in_zookeeper=JudgedOffset(50, WrittenFor.BEFORE))},
            "before-topic",
            "offsets of t-0 were stored before",
        ),
        (
            {"partitions": (*GOOD.partitions, SurveyedPartition(TopicPartition("u", 0), False, JudgedOffset(5)))},
            "no-partition",
            "u-0",
        ),
    ],
)
def test_what_has_to_be_read_first_is_a_warning(changes, code, text):
    found = survey(replace(GOOD, **changes))
    assert found.verdict is SurveyVerdict.READY
    (warning,) = [one for one in found.findings if one.code == code]
    assert warning.level is Level.WARNING
    assert text in warning.text


def test_a_partition_without_an_offset_suggests_the_option():
    found = survey(replace(GOOD, partitions=partitions(in_zookeeper=None)))
    assert found.next.endswith("--missing earliest")


def test_only_partitions_outside_their_log_are_reset():
    def one(topic, number, offset):
        return SurveyedPartition(TopicPartition(topic, number), in_zookeeper=JudgedOffset(offset), log=LOG)

    seen = (one("t", 0, 50), one("t", 1, 9), one("t", 3, 101), one("u", 0, 50), one("v", 2, 5))
    found = survey(replace(GOOD, partitions=seen))
    assert found.next == "zkconsumer offsets reset --group g --topic t:1,3 --topic v:2 --to-earliest"


def test_the_next_command_for_a_receiver_names_its_layout():
    assert "--from dibbhatt:/consumers/g " in survey(replace(GOOD, layout="last-processed")).next


def test_a_group_whose_offsets_are_all_in_kafka_has_nothing_to_plan():
    stored = tuple(change(one, in_zookeeper=None, in_kafka=50) for one in GOOD.partitions)
    found = survey(replace(GOOD, partitions=stored))
    assert (found.verdict, [one.code for one in found.findings]) == (SurveyVerdict.READY, ["storage"])
    assert found.next == "zkconsumer groups describe --group g --offsets kafka"
    assert "; start the new consumers" in found.findings[0].text


@pytest.mark.parametrize(
    ("members", "verdict", "text"),
    [
        ((), SurveyVerdict.MIGRATED, "where its consumers continue; it has no mark"),
        ((SurveyedMember("g_a", "jvm", "static"),), SurveyVerdict.NOT_READY, "stop the members in ZooKeeper"),
    ],
)
def test_new_consumers_of_a_group_whose_offsets_are_all_in_kafka_are_not_to_be_stopped(members, verdict, text):
    stored = tuple(change(one, in_zookeeper=None, in_kafka=50) for one in GOOD.partitions)
    found = survey(replace(GOOD, partitions=stored, kafka=KafkaGroup("Stable", "consumer", 1), members=members))
    assert found.verdict is verdict
    assert text in found.findings[0].text


def test_an_offset_in_kafka_alone_stays_where_znodes_are_migrated():
    """A plan keeps what only its target has."""
    found = survey(replace(GOOD, partitions=partitions(in_zookeeper=None, in_kafka=50)))
    assert (found.verdict, found.facts.missing) == (SurveyVerdict.READY, [])


def test_partitions_that_do_not_exist_any_more_are_not_ahead():
    """A plan does not write them."""
    found = survey(replace(GOOD, partitions=partitions(exists=False, in_zookeeper=5, in_kafka=7, log=None)))
    assert "kafka-ahead" not in [finding.code for finding in found.findings]


def test_offsets_ahead_in_kafka_are_expected_while_members_live():
    facts = replace(GOOD, partitions=partitions(in_kafka=51), members=(SurveyedMember("g_a", "jvm", "static"),))
    assert survey(facts).verdict is SurveyVerdict.RUNNING


@pytest.mark.parametrize(
    ("in_zookeeper", "in_kafka", "storage"),
    [(None, None, "none"), (-1, None, "none"), (5, None, "zookeeper"), (-1, 5, "kafka"), (5, 5, "both")],
)
def test_the_stores_with_offsets_are_named(in_zookeeper, in_kafka, storage):
    facts = SurveyFacts(
        "g", partitions=(SurveyedPartition(P0, True, JudgedOffset(in_zookeeper), JudgedOffset(in_kafka)),)
    )
    assert facts.storage == storage


def test_names_are_quoted_in_the_next_command():
    assert "'zookeeper:my group'" in survey(replace(GOOD, group="my group")).next


@pytest.mark.parametrize(
    ("pattern", "regex", "level", "texts"),
    [
        ("white_list", "clicks.*", Level.NOTE, ["librdkafka: ^clicks.*$"]),
        ("white_list", r"\d+", Level.WARNING, ["^[0-9]+$", "not in librdkafka"]),
        ("white_list", "a(?!b)", Level.WARNING, ["list the topics by name"]),
        ("black_list", "clicks.*", Level.WARNING, ["(?!(?:clicks.*)$).*", "topic.blacklist=^clicks.*$"]),
    ],
)
def test_a_filter_is_given_for_other_clients(pattern, regex, level, texts):
    found = survey(replace(GOOD, members=(SurveyedMember("g_a", "jvm", pattern, regex),)))
    (finding,) = [one for one in found.findings if one.code == "subscription"]
    assert finding.level is level
    assert [text for text in texts if text not in finding.text] == []
