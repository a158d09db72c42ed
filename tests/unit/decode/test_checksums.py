import random
import zlib
from pathlib import Path

import pytest
from crc32c import crc32c as reference_crc32c

from tests.fixtures.kernels import NATIVE

LENGTHS = [*range(300), 511, 512, 513, 1535, 1536, 1537, 3071, 3072, 3073, 4609, 100_003]
"""Around each length at which another loop begins: 8, 16, 32, 128 bytes, and three strides of 512."""
NONE, OF_CRC32C, OF_CRC32, ALL = 0, 1, 2, -1


@pytest.mark.parametrize("start", [0, 1, 7])
@pytest.mark.parametrize("instructions", [NONE, OF_CRC32C, OF_CRC32, ALL])
def test_checksums_are_those_of_the_libraries(start: int, instructions: int) -> None:
    """With the processor's instructions, and with tables."""
    data = random.Random(start).randbytes(1 << 17)
    library, address = NATIVE.library, NATIVE.address_of(memoryview(data))
    library.zk_use_instructions(instructions)
    try:
        for length in LENGTHS:
            part = data[start : start + length]
            assert library.zk_crc32c(address + start, length) == reference_crc32c(part), length
            assert library.zk_crc32(address + start, length) == zlib.crc32(part), length
    finally:
        library.zk_use_instructions(ALL)


def test_the_instructions_of_usual_processors_are_used() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="ascii").split()
    expected = OF_CRC32C * ("sse4_2" in flags or "crc32" in flags) | OF_CRC32 * (
        "pclmulqdq" in flags or "crc32" in flags
    )
    assert NATIVE.library.zk_use_instructions(ALL) == expected
