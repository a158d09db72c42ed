"""Access control and TLS on a real ZooKeeper."""

import shutil
import subprocess
import sys

import pytest
from kazoo.exceptions import NoAuthError

from zkconsumer import ConsumerConfig, ConsumerConnector, TopicPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.zookeeper.session import ZkSession

pytestmark = pytest.mark.integration


def perms(client, path):
    return {(acl.id.scheme, acl.perms) for acl in client.get_acls(path)[0]}


@pytest.mark.parametrize("set_acl", [False, True])
def test_znodes_belong_to_whom_the_jvm_gives_them(sandbox, zookeeper, topic_factory, unique_name, set_acl):
    topic = topic_factory()
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect,
        group_id=unique_name,
        zookeeper_session_timeout_ms=30_000,
        zookeeper_digest="consumer:hunter2",
        zookeeper_set_acl=set_acl,
    )
    root = f"/consumers/{unique_name}"
    open_to_all, owner_only = {("world", 31)}, {("digest", 31), ("world", 1)}
    owned = owner_only if set_acl else open_to_all
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        connector.commit_offsets({TopicPartition(topic, 0): 3})
        assert perms(zookeeper, f"{root}/ids/{connector.consumer_id}") == open_to_all
        for path in (root, f"{root}/ids", f"{root}/zkconsumer/members"):
            assert perms(zookeeper, path) == open_to_all
        for path in ("owners", f"owners/{topic}", f"owners/{topic}/0", "offsets", f"offsets/{topic}/0"):
            assert perms(zookeeper, f"{root}/{path}") == owned, path
    if set_acl:
        with pytest.raises(NoAuthError):
            zookeeper.set(f"{root}/offsets/{topic}/0", b"0")


def test_the_debug_log_does_not_show_the_digest_password(sandbox, unique_name, caplog):
    caplog.set_level(1)
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect, group_id=unique_name, zookeeper_digest="consumer:hunter2"
    )
    session = ZkSession.from_config(config)
    session.open()
    password = session._client.client_id[1]
    session.close()
    assert "Auth(<hidden>)" in caplog.text
    assert not [secret for secret in ("hunter2", password.hex(), repr(password)) if secret in caplog.text]


def test_a_refusal_is_reported(sandbox, zookeeper, topic_factory, unique_name):
    topic = topic_factory()
    common = {
        "zookeeper_connect": sandbox.zookeeper_connect,
        "group_id": unique_name,
        "zookeeper_session_timeout_ms": 30_000,
    }
    owner = ConsumerConfig(**common, zookeeper_digest="consumer:hunter2", zookeeper_set_acl=True)
    with ConsumerConnector(owner) as connector:
        connector.create_message_streams({topic: 1})
        connector.commit_offsets({TopicPartition(topic, 0): 3})
    stranger = ConsumerConfig(**common, rebalance_max_retries=1, rebalance_backoff_ms=1)
    with (
        ConsumerConnector(stranger) as connector,
        pytest.raises(ZkConsumerError, match="no permission; check the node's ACL"),
    ):
        connector.create_message_streams({topic: 1})


@pytest.fixture
def certificates(tmp_path):
    """A self-signed certificate for 127.0.0.1, as PEM for us and as one file for the server."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate, both = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "server.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return certificate, both


def test_tls(start_zookeeper, certificates):
    from zkconsumer.sandbox.ports import free_port

    certificate, both = certificates
    port = free_port()
    start_zookeeper(
        properties={
            "secureClientPort": str(port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(both),
            "ssl.trustStore.location": str(certificate),
            "ssl.clientAuth": "none",
        },
    )
    common = {"zookeeper_connect": f"127.0.0.1:{port}", "group_id": "g", "zookeeper_ssl_client_enable": True}
    patience = {"zookeeper_connection_timeout_ms": 60_000}  # the first handshake of a server loads classes
    trusting = ConsumerConfig(**common, **patience, zookeeper_ssl_ca_location=str(certificate))
    session = ZkSession.from_config(trusting)
    session.open()
    assert session.children("/") is not None
    session.close()
    # Another process, since kazoo leaves sockets open whose handshake failed.
    doubting = ("-p", "zookeeper.ssl.client.enable=true", "-p", "zookeeper.connection.timeout.ms=1500")
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "zkconsumer",
            "groups",
            "describe",
            "--group",
            "g",
            "--zookeeper",
            f"127.0.0.1:{port}",
            *doubting,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, "no ZooKeeper server" in ended.stderr) == (1, True), ended.stderr
