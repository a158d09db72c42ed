"""FetchField: the brokers of one data set, filled and warmed without any contestant."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.datasets import DataSet
from benchmarks.drain import Prepared, drain, prepare
from benchmarks.logsegment import Log, write_log
from zkconsumer.errors import SandboxError
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.brokerclient import LATEST, BrokerClient
from zkconsumer.zookeeper.session import ZkSession

TOPIC: Final = "spread"
SINGLE_TOPIC: Final = "single"
"""Topic with the same data on a single broker, if the data set specifies that."""

_SESSION_MS: Final = 60_000
_TIMEOUT_MS: Final = 60_000
_RECOVERY_S: Final = 120.0
_POLL_S: Final = 0.1
_CLEAN: Final = ".kafka_cleanshutdown"
"""A file by which a broker knows that it need not check the logs of its directory."""
_JVM_FETCH_VERSION: Final = 3
"""Fetch version of the JVM consumer 1.1.1; newer brokers convert format 2 for it."""
_FETCH_VERSIONS: Final = (((0, 11), 4), ((0, 10, 1), 3), ((0, 10), 2), ((0, 9), 1), ((0, 8), 0))
"""The newest version of prepared requests, by release of the broker."""


class FetchTopic(NamedTuple):
    """A filled topic.

    Attributes:
        name: name of the topic.
        leaders: id of the broker of each partition.
        log: content of each partition.
    """

    name: str
    leaders: tuple[int, ...]
    log: Log

    @property
    def records(self) -> int:
        """Number of records in all partitions."""
        return self.log.records * len(self.leaders)


class FetchField:
    """The servers and topics of a contest. Use :func:`fetch_field`."""

    def __init__(self, data: DataSet, sandbox: Sandbox, session: ZkSession, security: Mapping[str, str]) -> None:
        self.data = data
        self._sandbox = sandbox
        self._session = session
        self._security = security
        self._prepared: dict[tuple[str, int], Path] = {}
        self.topics: dict[str, FetchTopic] = {}

    @property
    def directory(self) -> Path:
        """Directory for the contestants' logs."""
        return self._sandbox.directory

    @property
    def zookeeper(self) -> str:
        """Connection string of ZooKeeper."""
        return self._sandbox.zookeeper_connect

    @property
    def ca_location(self) -> str:
        """Certificate to verify the brokers with; empty without TLS."""
        return self._security.get("ca", "")

    def brokers(self, protocol: str | None = None) -> dict[int, Broker]:
        """Brokers by id, with the endpoint for contestants or the one of a security protocol."""
        wanted = protocol or ("SSL" if self.ca_location else "PLAINTEXT")
        return {broker.id: broker for broker in GroupReader(self._session, wanted).live_brokers()}

    def fill(self) -> None:
        """Create and fill the topics, and wait until the brokers have opened them.

        Raises:
            SandboxError: the brokers do not find all records.
        """
        leaders = tuple(number % self.data.brokers for number in range(self.data.partitions))
        self._fill(TOPIC, leaders)
        if self.data.single:
            self._fill(SINGLE_TOPIC, (0,) * self.data.partitions)

    def prepared(self, topic: str, version: int | None = None) -> Path:
        """The file with the requests that drain a topic, in the newest version that the brokers know."""
        version = self._newest() if version is None else version
        if (topic, version) not in self._prepared:
            filled, brokers = self.topics[topic], self.brokers()
            requests = {}
            for broker in sorted(set(filled.leaders)):
                partitions = [number for number, leader in enumerate(filled.leaders) if leader == broker]
                address = f"{brokers[broker].host}:{brokers[broker].port}"
                requests[address] = list(prepare(version, topic, partitions, filled.log))
            path = self.directory / f"drain-{topic}-{version}.json"
            Prepared(requests, self.ca_location).save(path)
            self._prepared[topic, version] = path
        return self._prepared[topic, version]

    def warm(self, seconds: float) -> None:
        """Let the brokers' JVMs compile the code for fetch requests, by draining all topics.

        Half of the time is for the version of the JVM consumer, for which newer brokers run other code.
        """
        versions = {self._newest(), min(self._newest(), _JVM_FETCH_VERSION)}
        for topic in self.topics:
            for version in versions:
                drain(Prepared.load(self.prepared(topic, version)), seconds / len(versions) / len(self.topics))

    def _newest(self) -> int:
        release = tuple(int(part) for part in self.data.kafka.split("."))
        return next(version for since, version in _FETCH_VERSIONS if release >= since)

    def _fill(self, topic: str, leaders: Sequence[int]) -> None:
        template = self.directory / f"{topic}-template"
        template.mkdir()
        log = write_log(template, self.data)
        for partition, leader in enumerate(leaders):
            shutil.copytree(template, self.directory / f"kafka-{leader}" / f"{topic}-{partition}")
        shutil.rmtree(template)
        self.topics[topic] = FetchTopic(topic, tuple(leaders), log)
        clean = [self.directory / f"kafka-{leader}" / _CLEAN for leader in set(leaders) if self.data.append_bytes]
        for marker in clean:  # the broker takes the index as it is
            marker.touch()
        self._create(topic, leaders)
        self._wait_for(topic)
        for marker in clean:
            marker.unlink(missing_ok=True)

    def _create(self, topic: str, leaders: Sequence[int]) -> None:
        """Create a topic by its znodes, as Kafka's own command did in all these releases."""
        config = {"version": 1, "config": {}}
        replicas = {"version": 1, "partitions": {str(number): [leader] for number, leader in enumerate(leaders)}}
        self._session.ensure_path(f"/config/topics/{topic}", json.dumps(config).encode())
        self._session.ensure_path(f"/brokers/topics/{topic}", json.dumps(replicas).encode())

    def _wait_for(self, topic: str) -> None:
        """Wait until the log end of each partition is that of its last segment."""
        filled = self.topics[topic]
        wanted = {TopicPartition(topic, number): LATEST for number in range(len(filled.leaders))}
        client = BrokerClient(
            lambda: tuple(self.brokers("PLAINTEXT").values()), client_id="zkconsumer-bench", timeout_ms=_TIMEOUT_MS
        )
        deadline = time.monotonic() + _RECOVERY_S
        try:
            while True:
                ends = client.list_offsets(wanted).found
                if len(ends) == len(wanted):
                    break
                if time.monotonic() > deadline:
                    raise SandboxError(
                        f"{len(wanted) - len(ends)} partitions of {topic} have no leader; see the brokers' logs"
                    )
                time.sleep(_POLL_S)
        finally:
            client.close()
        if set(ends.values()) != {filled.log.records}:
            found = ", ".join(map(str, set(ends.values())))
            raise SandboxError(f"the logs of {topic} end at {found} instead of {filled.log.records}")


@contextmanager
def fetch_field(data: DataSet, directory: Path, progress: Progress) -> Iterator[FetchField]:
    """The running, filled brokers of a data set; ``directory`` takes certificates.

    Raises:
        SandboxError: a server did not start, or does not find its records.
    """
    security = _certificates(directory) if data.tls else {}
    ports = {protocol: free_port() for protocol in ("PLAINTEXT", "SSL")}
    listeners = ",".join(f"{protocol}://{HOST}:{port}" for protocol, port in ports.items())
    tls = {"listeners": listeners, "advertised.listeners": listeners} if data.tls else {}
    properties = {**tls, **{key: value for key, value in security.items() if key.startswith("ssl.")}}
    with Sandbox(kafka_version=data.kafka, brokers=0, kafka_properties=properties, progress=progress) as sandbox:
        sandbox.add_brokers(data.brokers, port=ports["PLAINTEXT"] if data.tls else None)
        session = ZkSession(
            sandbox.zookeeper_connect, session_timeout_ms=_SESSION_MS, connection_timeout_ms=_SESSION_MS
        )
        session.open()
        try:
            field = FetchField(data, sandbox, session, security)
            with progress.step(f"filling topics: {data}"):
                field.fill()
            yield field
        finally:
            session.close()


def _certificates(directory: Path) -> dict[str, str]:
    """A CA's certificate, and the properties with which a broker presents its own one."""
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    authority = trustme.CA()
    ca, keystore = directory / "ca.pem", directory / "broker.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued = authority.issue_cert(HOST)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    keystore.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
    return {"ca": str(ca), "ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
