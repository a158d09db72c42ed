"""``zkconsumer migrate``: move a group's offsets from ZooKeeper to Kafka and back, in steps that can be checked."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options, tool_session
from zkconsumer.cli.groupoptions import (
    all_option,
    chosen_groups,
    echo_documents,
    echo_lines,
    end_reading,
    group_option,
    groups_json_option,
    warn,
)
from zkconsumer.cli.migrateback import reverse_command, rollback_command
from zkconsumer.cli.migrateconfig import config_command
from zkconsumer.cli.migratefleet import fleet
from zkconsumer.cli.migrateguide import guide_command
from zkconsumer.cli.migratemirror import mirror_command
from zkconsumer.cli.migrateoffsets import plan_command, run_command, verify_command
from zkconsumer.cli.migrateunmark import unmark_command
from zkconsumer.cli.migrationoptions import may_be_written
from zkconsumer.cli.progress import progress
from zkconsumer.cli.terminaltext import printable, step_lines
from zkconsumer.errors import name_some
from zkconsumer.operate.groups.finding import utc_time

if TYPE_CHECKING:
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.operate.migrate.rules.surveyverdict import Survey, SurveyFacts


@click.group()
def migrate() -> None:
    """Move the offsets of groups between ZooKeeper and Kafka, in steps that can be checked."""


@migrate.command("survey")
@tool_options
@group_option()
@all_option
@groups_json_option
def survey_command(connection: ToolConnection, groups: tuple[str, ...], of_all: bool, as_json: bool) -> None:
    """Report whether the offsets of groups can move to Kafka, and the next command.

    Shown are the layout of the znodes, clients, where offsets are stored, subscriptions and their regex for other
    clients, partitions without an offset, the group of the same name in Kafka, offsets.retention.minutes, and the
    releases of the brokers. The verdict is `ready`, `running` (ready once the members are stopped), `migrated`, or
    `not ready`, with which the exit code is 3. A group that was migrated, and that the brokers have lost, is not ready.
    """
    from zkconsumer.operate.groups.grouplist import matching_groups
    from zkconsumer.operate.groups.observedgroup import unread_groups
    from zkconsumer.operate.migrate.rules.surveyverdict import SurveyVerdict, survey
    from zkconsumer.operate.migrate.survey import read_survey_facts

    names = chosen_groups(connection, groups, of_all=of_all)
    config = connection.config()
    failures: dict[str, ZkConsumerError] = {}
    with tool_session(config) as session, progress("reading"):
        facts = read_survey_facts(session, config, names or matching_groups(session), failures=failures)
    if not (facts or failures):
        warn(["no groups below /consumers; check the chroot of --zookeeper"])
    unread = unread_groups(facts, failures, names)
    surveys = [_pasteable(survey(_with_plan_file(group_facts)), connection) for group_facts in facts]
    if as_json:
        documents = [survey_document(surveyed) for surveyed in surveys]
        echo_documents(documents, names)
    else:
        echo_lines(line for surveyed in surveys for line in _survey_lines(surveyed))
        if len(surveys) > 1:
            echo_lines(total_lines(surveys, connection.complete("zkconsumer migrate fleet init fleet")))
    end_reading(
        connection.completed(unread), found=any(surveyed.verdict is SurveyVerdict.NOT_READY for surveyed in surveys)
    )


def _with_plan_file(facts: SurveyFacts) -> SurveyFacts:
    """With a file that `migrate plan` accepts: it replaces no plan that was run, and no other file."""
    names = (f"{facts.group}.plan{f'-{number}' if number else ''}.json" for number in itertools.count())
    return dataclasses.replace(facts, plan_file=next(name for name in names if may_be_written(Path(name))))


def _pasteable(survey: Survey, connection: ToolConnection) -> Survey:
    findings = tuple(
        dataclasses.replace(finding, command=connection.complete(finding.command)) for finding in survey.findings
    )
    return dataclasses.replace(survey, findings=findings, next=connection.complete(survey.next))


def _survey_lines(survey: Survey) -> Iterator[str]:
    facts = survey.facts
    yield f"{printable(facts.group)}: {survey.verdict.value}"
    yield f"  layout {facts.layout}, {len(facts.members)} members, {len(facts.partitions)} partitions"
    newest = "" if facts.newest_commit_ms is None else f", newest commit {utc_time(facts.newest_commit_ms)}"
    yield f"  offsets in {facts.storage}{newest}"
    for finding in survey.findings:
        yield printable(f"  {finding.level.value}: {finding.text}")
    yield from step_lines(survey.to_do, survey.next, indent="  ")


def total_lines(surveys: Sequence[Survey], init: str) -> Iterator[str]:
    """How many groups have which verdict, which are not ready, and the command that begins with the others."""
    from zkconsumer.operate.migrate.rules.surveyverdict import SurveyVerdict

    named = {verdict: [one.facts.group for one in surveys if one.verdict is verdict] for verdict in SurveyVerdict}
    not_ready = named.pop(SurveyVerdict.NOT_READY)
    counts = [f"{len(groups)} {verdict.value}" for verdict, groups in named.items() if groups]
    counts += [f"{len(not_ready)} not ready: {name_some(not_ready)}"] if not_ready else []
    yield printable(f"{len(surveys)} groups: {', '.join(counts)}")
    if named[SurveyVerdict.READY] or named[SurveyVerdict.RUNNING]:
        yield from step_lines("", init)


def survey_document(survey: Survey) -> dict[str, Any]:
    """A survey as JSON."""
    from zkconsumer.operate.migrate.rules.portableregex import portable_regex
    from zkconsumer.operate.migrate.rules.surveyverdict import format_release

    facts = survey.facts
    filters = {(member.pattern, member.regex) for member in facts.members if member.regex is not None}
    return {
        "group": facts.group,
        "verdict": survey.verdict.value,
        "to_do": survey.to_do,
        "next": survey.next,
        "layout": facts.layout,
        "storage": facts.storage,
        "newest_commit_ms": facts.newest_commit_ms,
        "members": [dataclasses.asdict(member) for member in facts.members],
        "filters": [
            {"pattern": pattern, **portable_regex(str(regex))._asdict()} for pattern, regex in sorted(filters, key=str)
        ],
        "partitions": [
            {
                "topic": partition.partition.topic,
                "partition": partition.partition.partition,
                "exists": partition.exists,
                "in_zookeeper": partition.in_zookeeper.offset,
                "in_kafka": partition.in_kafka.counting,
                "log_start": None if partition.log is None else partition.log.start,
                "log_end": None if partition.log is None else partition.log.end,
            }
            for partition in facts.partitions
        ],
        "kafka_group": None if facts.kafka is None else facts.kafka._asdict(),
        "brokers": [
            {
                "id": number,
                "release": format_release(release),
                "offsets_retention_minutes": facts.retention_minutes.get(number),
            }
            for number, release in sorted(facts.releases.items())
        ],
        "findings": [{**dataclasses.asdict(finding), "level": finding.level.value} for finding in survey.findings],
    }


for _command in (
    plan_command,
    run_command,
    verify_command,
    rollback_command,
    reverse_command,
    mirror_command,
    unmark_command,
    guide_command,
    config_command,
    fleet,
):
    migrate.add_command(_command)
