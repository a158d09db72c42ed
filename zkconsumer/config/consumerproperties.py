"""ConsumerProperties: the table of all properties of the consumer.

jvm-consumer.md#configuration gives the names, defaults and rules of the JVM consumer's properties; a property that only
this consumer has is marked ``ours``. No other place repeats these facts:
:class:`zkconsumer.config.consumerconfig.ConsumerConfig`, the command line, Spark options and the reference are derived
from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from zkconsumer.config.propertydef import REQUIRED, declare

RENAMED: Mapping[str, str] = {
    "autocommit.enable": "auto.commit.enable",
    "autocommit.interval.ms": "auto.commit.interval.ms",
    "autooffset.reset": "auto.offset.reset",
    "consumerid": "consumer.id",
    "fetch.size": "fetch.message.max.bytes",
    "groupid": "group.id",
    "queuedchunks.max": "queued.max.message.chunks",
    "rebalance.retries.max": "rebalance.max.retries",
    "socket.buffersize": "socket.receive.buffer.bytes",
    "zk.connect": "zookeeper.connect",
    "zk.connectiontimeout.ms": "zookeeper.connection.timeout.ms",
    "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
    "zk.synctime.ms": "zookeeper.sync.time.ms",
    "enable.auto.commit": "auto.commit.enable",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
}
"""Property names of Kafka 0.7 (up to ``zk.synctime.ms``) and of Kafka's newer consumer, with this consumer's names."""

STRATEGIES = ("range", "roundrobin", "roundrobin-natural", "sticky", "cooperative-sticky", "zkconsumer")
"""The assignors of this package, as ``partition.assignment.strategy`` names them."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)  # ConsumerConfig has the other methods
class ConsumerProperties:
    """Names, types, defaults and meanings, in the order of the reference; ``ConsumerConfig`` holds the values.

    The JVM writes a name with dots in place of the underscores. ``Literal`` lists the allowed texts, for type checkers
    and for the check of values.
    """

    group_id: str = declare(REQUIRED, "Consumer group; letters, digits, dot, underscore and hyphen.")
    zookeeper_connect: str | None = declare(
        None,
        "ZooKeeper servers: host:port,host:port/chroot; the chroot must exist. Not required, and not used, "
        "with group.protocol kafka and consumer.",
        default_text="**required**",
    )
    zookeeper_session_timeout_ms: int = declare(
        6000, "Requested session timeout in ms; the server may clamp it.", minimum=1
    )
    zookeeper_connection_timeout_ms: int = declare(
        None,
        "How long the constructor waits for a connection to ZooKeeper, in ms.",
        minimum=1,
        default_text="zookeeper.session.timeout.ms",
    )
    zookeeper_sync_time_ms: int = declare(2000, "Used only as the default of rebalance.backoff.ms, in ms.")
    consumer_id: str | None = declare(None, "Last part of the consumer id, fixed; for tests.", default_text="generated")
    client_id: str = declare(None, "Client id sent to brokers and used in metrics.", default_text="group.id")
    socket_timeout_ms: int = declare(30_000, "Timeout of broker sockets in ms; at least fetch.wait.max.ms.", minimum=1)
    socket_receive_buffer_bytes: int | None = declare(
        None,
        "Size of the receive buffer of broker sockets in bytes; 0 or less: the operating system's, which grows as "
        "needed. The JVM consumer's default is 65536.",
        default_text="the operating system's",
    )
    fetch_message_max_bytes: int = declare(1_048_576, "Bytes requested per partition in one fetch.", minimum=1)
    fetch_max_bytes: int = declare(
        52_428_800, "Bytes requested in one fetch (the JVM parses and ignores it).", minimum=1
    )
    fetch_min_bytes: int = declare(1, "Bytes that a broker collects before it answers a fetch.")
    fetch_wait_max_ms: int = declare(100, "How long a broker waits for fetch.min.bytes, in ms.", minimum=0)
    num_consumer_fetchers: int = declare(
        1, "Fetcher threads per broker (the JVM accepts 0 and then fetches nothing).", minimum=1
    )
    queued_max_message_chunks: int = declare(
        2,
        "Chunks of one partition that may wait in a consumer thread's queue. Fetchers request more data when the "
        "queue holds at most half of the chunks that its partitions may have together.",
        minimum=1,
    )
    auto_commit_enable: bool = declare(True, "Commit offsets by timer, at a rebalance and at shutdown.")
    auto_commit_interval_ms: int = declare(60_000, "Time between automatic commits, in ms.", minimum=1)
    rebalance_max_retries: int = declare(
        4, "Rebalance attempts when joining the group (0 always fails, as in the JVM)."
    )
    rebalance_backoff_ms: int = declare(
        None, "Longest wait between rebalance attempts, in ms.", minimum=0, default_text="zookeeper.sync.time.ms"
    )
    refresh_leader_backoff_ms: int = declare(200, "Pause before leaders are looked up again, in ms.", minimum=0)
    auto_offset_reset: Literal["smallest", "largest"] = declare(
        "largest", "Where to start a partition that has no usable offset."
    )
    consumer_timeout_ms: int = declare(
        -1, "A stream raises ConsumerTimeout after this many ms without data; negative: never."
    )
    exclude_internal_topics: bool = declare(True, "Exclude Kafka's internal topics from whitelists and blacklists.")
    group_protocol: Literal["zookeeper", "coordinator", "kafka", "consumer"] = declare(
        "zookeeper",
        "How the group agrees on who owns which partition. zookeeper: each member computes its share, as the JVM "
        "consumer does. coordinator: an elected member, the elected coordinator, assigns all partitions, and a "
        "rebalance stops only those that move. Members of both kinds, and JVM consumers, may be in one group. kafka: "
        "brokers coordinate the group, which may have members of Kafka's newer clients; it needs bootstrap.servers, "
        "and no ZooKeeper. consumer: the same with the protocol of Kafka 4, in which the broker assigns (KIP-848).",
        ours=True,
    )
    partition_assignment_strategy: str = declare(
        "range",
        "Assignor; all members of a group must use the same one: range, roundrobin, or, in groups without JVM "
        "members, roundrobin-natural. The JVM consumer lacks roundrobin-natural, which assigns in the order of "
        "Kafka's newer clients. With group.protocol=kafka: one or more names, separated by commas, preferred ones "
        "first. Also allowed are sticky, cooperative-sticky and zkconsumer. zkconsumer assigns in proportion to the "
        "number of streams of a member, and only zkconsumer members support it. If all names are cooperative "
        "(cooperative-sticky, zkconsumer), members keep the partitions that do not move during a rebalance. With "
        "group.protocol coordinator and kafka also module:object, an assignor of your own (docs/operations.md).",
        choices=STRATEGIES,
        many=True,
        objects=True,
        default_text="range; zkconsumer,cooperative-sticky if group.protocol is kafka",
    )
    group_remote_assignor: str | None = declare(
        None,
        "With group.protocol=consumer, the assignor that the broker should use: uniform, range, or another one of its "
        "group.consumer.assignors. The broker uses the assignor that most members name.",
        ours=True,
        default_text="none: the broker chooses",
    )
    group_instance_id: str | None = declare(
        None,
        "With group.protocol kafka or consumer, makes this consumer a static member: it stays in the group for the "
        "session timeout after it was shut down, and gets the same partitions if it comes back meanwhile. Needs "
        "brokers since 2.3.",
        ours=True,
    )
    group_share: bool = declare(
        True,
        "For Spark queries only. If false, the query must be the only member of its group: it does not join a group "
        "that has members, and it ends if another member is assigned partitions.",
        ours=True,
    )
    session_timeout_ms: int = declare(
        45_000,
        "With group.protocol=kafka, time without a heartbeat after which the group coordinator removes a member, in "
        "ms. With group.protocol=consumer the broker's group.consumer.session.timeout.ms applies, and the consumer "
        "reads it. Without the permission DescribeConfigs on the group it cannot; then this value is used, and it "
        "must not exceed the broker's.",
        minimum=1,
        ours=True,
    )
    heartbeat_interval_ms: int = declare(
        3_000,
        "With group.protocol=kafka, time between heartbeats, in ms; at most a third of session.timeout.ms. After an "
        "assignment they come sooner, from 0.1 s on, since one rebalance often follows another. With consumer, the "
        "broker determines it (group.consumer.heartbeat.interval.ms).",
        minimum=1,
        ours=True,
    )
    max_poll_interval_ms: int = declare(
        300_000,
        "With group.protocol kafka or consumer, how long the group waits for a member that has to release partitions "
        "in a rebalance, in ms, and the default of max.stream.idle.ms. If max.stream.idle.ms sets no limit, a warning "
        "names each stream that was not read for this time although data is available.",
        minimum=1,
        ours=True,
    )
    coordinator_min_session_ms: int = declare(
        0,
        "With group.protocol=coordinator, the minimum session timeout of a member in ms, as the servers granted it: "
        "the elected coordinator refuses a member with a smaller one, which would lose its partitions in a short "
        "pause. The value of the elected coordinator applies.",
        minimum=0,
        ours=True,
    )
    coordinator_evict_slow_ms: int | None = declare(
        None,
        "With group.protocol=coordinator, how long a member may take to release a partition that another member will "
        "own, or to claim one that it was assigned, in ms, before the elected coordinator takes all its partitions; "
        "at least two thirds of a session timeout. 0: no limit. The elected coordinator thereby fences a member that "
        "hangs in a rebalance listener or before_commit: a session timeout later the member hands out no more records, "
        "and it cannot commit those that it has handed out since its last commit. The value of the elected coordinator "
        "applies.",
        minimum=0,
        ours=True,
        default_text="the larger of 30000 and two session timeouts",
    )
    offsets_storage: Literal["zookeeper", "kafka"] = declare(
        None,
        "Where offsets are committed.",
        default_text="zookeeper; kafka if group.protocol is kafka or consumer",
    )
    dual_commit_enabled: bool = declare(
        None,
        "With offsets.storage=kafka, commit to ZooKeeper too.",
        default_text="true if offsets.storage is kafka and group.protocol is neither kafka nor consumer",
    )
    offsets_channel_backoff_ms: int = declare(
        1000, "Pause before the offset coordinator is asked again, in ms.", minimum=0
    )
    offsets_channel_socket_timeout_ms: int = declare(
        10_000, "Timeout of sockets to the offset coordinator, in ms.", minimum=1
    )
    offsets_commit_max_retries: int = declare(5, "Retries of a commit to Kafka.", minimum=0)
    mirror_topics_whitelist: str = declare("", "Read and unused, as in the JVM.")
    mirror_topics_blacklist: str = declare("", "Read and unused, as in the JVM.")
    mirror_consumer_numthreads: int = declare(1, "Read and unused, as in the JVM.")
    zookeeper_set_acl: bool = declare(
        False,
        "Allow only this consumer's principal to change owner and offset znodes; all members of the group must then "
        "use the same principal.",
        ours=True,
    )
    zookeeper_digest_username: str | None = declare(None, "User for ZooKeeper's digest scheme.", ours=True)
    zookeeper_digest_password: str | None = declare(
        None, "Password for ZooKeeper's digest scheme.", ours=True, secret=True
    )
    zookeeper_digest: str | None = declare(
        None,
        "User and password in one value, user:password. Refused as an option of a Spark query, since Spark would show "
        "it.",
        ours=True,
        secret=True,
        default_text="zookeeper.digest.username:zookeeper.digest.password",
    )
    zookeeper_sasl_mechanism: Literal["DIGEST-MD5", "GSSAPI"] | None = declare(
        None,
        "SASL mechanism for ZooKeeper; needs the package pure-sasl; for GSSAPI see docs/security.md.",
        ours=True,
    )
    zookeeper_sasl_username: str | None = declare(None, "User for SASL to ZooKeeper.", ours=True)
    zookeeper_sasl_password: str | None = declare(None, "Password for SASL to ZooKeeper.", ours=True, secret=True)
    zookeeper_ssl_client_enable: bool = declare(False, "Connect to ZooKeeper by TLS.", ours=True)
    zookeeper_ssl_ca_location: str | None = declare(
        None,
        "PEM file of the certificate authorities that may sign ZooKeeper's certificate.",
        ours=True,
        default_text="the system's",
    )
    zookeeper_ssl_certificate_location: str | None = declare(None, "PEM file of this client's certificate.", ours=True)
    zookeeper_ssl_key_location: str | None = declare(None, "PEM file of this client's key.", ours=True)
    zookeeper_ssl_key_password: str | None = declare(None, "Password of this client's key.", ours=True, secret=True)
    zookeeper_ssl_check_hostname: bool = declare(
        True, "Require that the server's certificate matches its host name.", ours=True
    )
    commit_on: Literal["next", "delivery", "done"] = declare(
        "next",
        "Which records commits by timer, at a rebalance and at shutdown cover. next: those that the application "
        "released by requesting the next record; delivery: all that were handed out, as in the JVM; done: those that "
        "the application has declared done, with stream.done(), in each partition before the first one that is not "
        "done (docs/delivery.md).",
        ours=True,
    )
    max_unfinished_records: int = declare(
        10_000,
        "With commit.on=done, how many records of one partition may be handed out and not done. At this number the "
        "partition pauses until half of them are done; other partitions continue. A batch is never split to meet the "
        "limit.",
        minimum=1,
        ours=True,
    )
    dual_read: Literal["max", "zookeeper", "kafka"] = declare(
        "max",
        "With dual commit, the store whose offset is used. max, the larger of the two offsets, is the JVM's rule: to "
        "rewind, lower both.",
        ours=True,
    )
    roundrobin_hash_era: Literal["1.0", "0.8"] = declare(
        "1.0",
        "With roundrobin, the release of the group's JVM members. 1.0: 1.0 and later; 0.8: 0.8.2 to 0.11.",
        ours=True,
    )
    max_stream_idle_ms: int = declare(
        None,
        "The consumer leaves its group when the application reads no data from one of its streams for this many ms "
        "although data is available, so that a stuck reader does not hold partitions forever; 0 or negative: never. "
        "A stream that waits for records is not idle. Spark queries are exempt.",
        ours=True,
        default_text="max.poll.interval.ms if group.protocol is kafka or consumer; -1 otherwise",
    )
    metrics_port: int = declare(
        -1,
        "Port on which metrics are served for Prometheus (docs/metrics.md). 0: any free port; negative: none.",
        maximum=65_535,
        ours=True,
    )
    metrics_host: str = declare("127.0.0.1", "Address on which metrics are served; 0.0.0.0: all addresses.", ours=True)
    bootstrap_servers: str | None = declare(
        None,
        "Brokers for the first connection, host:port,host:port. If set, the consumer reads brokers, topics and "
        "partitions from these brokers, and uses zookeeper.connect for the group only. Required for Kafka 4, which "
        "does not use ZooKeeper (docs/migration.md).",
        ours=True,
        default_text="none: brokers and topics are read from ZooKeeper",
    )
    metadata_max_age_ms: int = declare(
        30_000,
        "With bootstrap.servers, time between two requests for the brokers and topics, in ms: how long a new partition "
        "or topic may go unnoticed.",
        minimum=1,
        ours=True,
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = declare(
        "PLAINTEXT",
        "Protocol of connections to brokers; their listener for it is used (the JVM consumer: PLAINTEXT only).",
        ours=True,
    )
    client_rack: str | None = declare(
        None,
        "Rack of this consumer, as brokers name theirs in broker.rack: partitions are fetched from a replica in it, "
        "if the brokers (since 2.4) have a replica.selector.class that names one (KIP-392). The leader is asked again "
        "after metadata.max.age.ms, and at once if that replica cannot be fetched from. With group.protocol=consumer "
        "the rack is sent to the group coordinator, too.",
        ours=True,
        default_text="none: from the leaders",
    )
    ssl_ca_location: str | None = declare(
        None,
        "PEM file of the certificate authorities that may sign brokers' certificates.",
        ours=True,
        default_text="the system's",
    )
    ssl_certificate_location: str | None = declare(None, "PEM file of this client's certificate.", ours=True)
    ssl_key_location: str | None = declare(
        None, "PEM file of this client's key.", ours=True, default_text="the certificate's file"
    )
    ssl_key_password: str | None = declare(None, "Password of this client's key.", ours=True, secret=True)
    ssl_endpoint_identification_algorithm: Literal["https", "none"] = declare(
        "https", "With https, a broker's certificate must match its host name.", ours=True
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None = declare(
        None,
        "SASL mechanism for brokers; GSSAPI needs the package gssapi and a ticket (docs/security.md).",
        ours=True,
    )
    sasl_username: str | None = declare(None, "User for PLAIN and SCRAM.", ours=True)
    sasl_password: str | None = declare(None, "Password for PLAIN and SCRAM.", ours=True, secret=True)
    sasl_oauthbearer_token: str | None = declare(None, "Token for OAUTHBEARER.", ours=True, secret=True)
    sasl_oauthbearer_token_provider: str | None = declare(
        None,
        "Function that returns the token for OAUTHBEARER, as module:function; called for each connection.",
        ours=True,
    )
    sasl_kerberos_service_name: str = declare("kafka", "Kerberos service of the brokers, for GSSAPI.", ours=True)
    isolation_level: Literal["read_uncommitted", "read_committed"] = declare(
        "read_uncommitted",
        "With read_committed, records of aborted and of open transactions are not delivered (the JVM's ZooKeeper-based "
        "consumer does not support transactions).",
        ours=True,
    )
    broker_version_fallback: Literal["0.8.2", "0.9.0"] | None = declare(
        None,
        "Release of brokers that cannot report their API versions. They are recognised without it. With brokers of "
        "0.9.0 that `bootstrap.servers` names, setting it avoids a wait of 1 s for each broker in a process, and an "
        "uncaught exception in the broker's log.",
        ours=True,
        default_text="detected",
    )
    check_crcs: bool = declare(True, "Verify the checksum of every record batch.", ours=True)
    on_corrupt: Literal["fail", "skip"] = declare(
        "fail",
        "What to do with a corrupt record batch. fail: raise CorruptRecord; skip: log which offsets are skipped and "
        "continue after the batch. If the end of the batch is unknown, it is an error in either case.",
        ours=True,
    )
    decompressed_max_bytes: int = declare(
        134_217_728,
        "Largest batch that is accepted, in bytes after decompression. A larger one raises RecordTooLarge; it is not "
        "corrupt, so on.corrupt does not apply. Each stream may need this much memory.",
        minimum=1,
        maximum=1_073_741_824,
        ours=True,
    )
    queued_max_bytes: int = declare(
        33_554_432,
        "Bytes that may wait in one consumer thread's queue. Fetchers request more data when the queue holds at most "
        "half of this.",
        minimum=1,
        ours=True,
    )
    decode_threads: int = declare(
        -1,
        "Threads that decode ahead of the streams, for all streams of the consumer together. 0: none, each stream's "
        "thread decodes its own records; negative: one per free CPU, at most 4, and none on two CPUs or fewer.",
        maximum=64,
        ours=True,
    )
