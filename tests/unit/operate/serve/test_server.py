"""Where the server may listen."""

import pytest

from zkconsumer.errors import UsageError
from zkconsumer.operate.serve.hosts import Address
from zkconsumer.operate.serve.server import listen


def test_loopback_is_bound():
    with listen(Address("127.0.0.1", 0), allow_remote=False) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_another_address_has_to_be_allowed():
    with pytest.raises(UsageError, match="--allow-remote"):
        listen(Address("0.0.0.0", 0), allow_remote=False)
    with listen(Address("0.0.0.0", 0), allow_remote=True) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_a_port_in_use_is_reported():
    with (
        listen(Address("127.0.0.1", 0), allow_remote=False) as listener,
        pytest.raises(UsageError, match="choose another --listen"),
    ):
        listen(Address("127.0.0.1", listener.getsockname()[1]), allow_remote=False)
