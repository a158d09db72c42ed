"""A query whose position is lost in an unclean leader election, while the log grows past it again."""

import pytest

from tests.fixtures.spark import DEADLINE_S, Sink, await_until
from tests.fixtures.uncleanelection import NEW_ROWS, OLD_ROWS, unclean_election
from zkconsumer.sandbox import Sandbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def sandbox():
    """In the place of the sandbox that other tests share."""
    with Sandbox(brokers=3, max_session_timeout_ms=60_000) as started:
        yield started


def test_a_query_reads_what_an_unclean_leader_wrote_before_its_position(sandbox, start_query, group, unique_name):
    """By default it fails, also when it is started again; with failOnDataLoss=false it continues there."""
    topic, sink = f"{unique_name}-t", Sink()
    with unclean_election(sandbox, topic) as election:
        query = start_query(topic, sink)
        await_until(lambda: len(sink.rows()) == 30, "all is read")
        election.elect()
        for again in (False, True):
            if again:
                query = start_query(topic, sink)
            with pytest.raises(Exception, match=rf"{topic}-0: wanted 30, the log has \[0, 10\)"):
                query.awaitTermination(DEADLINE_S)
        start_query(topic, sink, options={"failOnDataLoss": "false"})
        await_until(lambda: len(sink.rows()) == 70, "what the new leader wrote is read")
    assert [(offset, value) for _, offset, value in sink.rows()] == OLD_ROWS + NEW_ROWS
