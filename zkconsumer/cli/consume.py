"""``zkconsumer consume``: a consumer process."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.connection import (
    METRICS_PORT_VARIABLE,
    ToolConnection,
    bootstrap_option,
    connection_options,
    consumer_config,
    refuse_conflicts,
)
from zkconsumer.cli.consumerange import consume_range, wanted_range
from zkconsumer.cli.ending import LAST_WRITE_S, EndedEarly, Ending
from zkconsumer.config.consumerconfig import PROPERTIES, ConsumerConfig
from zkconsumer.config.propertydef import parse
from zkconsumer.errors import (
    CommitRefused,
    ConsumerClosed,
    ConsumerTimeout,
    GenerationEnded,
    GroupAuthorizationFailed,
    MembershipLost,
    NotOwner,
    RetriableError,
    TopicUnreadable,
    ZkConsumerError,
)
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.cli.sinks import RecordSink
    from zkconsumer.connector.connector import ConsumerConnector
    from zkconsumer.connector.stream import MessageStream
    from zkconsumer.decode.records import Records
    from zkconsumer.model import Message

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")

_ROWS = 65_536
"""Most records that are written, and so committed, together."""

_PROTOCOLS = PROPERTIES["group_protocol"].kind
assert isinstance(_PROTOCOLS, tuple)

_COMMIT_AGAIN_S = 0.2
"""Pause between two attempts to commit a record, in seconds."""


@click.command()
@connection_options
@bootstrap_option
@click.option("--group", help="Consumer group. [group.id]")
@click.option(
    "--group-protocol",
    type=click.Choice(_PROTOCOLS),
    help="zookeeper: each member computes its share; coordinator: an elected member assigns; kafka: a broker "
    "coordinates; consumer: a broker assigns (KIP-848). [group.protocol]",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="T[:THREADS]", help="Topic and number of threads; repeatable."
)
@click.option("--whitelist", metavar="RE", help="Regex of topics; it must match the whole name.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads for --whitelist.  [default: 1]")
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Read a range of this partition, without a group."
)
@click.option("--offset", metavar="WHERE", help="Start of the range: an offset of --partition, earliest, or a time.")
@click.option("--until", metavar="WHERE", help="End of the range, likewise, or latest; as of the start of the command.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record if there is no committed offset.")
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="End after N records.")
@click.option("--timeout-ms", type=click.IntRange(min=0), metavar="N", help="End when no record arrived for N ms.")
@click.option("--format", "kind", type=click.Choice(("value", "json", "parquet")), default="value", show_default=True)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="PATH", help="File to append to; for parquet a directory."
)
@click.option("--commit-each", is_flag=True, help="Commit after each record, before the next one is written.")
def consume(
    zookeeper: str | None,
    config_file: Path | None,
    properties: tuple[str, ...],
    bootstrap_servers: str | None,
    group: str | None,
    group_protocol: str | None,
    topics: tuple[str, ...],
    whitelist: str | None,
    threads: int | None,
    partition: int | None,
    offset: str | None,
    until: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    kind: str,
    output: Path | None,
    commit_each: bool,
) -> None:
    """Consume topics as a member of a group.

    Only offsets of records that are written and flushed are committed, so a process that is killed loses no record; the
    next owner reads the uncommitted records again. SIGTERM, SIGHUP and Ctrl-C commit and leave the group.

    A topic that the brokers refuse to serve, for example because a permission is missing, is reported and tried again.
    The other topics are consumed meanwhile, and the exit code is 1 at the end.

    With a pipe, a record is written when the pipe has it: `consume | head -1` commits up to a batch of records, of
    which head prints one. To consume N records use --max-messages N. With --commit-each a record is committed when the
    reader has taken it from the pipe (on Linux), and the next one is written after that; this is slow. What the reader
    does with it is unknown. If the reader closes the pipe, the command ends normally (exit code 0).

    With --partition, --offset or --until it reads a range without a group, and ends; nothing is committed. A time is
    one of ISO 8601, and stands for the first record that is not older.

    If ZKCONSUMER_METRICS_PORT is set in the environment and metrics.port is not, metrics are served on that port.
    """
    if kind == "parquet" and output is None:
        raise click.UsageError("--format parquet needs --output DIRECTORY")
    if (partition, offset, until) != (None, None, None):
        of_groups = {
            "--group": group,
            "--group-protocol": group_protocol,
            "--whitelist": whitelist,
            "--threads": threads,
            "--from-beginning": from_beginning,
            "--timeout-ms": timeout_ms is not None,
            "--commit-each": commit_each,
        }
        wanted = wanted_range(topics, partition, offset, until, max_messages, of_groups)
        consume_range(ToolConnection(zookeeper, config_file, properties, bootstrap_servers), wanted, kind, output)
        return
    if bool(topics) == (whitelist is not None):
        raise click.UsageError("give either --topic (repeatable) or --whitelist")
    if kind == "parquet" and commit_each:
        raise click.UsageError("--commit-each would write a Parquet file for each record; use --format value or json")
    if topics and threads is not None:
        raise click.UsageError("--threads is for --whitelist; with --topic write --topic TOPIC:THREADS")
    refuse_conflicts(
        properties,
        {
            "group.id": ("--group", group),
            "auto.offset.reset": ("--from-beginning", "smallest" if from_beginning else None),
            "consumer.timeout.ms": ("--timeout-ms", timeout_ms),
            "bootstrap.servers": ("--bootstrap-server", bootstrap_servers),
            "group.protocol": ("--group-protocol", group_protocol),
        },
    )
    subscription = _parse_topics(topics)
    config = consumer_config(
        zookeeper,
        config_file,
        properties,
        group_id=group,
        without_zookeeper="; a group that brokers coordinate needs none, but --group-protocol kafka or consumer",
        bootstrap_servers=bootstrap_servers,
        group_protocol=group_protocol,
        auto_offset_reset="smallest" if from_beginning else None,
        consumer_timeout_ms=timeout_ms,
    )

    if config.commit_on != "next":  # of a program that shares the file: commits cover what is written and released
        config = config.replace(commit_on="next")
    config = _with_metrics_port(config, os.environ.get(METRICS_PORT_VARIABLE, ""))

    from zkconsumer.cli.sinks import open_sink

    sink = open_sink(kind, output, waits_for_reader=commit_each)
    destination = "standard output" if output is None else str(output)
    run = _Consumption(config, sink, destination, max_messages, commit_each=commit_each)
    run.consume(subscription, whitelist, threads or 1)


def _with_metrics_port(config: ConsumerConfig, given: str) -> ConsumerConfig:
    """Serve metrics on the port that the environment specifies, unless ``metrics.port`` is set.

    Raises:
        click.UsageError: the value is not a port.
    """
    if not given or config.metrics_port >= 0:
        return config
    try:
        return config.replace(metrics_port=parse(PROPERTIES["metrics_port"], given))
    except ValueError as error:
        raise click.UsageError(f"{METRICS_PORT_VARIABLE}={given}: {error}") from None


def _parse_topics(topics: tuple[str, ...]) -> dict[str, int]:
    parsed = {}
    for text in topics:
        topic, _, count = text.partition(":")
        if not topic or (count and not count.isdecimal()):
            raise click.UsageError(f"--topic {text}: write it as TOPIC or TOPIC:THREADS")
        if topic in parsed:
            raise click.UsageError(f"--topic {topic} is given twice; write --topic {topic}:THREADS for more threads")
        parsed[topic] = int(count or 1)
    Subscription.static(parsed)  # here: before any connection is made
    return parsed


def _create_streams(
    connector: ConsumerConnector, topics: dict[str, int], whitelist: str | None, threads: int
) -> list[MessageStream[Message]]:
    """Join the group; returns the streams of all topics."""
    if whitelist is not None:
        return connector.create_message_streams_by_filter(Whitelist(whitelist), threads)
    return [stream for of_topic in connector.create_message_streams(topics).values() for stream in of_topic]


class _Quota:
    """How many records may still be written, over all threads."""

    def __init__(self, total: int | None) -> None:
        self._left = total
        self._lock = threading.Lock()

    def limit(self) -> int:
        """Largest useful batch; at least 1."""
        return _ROWS if self._left is None else max(1, min(_ROWS, self._left))

    def take(self, wanted: int) -> int:
        """How many of ``wanted`` records may be written."""
        if self._left is None:
            return wanted
        with self._lock:
            granted = min(wanted, self._left)
            self._left -= granted
            return granted

    def is_spent(self) -> bool:
        """True when nothing more may be written."""
        return self._left == 0


class _Consumption:
    """One run: a thread per stream writes to the sink; the main thread waits for the end."""

    def __init__(
        self, config: ConsumerConfig, sink: RecordSink, destination: str, max_messages: int | None, *, commit_each: bool
    ) -> None:
        self._commit_each = commit_each
        self._config = config
        self._sink = sink
        self._destination = destination
        self._quota = _Quota(max_messages)
        self._ending = Ending()
        self._failures: list[Exception] = []
        self._refusals: dict[str, ZkConsumerError] = {}
        self._flush_failure: Exception | None = None
        self._last_record = time.monotonic()

    def consume(self, topics: dict[str, int], whitelist: str | None, threads: int) -> None:
        """Consume until a signal, the quota, the timeout or a failure.

        Raises:
            ZkConsumerError: the run failed.
        """
        from zkconsumer.connector.connector import ConsumerConnector
        from zkconsumer.group.committer import describe_uncommitted

        with self._ending.by_signals():
            try:
                with self._ending.raising():
                    connector = ConsumerConnector(self._config, before_commit=self._flush)
                with connector:
                    with self._ending.raising():
                        streams = _create_streams(connector, topics, whitelist, threads)
                    self._drain(connector, streams)
            except EndedEarly:
                self._sink.close()
                return
        self._raise_first_failure()
        if not self._failures:  # otherwise the reader of our output has closed it
            self._sink.close()
        if uncommitted := connector.uncommitted():
            raise ZkConsumerError(
                f"group {self._config.group_id}: records were written and their offsets not committed: "
                f"{describe_uncommitted(uncommitted)}; the next consumer of the group writes them again. Check that "
                f"{'the brokers run' if self._config.offsets_only_in_kafka else 'ZooKeeper runs'}, and see the log"
            )
        if self._refusals:
            raise ZkConsumerError("; ".join(map(str, self._refusals.values())))

    def _raise_first_failure(self) -> None:
        for failure in self._failures:
            if isinstance(failure, ZkConsumerError):
                raise failure
            if not isinstance(failure, BrokenPipeError):
                raise ZkConsumerError(f"records could not be written to {self._destination}: {failure}") from failure

    def _drain(self, connector: ConsumerConnector, streams: list[MessageStream[Message]]) -> None:
        # Daemons: a thread that blocks on a pipe which is not read must not keep the process from ending.
        readers = [threading.Thread(target=self._read, args=(connector, stream), daemon=True) for stream in streams]
        for reader in readers:
            reader.start()
        self._ending.wait(lambda: _events.info("%s", connector.describe()))
        # The streams end first, so that every record they handed out is written before the last commit.
        connector.end_streams()
        deadline = time.monotonic() + LAST_WRITE_S
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def _read(self, connector: ConsumerConnector, stream: MessageStream[Message]) -> None:
        from zkconsumer.connector.stream import next_records

        try:
            while not self._ending.is_asked() and not self._quota.is_spent():
                try:
                    batch = next_records(stream, 1 if self._commit_each else self._quota.limit())
                except (TopicUnreadable, GroupAuthorizationFailed) as error:
                    self._note_refusal(error)
                except ConsumerTimeout:
                    if time.monotonic() - self._last_record >= self._config.consumer_timeout_ms / 1000:
                        return
                else:
                    if self._write(stream, batch) and self._commit_each:
                        self._commit(connector, batch)
        except (StopIteration, ConsumerClosed):
            pass  # end_streams(): the run ends
        except Exception as error:  # noqa: BLE001 - every error ends the run and is reported at its end
            self._failures.append(error)
        finally:
            self._ending.ask()

    def _note_refusal(self, error: TopicUnreadable | GroupAuthorizationFailed) -> None:
        """Keep a refusal, which is logged already and tried again; the run fails at its end."""
        self._refusals[error.topic if isinstance(error, TopicUnreadable) else ""] = error

    def _write(self, stream: MessageStream[Message], batch: Records) -> bool:
        """Write a batch, or the part that the quota allows; a batch that is not written entirely is not released."""
        self._last_record = time.monotonic()
        rows = self._quota.take(batch.num_rows)
        if rows:
            self._sink.write(batch.slice(0, rows))
        if rows == batch.num_rows:
            stream.release()
        return bool(rows == batch.num_rows)

    def _commit(self, connector: ConsumerConnector, batch: Records) -> None:
        """Commit the only record of a batch, which is written; tried again until it is committed or the run ends."""
        partition, offset = TopicPartition(batch.topic, batch.partition), batch.offsets[0]
        story = f"group {self._config.group_id}: {partition} offset {offset} is written and not committed"
        attempts = 0
        while attempts == 0 or not self._ending.is_asked():  # the last commit, at shutdown, covers it, too
            attempts += 1
            try:
                connector.commit_offsets({partition: offset + 1})
            except (NotOwner, GenerationEnded, CommitRefused) as error:
                # A rebalance took the partition away, and its next owner reads the record again; or the record could
                # not be made durable, which ends the run.
                _log.info("%s: %s", story, error)
                return
            except (RetriableError, MembershipLost) as error:
                if attempts == 1:
                    _log.warning("%s yet, trying again: %s", story, error)
                time.sleep(_COMMIT_AGAIN_S)
            else:
                return

    def _flush(self) -> None:
        """Before each commit. After a failure there is no other commit: a second try may "succeed" without the data."""
        if self._flush_failure is not None:
            raise self._flush_failure
        try:
            self._sink.flush()
        except Exception as error:
            self._flush_failure = error
            self._failures.append(error)
            self._ending.ask()
            raise
