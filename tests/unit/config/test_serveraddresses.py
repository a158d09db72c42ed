import pytest

from zkconsumer.config.serveraddresses import server_addresses


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("zk", ("zk:2181",), ""),
        ("ZK1:2181, zk2:2182", ("zk1:2181", "zk2:2182"), ""),
        ("zk1,zk2/kafka/", ("zk1:2181", "zk2:2181"), "/kafka"),
        ("[::1],[::1]:2182/a/b", ("[::1]:2181", "[::1]:2182"), "/a/b"),
        ("zk/", ("zk:2181",), ""),
    ],
)
def test_addresses_have_one_form(connect, servers, chroot):
    assert server_addresses(connect) == (servers, chroot)
