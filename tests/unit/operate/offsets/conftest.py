"""A session with the ZooKeeper in memory of ``servers``, in which topic t exists."""

from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory


@pytest.fixture
def session(servers):
    servers.write("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0],"3":[0],"4":[0]}}')
    with closing(session_in_memory(servers.server)) as opened:
        yield opened
