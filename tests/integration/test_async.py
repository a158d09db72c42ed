"""AsyncConsumerConnector on real servers: every protocol, with cancellation, lost sessions and rebalances."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

import pytest

from tests.fixtures.asyncmembers import (
    call_the_coroutines_of_a_listener,
    collecting,
    eventually,
    owned,
    read_although_the_membership_is_lost,
    rebalance_while_tasks_are_cancelled,
    wait_without_threads,
)
from tests.fixtures.consumers import IN_BROKER_GROUP, IN_ZOOKEEPER, leave_in_its_name, parts
from tests.fixtures.documents import ROOT
from tests.fixtures.finishing import finish_in_an_event_loop
from tests.fixtures.offsethomes import home_of
from tests.fixtures.sandbox import values
from tests.fixtures.zookeeper import expire
from zkconsumer import (
    AsyncConsumerConnector,
    AsyncRebalanceListener,
    ConsumerClosed,
    ConsumerConfig,
    TopicPartition,
    Whitelist,
    WokenUp,
)
from zkconsumer.connector import asyncconnector
from zkconsumer.errors import UsageError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = ROOT / "docs/asyncio.md"
SETTINGS = {
    "zookeeper": IN_ZOOKEEPER,
    "coordinator": {**IN_ZOOKEEPER, "group_protocol": "coordinator"},
    "kafka": IN_BROKER_GROUP,
}


@pytest.fixture
def config(sandbox, unique_name):
    """The configuration of members of one group."""

    def make(protocol="zookeeper", **values):
        settings = {"group_id": unique_name, "auto_offset_reset": "smallest", **SETTINGS[protocol], **values}
        if protocol == "kafka":
            return ConsumerConfig(bootstrap_servers=sandbox.bootstrap_servers, **settings)
        return ConsumerConfig(zookeeper_connect=sandbox.zookeeper_connect, **settings)

    return make


every_protocol = pytest.mark.parametrize("protocol", SETTINGS)


@every_protocol
def test_members_share_a_topic_and_continue_at_their_offsets(config, topic_factory, produce, protocol):
    topic = topic_factory(4)
    produce(topic, values(200))

    async def consume():
        async with AsyncConsumerConnector(config(protocol)) as one:
            streams = (await one.create_message_streams({topic: 2}))[topic]
            async with collecting(streams) as received:
                await eventually(lambda: len(received) == 200)
                async with AsyncConsumerConnector(config(protocol)) as other:
                    more = await other.create_message_streams_by_filter(Whitelist(topic))
                    async with collecting(more) as received_by_other:
                        await eventually(lambda: 0 < len(owned(other)) < 4 and len(owned(one) | owned(other)) == 4)
                        await one.commit_offsets()
                        await asyncio.to_thread(produce, topic, values(200, start=200))
                        await eventually(lambda: {*received, *received_by_other} == {*range(400)})
                await eventually(lambda: owned(one) == parts(topic, 0, 1, 2, 3))
        async with AsyncConsumerConnector(config(protocol)) as later:
            (stream,) = (await later.create_message_streams({topic: 1}))[topic]
            await asyncio.to_thread(produce, topic, values(10, start=400))
            seen = []
            while not {*range(400, 410)} <= {*seen}:
                batch = await stream.next_batch(timeout=60)
                seen += [int(value.as_py()) for value in batch["value"]]
        assert len([one for one in seen if one < 400]) <= 4  # the last record of each partition was not released

    asyncio.run(consume())


@every_protocol
def test_tasks_that_are_cancelled_while_the_group_rebalances(config, topic_factory, produce, protocol):
    asyncio.run(rebalance_while_tasks_are_cancelled(partial(config, protocol), topic_factory(4), produce))


@every_protocol
def test_a_membership_that_is_lost_skips_nothing(config, sandbox, topic_factory, produce, protocol):
    """In ZooKeeper, where no other member has had the partitions meanwhile, nothing is repeated, either."""
    topic, make = topic_factory(2), partial(config, protocol)
    lose = partial(leave_in_its_name, sandbox.bootstrap_servers) if protocol == "kafka" else expire
    received = asyncio.run(read_although_the_membership_is_lost(make, topic, produce, lose))
    assert protocol == "kafka" or sorted(received) == [*range(600)]


@every_protocol
def test_a_listener_s_coroutines_run_on_the_loop_and_may_commit(config, topic_factory, produce, protocol):
    asyncio.run(call_the_coroutines_of_a_listener(partial(config, protocol), topic_factory(2), produce))


@every_protocol
def test_tasks_finish_records_that_are_committed_when_they_are_done(config, topic_factory, produce, protocol):
    asyncio.run(finish_in_an_event_loop(config(protocol), topic_factory(4), produce))


def test_a_listener_that_shuts_down_does_not_wait_for_itself(config, topic_factory):
    topic = topic_factory(1)

    class Listener(AsyncRebalanceListener):
        async def before_starting_fetchers(self, consumer_id, assignment):
            await one.shutdown()

    async def consume():
        one.set_rebalance_listener(Listener())
        async with one:
            with suppress(ConsumerClosed):
                await one.create_message_streams({topic: 1})
        assert one.describe().state == "closed"

    one = AsyncConsumerConnector(config())
    asyncio.run(consume())


def test_what_else_the_connector_offers(config, topic_factory, produce):
    topic, other = topic_factory(2), topic_factory(1)
    produce(topic, [{"value": value, "partition": 0} for value in values(10)])

    async def consume():
        connector = AsyncConsumerConnector(config())
        with pytest.raises(UsageError, match="not open"):
            connector.describe()
        async with connector:
            (stream,) = await connector.create_message_streams_by_filter(Whitelist(topic))
            asyncio.get_running_loop().call_later(0.2, connector.wakeup)
            assert [await stream.next_message() for _ in range(11)][-1] is None
            connector.pause(TopicPartition(topic, 0))
            assert connector.paused() == {TopicPartition(topic, 0)}
            await asyncio.to_thread(produce, topic, [{"value": value, "partition": 0} for value in values(5, start=10)])
            assert await stream.next_message(timeout=0.3) is None
            connector.resume(TopicPartition(topic, 0))
            assert int((await stream.next_message(timeout=60)).value) == 10
            assert connector.may_hand_out(TopicPartition(topic, 0))
            assert not connector.may_hand_out(TopicPartition(other, 0))
            await connector.commit_offsets({TopicPartition(topic, 0): 11})
            states = {state.partition: state.committed for state in connector.partition_states()}
            assert states[0] == 11
            await connector.subscribe([other])
            await eventually(lambda: owned(connector) == parts(other, 0))
            await asyncio.to_thread(produce, other, values(1, start=99))
            while int((await anext(stream)).value) != 99:
                pass
            threading.Timer(0.1, connector.wakeup).start()
            with pytest.raises(WokenUp):
                await anext(stream)
            assert connector.metrics()
            with pytest.raises(UsageError, match="opened before"):
                await connector.open()
        with pytest.raises(ConsumerClosed):
            await stream.next_message()
        with pytest.raises(ConsumerClosed):
            await connector.commit_offsets()

    asyncio.run(consume())


PROGRAM = """
import asyncio, signal, sys
from zkconsumer import AsyncConsumerConnector, ConsumerConfig

async def main(properties, topic):
    async with AsyncConsumerConnector(ConsumerConfig.from_properties(properties)) as connector:
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        %s
        async for message in stream:
            print(int(message.value), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_ctrl_c_under_asyncio_run_commits_and_leaves(sandbox, unique_name, topic_factory, produce, tmp_path, zookeeper):
    """It cancels the task, which leaves ``async with``: the record that it waits after is released."""
    topic = topic_factory(1)
    produce(topic, values(20))
    settings = {**sandbox.connection, "group.id": unique_name, "auto.offset.reset": "smallest"}
    properties = tmp_path / "consumer.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-c", PROGRAM % "", properties, topic]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            assert [int(process.stdout.readline()) for _ in range(20)] == [*range(20)]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) != 0
            assert b"KeyboardInterrupt" in process.stderr.read()
        finally:
            process.kill()
    assert zookeeper.get(f"/consumers/{unique_name}/offsets/{topic}/0")[0] == b"20"
    assert zookeeper.get_children(f"/consumers/{unique_name}/ids") == []


@every_protocol
def test_the_line_of_the_page_ends_a_program_at_sigterm_with_all_of_it_committed(
    sandbox, unique_name, topic_factory, produce, tmp_path, zookeeper, protocol
):
    (line,) = re.findall(r"`(asyncio\.get_running_loop\(\)\.add_signal_handler\(.*?)`", PAGE.read_text())
    topic = topic_factory(1)
    produce(topic, values(20))
    properties = tmp_path / "consumer.properties"
    settings = {
        **sandbox.connection,
        "bootstrap.servers": sandbox.bootstrap_servers,
        "group.id": unique_name,
        "group.protocol": protocol,
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": "3600000",
        "zookeeper.connection.timeout.ms": "20000",
        "rebalance.max.retries": "60",
    }
    if protocol == "kafka":
        del settings["zookeeper.connect"]
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-c", PROGRAM % line, properties, topic]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert [int(process.stdout.readline()) for _ in range(20)] == [*range(20)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    home = home_of(protocol, zookeeper, sandbox.bootstrap_servers, unique_name)
    assert home.offsets(topic) == {0: 20}
    assert home.members() == []


@every_protocol
def test_streams_that_wait_cost_no_threads(config, topic_factory, protocol):
    wait_without_threads(partial(config, protocol), topic_factory(1))


def test_a_task_that_is_cancelled_while_it_connects_leaves_nothing_behind(config, topic_factory):
    topic = topic_factory(1)

    async def enter(steps):
        async with AsyncConsumerConnector(config()) as connector:
            await connector.create_message_streams({topic: 1})
            await asyncio.sleep(600)

    async def consume():
        for delay in (0, 0.01, 0.1, 0.5):
            task = asyncio.create_task(enter(delay))
            await asyncio.sleep(delay)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await eventually(lambda: not [one for one in threading.enumerate() if "_rebalance" in one.name])

    asyncio.run(consume())


@pytest.mark.parametrize("of_all", [True, False])
def test_tasks_that_are_cancelled_again_while_it_connects_leave_nothing_behind(config, monkeypatch, of_all):
    """A second Ctrl-C, or a program that cancels all its tasks, as ``asyncio.run`` does at its end."""
    connecting, go_on, left = threading.Event(), threading.Event(), threading.Event()

    class Slow(asyncconnector._ReadyConnector):
        def __init__(self, *args, **parts):
            connecting.set()
            assert go_on.wait(30)
            super().__init__(*args, **parts)

        def shutdown(self):
            super().shutdown()
            left.set()

    async def enter():
        async with AsyncConsumerConnector(config()):
            raise AssertionError("entered")

    async def consume():
        task = asyncio.create_task(enter())
        await asyncio.to_thread(connecting.wait, 30)
        for _ in range(2):
            for one in asyncio.all_tasks() - {asyncio.current_task()} if of_all else {task}:
                one.cancel()
            for _ in range(20):  # steps of the loop: what a cancelled task does until it waits again
                await asyncio.sleep(0)
        assert task.cancelled()

    monkeypatch.setattr(asyncconnector, "_ReadyConnector", Slow)
    asyncio.run(consume())
    go_on.set()
    assert left.wait(30)
