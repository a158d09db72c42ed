"""Shared fixtures of the unit tests of reading ranges."""

import pytest

from zkconsumer.decode.batchdecoder import BatchDecoder


@pytest.fixture
def decoder() -> BatchDecoder:
    return BatchDecoder()
