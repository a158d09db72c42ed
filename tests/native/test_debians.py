"""Other Debians, with their glibc and their Python: the wheel is built there, and a member reads in a group."""

import json
import platform

import pytest

from tests.fixtures.installations import DEBIANS
from tests.fixtures.plaindebian import debian
from tests.fixtures.sandbox import values
from zkconsumer import ConsumerConfig, ConsumerConnector

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

_VERSIONS = """
import json, platform
from zkconsumer.decode.kernelloader import kernels
print(json.dumps([platform.python_version(), platform.libc_ver()[1], type(kernels()).__name__]))
"""


@pytest.fixture(scope="module", params=[f"{name}-{python}" for name, python in DEBIANS.items()])
def installed(request):
    """A Debian in which the checkout was installed, and the version of its Python."""
    name, _, python = request.param.partition("-")
    with debian(name, "python3,python3-venv") as made:
        made.run("python3 -m venv /srv/venv; /srv/venv/bin/pip install -q .", timeout_s=2400)
        yield made, python


def test_a_member_continues_where_another_python_was(installed, sandbox, topic_factory, produce, unique_name):
    other, python = installed
    version, glibc, kernels = json.loads(other.run(f"cd /srv; venv/bin/python -c '{_VERSIONS}'", timeout_s=60))
    assert version.startswith(f"{python}.")
    assert glibc != platform.libc_ver()[1]
    assert kernels == "NativeKernels"
    topic = topic_factory()
    produce(topic, values(20))
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect, group_id=unique_name, auto_offset_reset="smallest"
    )
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).value for _ in range(10)] == values(10)
        connector.commit_offsets()
    group = f"--zookeeper {sandbox.zookeeper_connect} --group {unique_name}"
    consume = f"cd /srv; venv/bin/zkconsumer consume {group} --topic {topic} --max-messages 10 2>/dev/null"
    assert other.run(consume, timeout_s=300).split() == [value.decode() for value in values(10, start=10)]
    described = json.loads(
        other.run(f"cd /srv; venv/bin/zkconsumer groups describe {group} --json 2>/dev/null", timeout_s=120)
    )
    assert [(row["committed"], row["lag"]) for row in described["partitions"]] == [(20, 0)]
