"""A local data plane on the sandbox's broker: fetchers and one or more streams, without a group."""

import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.connector.stream import MessageStream
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.decode.batchdecoder import warm
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.control import LocalFetchControl
from zkconsumer.fetch.queues import ChunkQueue
from zkconsumer.model import Broker, ConsumerThreadId, Message, TopicPartition


def brokers_of(bootstrap_servers):
    """The servers as brokers to begin with; their ids do not matter for asking."""
    pairs = [server.rsplit(":", 1) for server in bootstrap_servers.split(",")]
    return [Broker(-number - 1, host, int(port)) for number, (host, port) in enumerate(pairs)]


class Reader:
    """One consumer thread's worth of data plane per stream; ``start`` assigns, ``read`` drains a stream."""

    def __init__(self, bootstrap_servers, streams=1, **config):
        defaults = {"group_id": "g", "zookeeper_connect": "unused:1", "auto_offset_reset": "smallest"}
        self.config = ConsumerConfig(**{**defaults, "consumer_timeout_ms": 30_000, **config})
        self.threads = [ConsumerThreadId("g_c", number) for number in range(streams)]
        self.queues = {
            thread: ChunkQueue(max_bytes=self.config.queued_max_bytes, max_chunks=self.config.queued_max_message_chunks)
            for thread in self.threads
        }
        self.control = LocalFetchControl(
            "g_c", self.config, lambda: brokers_of(bootstrap_servers), lambda topic, thread: self.queues[thread]
        )
        self.streams = [
            MessageStream(
                self.queues[thread],
                name=str(thread),
                kind=Message,
                timeout_ms=self.config.consumer_timeout_ms,
                reader=ChunkReader.from_config(self.queues[thread], self.config),
            )
            for thread in self.threads
        ]
        self.generation = 0

    def start(self, offsets):
        """Fetch ``{(topic, partition): offset or None}``, dealt to the streams in turn."""
        self.generation += 1
        partitions = {TopicPartition(*key): offset for key, offset in offsets.items()}
        threads = {tp: self.threads[number % len(self.threads)] for number, tp in enumerate(partitions)}
        self.control.start(FetchAssignment(self.generation, threads, partitions))

    def read(self, count, stream=0):
        """``count`` messages of a stream."""
        messages = []
        for message in self.streams[stream]:
            messages.append(message)
            if len(messages) == count:
                break
        return messages

    def read_all(self, stream=0):
        """Everything until nothing comes for ``consumer.timeout.ms``."""
        messages = []
        try:
            for message in self.streams[stream]:
                messages.append(message)
        except ConsumerTimeout:
            pass
        return messages

    def close(self):
        self.control.stop()
        for queue in self.queues.values():
            queue.close()


@pytest.fixture
def reader(sandbox):
    """Make readers of the session's sandbox: ``reader(streams=1, **config)``."""
    warm()  # as a consumer does while it joins; compiling takes longer than many a test waits
    made = []

    def make(bootstrap_servers=sandbox.bootstrap_servers, **settings):
        made.append(Reader(bootstrap_servers, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
