"""A process killed in the middle of a batch only causes a repetition (architecture.md#spark-source).

After each fault: no record is lost; a sink that identifies batches by their ids holds every record once; a repeated
batch is equal; and at no time was an offset in ZooKeeper ahead of the checkpoint.
"""

import os
import signal
from collections import Counter

import pytest

from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.spark import BOTH_PROTOCOLS, ObservedGroup, await_until
from tests.fixtures.sparkjob import EXECUTORS, PATIENCE_S, SOURCES
from tests.fixtures.zookeeper import connected

PARTITIONS = 4

pytestmark = pytest.mark.timeout(1800)  # applications are started, killed and started again


def spread(count: int) -> list[dict]:
    return [{"value": b"v", "partition": n % PARTITIONS} for n in range(count)]


def test_a_killed_python_worker_repeats_its_task_only(sandbox, group, topic_factory, produce, make_job):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(280))  # seven batches
    job = make_job(sandbox, topic)
    for batches in (1, 3, 5):
        job.await_batches(batches, group)
        job.kill_task_worker()
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)
    assert job.delivered() == Counter(produced), "Spark repeats the task, not the batch"


def test_a_killed_executor_repeats_its_tasks_only(sandbox, group, topic_factory, produce, make_job):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(400))
    job = make_job(sandbox, topic, master="local-cluster[2,1,1024]")
    job.await_batches(2, group)
    os.kill(job.pids(EXECUTORS)[-1], signal.SIGKILL)
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)
    assert job.delivered() == Counter(produced)


@BOTH_PROTOCOLS
def test_a_killed_driver_repeats_the_batch_that_was_not_finished(sandbox, group, topic_factory, produce, make_job):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(120))  # three batches: the third is in flight when the driver is killed
    job = make_job(sandbox, topic, options=group.connection)
    job.await_batches(2, group)
    job.kill_driver()
    job.require_not_ahead(group)
    produced += produce(topic, spread(40))
    job.start()
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)
    twice = sum(times - 1 for times in job.delivered().values())
    assert twice <= 40, "at most the batch in flight"


def test_a_killed_member_is_replaced_by_the_query(sandbox, group, topic_factory, produce, make_job):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(400))
    survivor, victim = (make_job(sandbox, topic, name=name, pause_s=0.6) for name in ("survivor", "victim"))
    await_until(lambda: sorted(Counter(group.owners(topic).values()).values()) == [2, 2], "they share", PATIENCE_S)
    await_until(victim.deliveries, "the victim has begun", PATIENCE_S)
    victim.kill_driver()
    await_until(lambda: group.offsets(topic) == dict.fromkeys(range(PARTITIONS), 100), "all is committed", PATIENCE_S)
    everything = survivor.delivered() + victim.delivered()
    assert everything.keys() == set(produced)
    twice = sum(times - 1 for times in everything.values())
    assert twice <= 2 * 40, "the batch in flight at the rebalance, and the one at the kill"


def test_an_expired_session_repeats_nothing_that_was_finished(sandbox, group, topic_factory, produce, make_job):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(400))
    options = {"zookeeper.session.timeout.ms": "2000", "zookeeper.connection.timeout.ms": "30000"}
    job = make_job(sandbox, topic, options=options)
    job.await_batches(2, group)
    (member,) = await_until(group.ids, "the query is registered")
    source = job.pids(SOURCES)[-1]  # one that Spark gave up may still be ending
    os.kill(source, signal.SIGSTOP)
    try:
        await_until(lambda: not group.ids(), "the session has expired")
    finally:
        os.kill(source, signal.SIGCONT)
    await_until(lambda: group.ids() == [member], "the query is registered again")
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)


def test_a_killed_broker_does_not_delay_the_others(private_sandbox, unique_name, make_job):
    box = private_sandbox(brokers=2, max_session_timeout_ms=60_000)
    Topics(box.bootstrap_servers).create("t", PARTITIONS, replication=2)
    produced = produce_records(box.bootstrap_servers, "t", spread(400))
    with connected(box.zookeeper_connect) as client:
        group = ObservedGroup(client, unique_name)
        job = make_job(box, "t")
        job.await_batches(2, group)
        box.brokers[1].kill()
        job.await_batches(6, group)
        box.brokers[1].start()
        produced += produce_records(box.bootstrap_servers, "t", spread(80))
        job.await_all(produced, group)
        assert job.kept() == Counter(produced)


def test_a_full_disk_under_the_checkpoint_loses_nothing(sandbox, group, topic_factory, produce, make_job, small_disk):
    topic = topic_factory(partitions=PARTITIONS)
    produced = produce(topic, spread(400))
    job = make_job(sandbox, topic, checkpoint=small_disk.path / "checkpoint")
    job.await_batches(2, group)
    small_disk.fill()
    job.await_failure(group)
    assert "No space left on device" in job.log.read_text(encoding="utf-8")
    small_disk.free()
    job.start()
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)
