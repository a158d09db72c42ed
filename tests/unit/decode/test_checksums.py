import os
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c as reference_crc32c

from zkconsumer.decode import checksums
from zkconsumer.decode.compiled import njit

LENGTHS = [*range(300), 511, 512, 513, 1535, 1536, 1537, 3071, 3072, 3073, 4609, 100_003]
"""Around each length at which another loop begins: 8, 16, 32, 128 bytes, and three strides of 512."""


@njit(nogil=True)
def _crc32c(data: Any, start: Any, end: Any) -> Any:
    return checksums.crc32c(np.intp(data.ctypes.data) + start, end - start)


@njit(nogil=True)
def _crc32(data: Any, start: Any, end: Any) -> Any:
    return checksums.crc32(np.intp(data.ctypes.data) + start, end - start)


@pytest.mark.parametrize("start", [0, 1, 7])
def test_checksums_are_those_of_the_libraries(start: int) -> None:
    data = np.random.default_rng(start).integers(0, 256, 1 << 17, np.uint8)
    for length in LENGTHS:
        part = data[start : start + length].tobytes()
        assert _crc32c(data, start, start + length) == reference_crc32c(part), length
        assert _crc32(data, start, start + length) == zlib.crc32(part), length


def test_processors_without_the_instructions_use_tables() -> None:
    script = (
        "from tests.unit.decode import test_checksums as t\n"
        "assert not t.checksums._HAS_CRC32C and not t.checksums._HAS_MULTIPLICATION\n"
        "t.test_checksums_are_those_of_the_libraries(1)\n"
        "assembly = ''.join(t._crc32c.inspect_asm().values()) + ''.join(t._crc32.inspect_asm().values())\n"
        "assert 'crc32b' not in assembly and 'crc32q' not in assembly and 'pclmul' not in assembly\n"
    )
    plain = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}
    subprocess.run([sys.executable, "-c", script], env=plain, check=True, timeout=100)


def test_the_instructions_are_used_if_available() -> None:
    if not (checksums._HAS_CRC32C and checksums._HAS_MULTIPLICATION):
        pytest.skip("this processor has no instructions for checksums")
    data = np.zeros(64, np.uint8)
    _crc32c(data, 0, 64)
    _crc32(data, 0, 64)
    assert "crc32q" in "".join(_crc32c.inspect_asm().values())
    assert "pclmul" in "".join(_crc32.inspect_asm().values())
