"""``make clean`` and ``make distclean`` in a directory that looks like a used checkout, and what targets install."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_BY_USE = (
    "zkconsumer.egg-info/PKG-INFO",
    "zkconsumer/decode/kernels-x86_64.so",
    "tests/__pycache__/conftest.pyc",
    ".coverage",
    ".import_linter_cache/a",
    "build/lib/a",
    "docker/kafka/jars/a.jar",
    ".venv/bin/python",
)
CACHED = ("jars/kafka.jar", "classes/kafka.jsa", "failed-sandbox/zookeeper.log")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def fill(directory, names):
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def make(checkout, target, cache, *variables):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(checkout.parent), "ZKCONSUMER_CACHE": str(cache)}
    subprocess.run(["make", target, *variables], cwd=checkout, env=environment, check=True, capture_output=True)


def files(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_clean_leaves_the_sources_and_the_users_cache(tmp_path):
    checkout, cache = tmp_path / "checkout", tmp_path / "cache"
    fill(checkout, [*LEFT_BY_USE, "zkconsumer/decode/kernel.py"])
    shutil.copy(ROOT / "Makefile", checkout)
    fill(cache, CACHED)
    make(checkout, "clean", cache)
    assert files(checkout) == ["Makefile", "zkconsumer/decode/kernel.py"]
    assert files(cache) == sorted(CACHED)


def test_distclean_removes_from_the_users_cache_only_what_is_ours(tmp_path):
    checkout, cache = tmp_path / "checkout", tmp_path / "cache with a space"
    checkout.mkdir()
    shutil.copy(ROOT / "Makefile", checkout)
    fill(cache, [*CACHED, "notes.txt"])
    make(checkout, "distclean", cache)
    assert files(cache) == ["notes.txt"]
    (cache / "notes.txt").unlink()
    make(checkout, "distclean", cache)
    assert not cache.exists()


# In place of Python: notes what it is called with, and creates a virtual environment whose python is a copy of itself.
RECORDER = """#!/bin/sh
echo "$@" >> {log}
[ "$2" != venv ] || {{ mkdir -p $3/bin && cp {self} $3/bin/python; }}
"""


def test_the_demo_installs_what_it_needs_and_nothing_if_all_is_installed(tmp_path):
    checkout, log, python = tmp_path / "checkout", tmp_path / "log", tmp_path / "python"
    fill(checkout, ["setup.cfg", "setup.py", "pyproject.toml"])
    shutil.copy(ROOT / "Makefile", checkout)
    python.write_text(RECORDER.format(log=log, self=python))
    python.chmod(0o755)

    def installed(target):
        """The extras that a target installs."""
        log.write_text("")
        make(checkout, target, tmp_path, f"PYTHON={python}")
        return [line.rpartition(" ")[2] for line in log.read_text().splitlines() if line.startswith("-m pip install")]

    assert installed("demo") == [".[demo]"]
    assert installed("demo") == []
    assert installed("venv") == [".[dev]"]  # into the same environment, which has the demo's part already
    assert installed("demo") == []
    os.utime(checkout / "setup.cfg", (time.time() + 5, time.time() + 5))
    assert installed("venv") == [".[dev]"]
    os.utime(checkout / "setup.cfg", (1, 1))
    shutil.rmtree(checkout / ".venv")
    assert installed("venv") == [".[dev]"]
    assert installed("demo") == []
