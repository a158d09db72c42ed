"""A separate Spark application, started in another directory: look-up and end of the source."""

import os
import signal

from tests.fixtures.spark import await_until, start_application
from zkconsumer.process.cpus import available_cpus


def test_found_from_any_directory_and_gone_from_the_group_when_the_driver_is_killed(
    sandbox, group, topic_factory, tmp_path
):
    topic = topic_factory(partitions=2)
    with start_application(sandbox, group, topic, tmp_path) as (_, jvm):
        # Owners exist before the join is over; the first plan after it stores offsets.
        await_until(lambda: len(group.offsets(topic)) == 2, "the query has planned its first batch")
        assert len(group.owners(topic)) == 2
        (session,) = group.sessions()
        # Spark copies what the source logs, on a thread of its JVM.
        joining = f"joining with {min(available_cpus(), 2)} consumer threads (option numStreams: not set"
        await_until(lambda: joining in (tmp_path / "application.log").read_text(), "the query has logged its threads")
        os.kill(jvm, signal.SIGKILL)
        group.await_leaving(topic, session, sandbox)
