"""What ``zkconsumer serve`` refuses before it connects."""

import sys

import pytest
from click.testing import CliRunner

from zkconsumer.cli.main import EXIT_FAILED, EXIT_USAGE
from zkconsumer.cli.serve import serve


def run(*arguments):
    return CliRunner().invoke(serve, ["--zookeeper", "localhost:1", *arguments])


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "plotly"])
def test_without_the_extra_the_line_to_install_it_is_printed(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    ended = run()
    assert ended.exit_code == EXIT_USAGE
    assert f"{package} missing; install with: pip install 'zkconsumer[web]'" in ended.output


@pytest.mark.parametrize(
    "arguments", [("--listen", "8087"), ("--match", "("), ("--interval", "10"), ("--history", "0s"), ("--samples", "1")]
)
def test_options_that_cannot_be_used(arguments):
    assert run(*arguments).exit_code == EXIT_USAGE


def test_a_remote_address_has_to_be_allowed():
    ended = run("--listen", "0.0.0.0:0")
    assert ended.exit_code == EXIT_FAILED
    assert "--allow-remote" in str(ended.exception)
