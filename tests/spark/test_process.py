"""A Spark application of its own, started in another directory: how the source is found, and how it dies."""

import os
import signal

from tests.fix_spark import await_until, fair, start_application


def test_found_from_any_directory_and_gone_from_the_group_when_the_driver_is_killed(
    sandbox, group, topic_factory, tmp_path
):
    topic = topic_factory(partitions=2)
    with start_application(sandbox, group, topic, tmp_path) as (_, jvm):
        await_until(lambda: len(group.owners(topic)) == 2, "the query owns both partitions")
        patience = fair(0.5)
        os.kill(jvm, signal.SIGKILL)
        await_until(lambda: group.is_deserted(topic), "ids and owners are gone after kill -9", patience)
