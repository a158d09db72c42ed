"""Why time passes, derived from the innermost frames and from how busy the processes are."""

import sys

import pytest

from tests.suites.causes import cause


def frame_of(function, file):
    """The frame of a call of a function that is defined in a file of that name."""
    code = compile(f"def {function}():\n    return sys._getframe()\n", file, "exec")
    names = {"sys": sys}
    exec(code, names)
    return names[function]()


@pytest.mark.parametrize(
    ("function", "file", "busy", "expected"),
    [
        ("start", "/a/zkconsumer/sandbox/server.py", 1.0, "server starts"),
        ("start", "/a/jvmclients/gateway.py", 0.0, "JVM starts"),
        ("launch_gateway", "/a/pyspark/java_gateway.py", 1.0, "JVM starts"),
        ("await_answer", "/a/zkconsumer/sandbox/server.py", 1.0, "work"),
        ("start", "/a/zkconsumer/kafka/client.py", 0.05, "waits"),
    ],
)
def test_causes(function, file, busy, expected):
    assert cause(frame_of(function, file), busy) == expected


def test_without_a_frame_only_the_load_decides():
    assert cause(None, 0.0) == "waits"
    assert cause(None, 2.0) == "work"
