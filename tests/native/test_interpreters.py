"""Other versions of CPython, with the newest dependencies: one library of the decoder serves them all."""

import pytest

from tests.fixtures.installations import EXTRAS, PYTHONS, SMOKE_TESTS, UNIT_TESTS, install, requirements, run_tests
from tests.fixtures.interpreters import find_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module", params=PYTHONS)
def python(request, tmp_path_factory):
    """The Python of a new environment."""
    minor = int(request.param.removeprefix("3."))
    found = find_python(minor)
    if found is None:
        pytest.skip(f"no Python 3.{minor}; put one on the path, or name it in ZKCONSUMER_PYTHON_3_{minor}")
    return install(found, tmp_path_factory.mktemp("python"), requirements(*EXTRAS))


def test_unit_tests_pass(python):
    run_tests(python, "-n", "2", "--dist", "worksteal", "tests/property/test_kernels.py", *UNIT_TESTS)


def test_groups_work(python):
    run_tests(python, *SMOKE_TESTS)
