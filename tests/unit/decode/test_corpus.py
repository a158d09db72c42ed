"""The fuzzer's inputs again: decoder and parser may raise only the documented errors (see tests/fuzz)."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.corpus import first_inputs, kept_inputs
from tests.fuzz.target import run

INPUTS = [*first_inputs("records"), *kept_inputs("records")]


def test_inputs_that_the_fuzzer_found():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, data in INPUTS:
        try:
            run(data)
        except Exception as error:  # noqa: BLE001 - to name the input
            pytest.fail(f"{name}: {error!r}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10  # KiB


def test_there_is_a_corpus():
    assert len(INPUTS) > 300


@pytest.mark.parametrize("beyond", [0, 1])
def test_access_beyond_guarded_memory_is_a_crash(beyond):
    script = f"""
import ctypes
from tests.fuzz.guard import guarded_copy
copy = guarded_copy(b"12345")
last = ctypes.addressof(ctypes.c_char.from_buffer(copy)) + 4
print(ctypes.string_at(last + {beyond}, 1))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == ((-signal.SIGSEGV, b"") if beyond else (0, b"b'5'\n"))
