"""A query whose position is lost in an unclean leader election, while the log grows past it again."""

import pytest

from tests.fixtures.sourceprocess import SourceProcess, next_batch
from tests.fixtures.uncleanelection import NEW_ROWS, OLD_ROWS, unclean_election
from zkconsumer.errors import OffsetOutOfRange
from zkconsumer.spark.rules.offsetsjson import initial_offset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def query():
    """Start a query; one that was started before ends."""
    running = []

    def start(**options):
        for source in running:
            source.stop()
        running[:] = [SourceProcess(options)]
        return running[0]

    yield start
    for source in running:
        source.stop()


def rows_of(source, start, end):
    return [(offset, value) for _, _, offset, value in source.read(start, end)]


def test_a_query_reads_what_an_unclean_leader_wrote_before_its_position(private_sandbox, query, unique_name):
    """By default it fails, also when it is started again; with failOnDataLoss=false it continues there."""
    box = private_sandbox(brokers=3, max_session_timeout_ms=60_000)
    topic, start = f"{unique_name}-t", initial_offset(unique_name)
    options = {
        "zookeeper.connect": box.zookeeper_connect,
        "zookeeper.session.timeout.ms": "30000",
        "zookeeper.connection.timeout.ms": "60000",
        "group.id": unique_name,
        "subscribe": topic,
        "auto.offset.reset": "smallest",
        "rebalance.max.retries": "20",
    }
    with unclean_election(box, topic) as election:
        source = query(**options)
        end = next_batch(source, start)
        assert rows_of(source, start, end) == OLD_ROWS
        assert source.ask("latest_offset", end, None) == end
        election.elect()
        for again in (False, True):
            if again:
                source = query(**options)
            with pytest.raises(OffsetOutOfRange, match=rf"{topic}-0: wanted 30, the log has \[0, 10\)"):
                next_batch(source, end)
        with pytest.raises(OffsetOutOfRange, match=f"{topic}-0 has lost offsets 10 to 30"):
            source.read(start, end)
        source = query(**options, failOnDataLoss="false")
        assert rows_of(source, start, end) == OLD_ROWS[:10], "of a repeated batch"
        assert rows_of(source, end, next_batch(source, end)) == NEW_ROWS
