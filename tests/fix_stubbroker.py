"""A broker that leads what a test tells it to, on a real socket, with kafka-python's encoders."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fix_kafka import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.model import Broker, TopicPartition

VERSIONS = {FetchRequest.API_KEY: 4, ListOffsetsRequest.API_KEY: 1, MetadataRequest.API_KEY: 1}
API_VERSIONS = 18


@dataclass
class Log:
    """One partition: offsets ``[begin, end)``, held in record batches ``{base offset: bytes}``."""

    begin: int = 0
    end: int = 0
    batches: dict[int, bytes] = field(default_factory=dict)


@dataclass
class StubBroker:
    """Answers Metadata, ListOffsets and Fetch; tests change its attributes, its threads only read them.

    Attributes:
        logs: partitions that exist.
        leaderless: those for which no leader is known, this broker included.
        offset_errors: error codes of answers to ListOffsets.
        fetch_errors: error codes of answers to Fetch.
        times: by timestamp, the offset of the first record of each partition that is not older; -1 where left out.
        fetches: offset and most bytes of each partition, of each Fetch request.
        asked: called with the partitions of each ListOffsets request before it is answered.
    """

    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    leaderless: set[TopicPartition] = field(default_factory=set)
    offset_errors: dict[TopicPartition, int] = field(default_factory=dict)
    fetch_errors: dict[TopicPartition, int] = field(default_factory=dict)
    times: dict[int, dict[TopicPartition, int]] = field(default_factory=dict)
    fetches: list[dict[TopicPartition, tuple[int, int]]] = field(default_factory=list)
    asked: Callable[[set[TopicPartition]], None] = lambda _: None
    port: int = 0

    @property
    def broker(self) -> Broker:
        return Broker(0, "127.0.0.1", self.port)

    def log(self, partition: TopicPartition) -> Log:
        """The partition's log, which is made where there is none."""
        return self.logs.setdefault(partition, Log())

    def serve(self, sock: socket.socket) -> None:
        answers = {
            FetchRequest.API_KEY: (FetchRequest, self._fetch),
            ListOffsetsRequest.API_KEY: (ListOffsetsRequest, self._list_offsets),
            MetadataRequest.API_KEY: (MetadataRequest, self._metadata),
        }
        stream = sock.makefile("rb")
        while head := stream.read(4):
            frame = stream.read(struct.unpack(">i", head)[0])
            key, version, correlation_id, size = struct.unpack_from(">hhih", frame)
            if key == API_VERSIONS:
                body = struct.pack(">hi", 0, len(VERSIONS))
                body += b"".join(struct.pack(">hhh", key, version, version) for key, version in VERSIONS.items())
            else:
                kind, answer = answers[key]
                body = bytes(answer(kind.decode(frame[10 + size :], version=version)).encode())
            sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def _metadata(self, _: MetadataRequest) -> MetadataResponse:
        make = MetadataResponse.MetadataResponseTopic
        topics: dict[str, list] = {}
        for tp in self.logs:
            gone = tp in self.leaderless
            topics.setdefault(tp.topic, []).append(
                make.MetadataResponsePartition(
                    error_code=ErrorCode.LEADER_NOT_AVAILABLE if gone else 0,
                    partition_index=tp.partition,
                    leader_id=-1 if gone else 0,
                    replica_nodes=[0],
                    isr_nodes=[0],
                )
            )
        return MetadataResponse(
            version=VERSIONS[MetadataRequest.API_KEY],
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port, rack=None)],
            controller_id=0,
            topics=[make(error_code=0, name=n, is_internal=False, partitions=p) for n, p in topics.items()],
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        self.asked({TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions})
        make = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                tp = TopicPartition(topic.name, wanted.partition_index)
                gone = ErrorCode.NOT_LEADER_OR_FOLLOWER if tp in self.leaderless else 0
                code = self.offset_errors.get(tp, gone)
                places = {-1: self.logs[tp].end, -2: self.logs[tp].begin}
                by_time = self.times.get(wanted.timestamp, {}).get(tp, -1)
                offset = -1 if code else places.get(wanted.timestamp, by_time)
                partitions.append(
                    make.ListOffsetsPartitionResponse(
                        partition_index=tp.partition, error_code=code, timestamp=-1, offset=offset
                    )
                )
            topics.append(make(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(version=VERSIONS[ListOffsetsRequest.API_KEY], topics=topics)

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        make = FetchResponse.FetchableTopicResponse
        topics = []
        self.fetches.append({})
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                tp = TopicPartition(topic.topic, wanted.partition)
                self.fetches[-1][tp] = wanted.fetch_offset, wanted.partition_max_bytes
                log = self.logs[tp]
                code = self.fetch_errors.get(tp, 0)
                if not code and not log.begin <= wanted.fetch_offset <= log.end:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                # From the batch that holds the offset on, which may begin before it, as brokers do.
                first = max((base for base in log.batches if base <= wanted.fetch_offset), default=0)
                held = [data for base, data in sorted(log.batches.items()) if base >= first]
                records = b"".join(held)[: wanted.partition_max_bytes]
                partitions.append(
                    make.PartitionData(
                        partition_index=tp.partition,
                        error_code=code,
                        high_watermark=log.end,
                        last_stable_offset=log.end,
                        log_start_offset=log.begin,
                        aborted_transactions=[],
                        preferred_read_replica=-1,
                        records=b"" if code or wanted.fetch_offset >= log.end else records,
                    )
                )
            topics.append(make(topic=topic.topic, partitions=partitions))
        return FetchResponse(
            version=VERSIONS[FetchRequest.API_KEY], throttle_time_ms=0, error_code=0, session_id=0, responses=topics
        )


@contextmanager
def running_stub_broker() -> Iterator[StubBroker]:
    """A stub that listens until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    stub = StubBroker(port=listener.getsockname()[1])

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            stub.serve(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield stub
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
