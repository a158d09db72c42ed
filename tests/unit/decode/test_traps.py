"""The decoder's library, compiled so that undefined behaviour of C ends the process, decodes what the reference does.

The compiler is that of the build, so this needs no other one; it finds no invalid memory access, as tests/native does.
"""

import os
import signal
import subprocess
import sys

import pytest

from tests.fixtures import sanitized
from zkconsumer.decode import library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not library.is_supported(), reason="there is no library for this platform"),
]

FLAGS = ("-std=c11", "-O1", "-fPIC", "-shared", "-fsanitize=undefined", "-fsanitize-trap=undefined")
COMPARE = """
from hypothesis import settings
settings.register_profile("few", max_examples=20, deadline=None, database=None)
settings.load_profile("few")
from tests.property import test_kernels
test_kernels.test_both_kernels_make_the_same_of_a_log()
test_kernels.test_both_kernels_make_the_same_of_noise()
"""
SHIFT_TOO_FAR = """
from array import array
from tests.fixtures.kernels import NATIVE
from zkconsumer.decode.buffers import HeaderBytes
ends, starts = memoryview(array("i", [0, 1])), memoryview(array("q", [0]))
NATIVE.header_tuples(HeaderBytes(memoryview(b"\\xff" * 20), ends, starts), 0, 1)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the code."""
    directory = tmp_path_factory.mktemp("traps")
    sanitized.copy_code(directory)
    return directory


def run(copy, code):
    """Compile the library of the copy, and return the exit code of a program that uses it."""
    decode = copy / "zkconsumer" / "decode"
    sources = sorted(map(str, (decode / "native").glob("*.c")))
    target = decode / library.name_of(os.uname().machine)
    cache = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(copy / "zig"))
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, f'-DSOURCE_HASH="{library.source_hash(decode)}"']
    subprocess.run([*command, *sources, "-o", target], check=True, env=os.environ | cache)
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
    return subprocess.run([sys.executable, "-c", code], cwd=copy, env=environment, check=False).returncode


def test_the_library_decodes_without_undefined_behaviour(copy):
    assert run(copy, COMPARE) == 0


def test_undefined_behaviour_ends_the_process(copy):
    header = copy / "zkconsumer/decode/native/kernels.h"
    intact = header.read_text()
    assert intact.count("shift < 70") == 1
    header.write_text(intact.replace("shift < 70", "shift < 77"))
    try:
        assert run(copy, SHIFT_TOO_FAR) in (-signal.SIGILL, -signal.SIGTRAP)
    finally:
        header.write_text(intact)
