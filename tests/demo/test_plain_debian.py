"""The README's commands where there is Python with venv, and make: no compiler, no header file, no Java.

Each command is run as the README has it, except that ``make test`` runs some of its tests: all of them would take eight
minutes more, and differ from the others in nothing that the system has to bring.
"""

import re

import pytest

from tests.fixtures.documents import ROOT, examples

pytestmark = [pytest.mark.slow, pytest.mark.demo, pytest.mark.timeout(3600)]

COMPILERS = {"as", "c99", "cc", "clang", "cpp", "g++", "gcc", "ld", "tcc", "zig"}
INSTALL, _WHEEL, SANDBOX, TRY, DEVELOP = examples(ROOT / "README.md", "sh")[:5]
SOME_TESTS = "decode or test_kernels or test_streams"
_READY = f"{SANDBOX.strip()} > servers.log & until grep -q ^Ready servers.log; do kill -0 $!; sleep 0.5; done"


def test_the_system_has_neither_a_compiler_nor_headers(plain_debian):
    programs = plain_debian.programs()
    assert {"make", "python3"} <= programs
    assert not {name for name in programs if name.rpartition("-")[2] in COMPILERS} | programs & {"java"}
    assert plain_debian.headers() <= {"gnumake.h"}  # make's own: not Python.h, nor those of C


def test_the_readmes_installation_reads_records(plain_debian):
    plain_debian.run(INSTALL, timeout_s=1200)
    loaded = "from zkconsumer.decode.kernelloader import kernels; print(kernels())"
    assert "NativeKernels" in plain_debian.run(f"cd venv; bin/python -c '{loaded}'", timeout_s=60)
    printed = plain_debian.run(f". venv/bin/activate\n{_READY}\n{TRY}", timeout_s=300, network=False)
    assert set(re.findall(r"^(?:one|two|three)$", printed, re.MULTILINE)) == {"one", "two", "three"}
    rows = [line.split() for line in printed.splitlines() if line.startswith("clicks")]
    assert [row[4] for row in rows] == ["0", "0"], printed


@pytest.mark.parametrize(
    ("command", "selection", "result"),
    [("make demo", "", r"All \d+ checks hold"), ("make test", f"-k '{SOME_TESTS}'", r"\d{2,} passed.* in ")],
    ids=["demo", "test"],
)
def test_the_readmes_two_commands_work(plain_debian, command, selection, result):
    assert re.search(rf"^{command} ", DEVELOP, re.MULTILINE)
    printed = plain_debian.run(command, timeout_s=1800, PYTEST_ADDOPTS=selection)
    assert re.search(result, printed), printed[-4000:]
