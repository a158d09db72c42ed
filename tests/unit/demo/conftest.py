"""A small source for the comparisons."""

import numpy as np
import pyarrow as pa
import pytest

from demo.flights import Records

PARTITIONS = [0, 1, 0, 1, 0]


@pytest.fixture
def source() -> Records:
    """Five records on two partitions."""
    return Records(
        table=None,
        keys=pa.array([f"k{n}" for n in range(5)]),
        values=pa.array([f'{{"row":{n}}}' for n in range(5)]),
        timestamps=np.arange(5) * 1000,
        partitions=np.array(PARTITIONS),
        offsets=np.array([0, 0, 1, 1, 2]),
    )
