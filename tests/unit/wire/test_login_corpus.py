"""The fuzzer's conversations again: a connection may raise only the documented errors (see tests/fuzz/login.py)."""

import pytest

from tests.fuzz.corpus import first_inputs, kept_inputs
from tests.fuzz.login import run

FIRST, KEPT = list(first_inputs("login")), list(kept_inputs("login"))


@pytest.mark.parametrize(("name", "data"), FIRST, ids=[name for name, _ in FIRST])
def test_first_inputs_of_the_fuzzer(name, data):
    run(data)


def test_inputs_that_the_fuzzer_found():
    assert KEPT
    for name, data in KEPT:
        try:
            run(data)
        except Exception as error:  # noqa: BLE001 - to name the input
            pytest.fail(f"{name}: {error!r}")
