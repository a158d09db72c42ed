"""How a command ends that cannot do its work: one style of message, and its exit code."""

import subprocess
import sys

import pytest


def ended(*arguments):
    """Exit code of ``zkconsumer``, and the lines of its standard error."""
    process = subprocess.run(
        [sys.executable, "-m", "zkconsumer", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.stdout == ""
    return process.returncode, process.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["groups", "lis"], "No such command 'lis'. Did you mean 'list'?"),
        (["groups", "status", "--zookeeper"], "Option '--zookeeper' requires an argument."),
        (["groups", "status", "--zookeeper", "h:1"], "give --group, --all, or --config FILE with group.id"),
        (["groups", "describe", "--group", "g"], None),
        (["health"], "no port is given; use --port or ZKCONSUMER_METRICS_PORT with metrics.port of the consumer"),
        (
            ["serve", "--zookeeper", "h:1", "--listen", "8.8.8.8:80"],
            "8.8.8.8:80 can be reached from other machines, and there is no login; add --allow-remote if that is "
            "intended",
        ),
    ],
)
def test_a_usage_error_is_one_message_and_exit_code_2(arguments, message):
    code, lines = ended(*arguments)
    assert code == 2
    assert [line for line in lines if line.lower().startswith("error:")] == [lines[-1]]
    assert lines[-1].startswith("error: ")
    assert message is None or lines[-1] == f"error: {message}"


def test_every_violation_of_a_configuration_is_in_one_message():
    code, lines = ended(
        "groups", "describe", "--zookeeper", "h:1", "--group", "g", "-p", "rebalance.max.retries=x", "-p",
        "socket.timeout.ms=y",
    )  # fmt: skip
    assert code == 2
    assert lines == [
        "error: socket.timeout.ms must be an integer, not 'y'",
        "       rebalance.max.retries must be an integer, not 'x'",
    ]


def test_a_failure_is_one_message_and_exit_code_1():
    code, lines = ended("health", "--port", "1")
    assert code == 1
    assert lines == [
        "error: no metrics at 127.0.0.1:1: [Errno 111] Connection refused; check that the consumer runs with "
        "metrics.port=1"
    ]


def test_a_command_without_arguments_shows_its_help():
    code, lines = ended("groups")
    assert code == 2
    assert lines[0].startswith("Usage: zkconsumer groups")
