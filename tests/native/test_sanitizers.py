"""The decoder's tests with a library that aborts on invalid memory access and on undefined behaviour."""

import subprocess
import sys

import pytest

from tests.fixtures import sanitized
from tests.fixtures.programs import require_for_native

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TESTS = ("tests/unit/decode", "tests/property/test_kernels.py", "tests/unit/wire/test_login_corpus.py")
# It loads the library in a process without the sanitizers' runtime.
EXCLUDED = "tests/unit/decode/test_library.py::test_the_library_is_loaded_from_a_zip_file"

MUTANTS = {
    "heap-buffer-overflow": (
        "headers.c",
        ("bit < min64(8, count - item)", "bit < 8"),
        "NATIVE.bitmap(memoryview(bytearray(9)))",
    ),
    "shift exponent 70 is too large": (
        "kernels.h",
        ("shift < 70", "shift < 77"),
        "ends, starts = memoryview(array('i', [0, 1])), memoryview(array('q', [0]))\n"
        "NATIVE.header_tuples(HeaderBytes(memoryview(b'\\xff' * 20), ends, starts), 0, 1)",
    ),
}
"""By what is found: a file, a change of it, and a call that it makes fail."""


@pytest.fixture
def copy(tmp_path):
    require_for_native(sanitized.PROGRAM, package=sanitized.PACKAGES)
    sanitized.copy_code(tmp_path)
    return tmp_path


def test_sanitizers_find_nothing(copy):
    done = sanitized.run_tests(copy, sanitized.build(copy), *TESTS, "--deselect", EXCLUDED)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("found", MUTANTS)
def test_sanitizers_find_a_planted_fault(copy, found):
    name, change, call = MUTANTS[found]
    file = copy / "zkconsumer" / "decode" / "native" / name
    source = file.read_text()
    assert source.count(change[0]) == 1
    file.write_text(source.replace(*change))
    imports = (
        "from array import array\n"
        "from tests.fixtures.kernels import NATIVE\n"
        "from zkconsumer.decode.buffers import HeaderBytes\n"
    )
    command = [sys.executable, "-c", imports + call]
    done = subprocess.run(command, cwd=copy, env=sanitized.build(copy), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert found in done.stderr
