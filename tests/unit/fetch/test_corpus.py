"""The fuzzer's inputs once more: nothing may come out of the decoder and the parser but our errors (see tests/fuzz)."""

import resource

import pytest

from tests.fuzz.corpus import first_inputs, kept_inputs
from tests.fuzz.target import run

INPUTS = [*first_inputs("records"), *kept_inputs("records")]


def test_what_the_fuzzer_found():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, data in INPUTS:
        try:
            run(data)
        except Exception as error:  # noqa: BLE001 - to name the input
            pytest.fail(f"{name}: {error!r}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10  # KiB


def test_there_is_a_corpus():
    assert len(INPUTS) > 300
