"""Since which version a client has to wait, and where the answer has for how long, as Java's client knows it."""

import pytest
from py4j.java_gateway import get_field

from zkconsumer.wire.apiversions import MUTED_SINCE, read_throttle_ms

JAVA_NEVER_WAITS = {23, 48, 68, 69}
"""Java's client does not wait after these, although brokers mute its connection."""
NAMED_OTHERWISE = {23: "OffsetsForLeaderEpoch"}


class JavaResponses:
    """The classes of responses of one client version, in a JVM."""

    def __init__(self, gateway):
        self._kafka = gateway.jvm.org.apache.kafka
        self._class_of = gateway.jvm.java.lang.Class.forName
        unsafe = self._class_of("sun.misc.Unsafe").getDeclaredField("theUnsafe")
        unsafe.setAccessible(True)
        self._unsafe = unsafe.get(None)

    def api(self, api_key):
        return self._kafka.common.protocol.ApiKeys.forId(api_key)

    def versions(self, api_key):
        return range(self.api(api_key).oldestVersion(), self.api(api_key).latestVersion() + 1)

    def waits_since(self, api_key):
        """The oldest version after whose answer Java's client waits for the throttle time; None if there is none."""
        name = NAMED_OTHERWISE.get(api_key, get_field(self.api(api_key), "name"))
        response = self._class_of(f"org.apache.kafka.common.requests.{name}Response")
        made = self._unsafe.allocateInstance(response)  # whose answer does not depend on its content
        return next((version for version in self.versions(api_key) if made.shouldClientThrottle(version)), None)

    def place(self, api_key, version):
        """Which field of the answer is the throttle time."""
        fields = get_field(self.api(api_key), "messageType").responseSchemas()[version].fields()
        names = [get_field(get_field(field, "def"), "name") for field in fields]
        return names.index("throttle_time_ms")


@pytest.fixture(scope="module")
def java(client_jvm):
    return JavaResponses(client_jvm.gateway)


@pytest.mark.parametrize("api_key", sorted(MUTED_SINCE))
def test_a_client_waits_since_the_same_version_as_javas(java, api_key):
    expected = None if api_key in JAVA_NEVER_WAITS else MUTED_SINCE[api_key]
    assert java.waits_since(api_key) == expected


@pytest.mark.parametrize("api_key", sorted(MUTED_SINCE))
def test_the_throttle_time_is_read_where_java_writes_it(java, api_key):
    answer = memoryview(b"\0\0\0\1\0\2\0\0")
    for version in java.versions(api_key):
        if version >= MUTED_SINCE[api_key]:
            expected = {0: 1, 1: 0x10002}[java.place(api_key, version)]  # field 1 is after an error code of two bytes
            assert read_throttle_ms(api_key, version, answer) == expected
