"""The sandbox command without servers: usage, and the cost of its import."""

import io
import subprocess
import sys

import pytest
from click.testing import CliRunner

from zkconsumer.cli.sandbox import sandbox
from zkconsumer.sandbox.progress import Progress


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kafka-version", "9.9.9"], "9.9.9 is not known; known are: 0.8.2.2, 0.9.0.1, 0.10.2.2, 0.11.0.3, 1.1.1, "),
        (["--zookeeper-port", "70000"], "--zookeeper-port"),
        (["--kafka-port", "none"], "--kafka-port"),
        (["--jars-dir", "/nowhere/at/all"], "--jars-dir"),
        (["--zookeepers", "0"], "--zookeepers"),
        (["--what"], "--what"),
    ],
)
def test_usage_errors(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(sandbox, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_import_stays_cheap() -> None:
    script = (
        "import sys, zkconsumer.cli.sandbox; "
        "print([m for m in ('pyspark', 'kazoo', 'kafka', 'rich', 'zkconsumer.sandbox', 'numpy') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_progress_elsewhere_than_on_a_terminal_is_lines() -> None:
    stream = io.StringIO()
    with Progress(stream).step("fetching 2 jars", 2) as advance:
        advance(1, "(0.1 MB)")
    assert stream.getvalue() == "fetching 2 jars ...\n"


def test_quiet_progress() -> None:
    stream = io.StringIO()
    quiet = Progress(stream, quiet=True)
    quiet.write_line("hello")
    with quiet.step("working") as advance:
        advance(1, "")
    assert stream.getvalue() == ""
