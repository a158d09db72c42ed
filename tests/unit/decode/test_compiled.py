"""The cache of compiled code, tested in separate processes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.decode import kernelloader
from zkconsumer.decode.codecache import file_name, seal, stale_files, unseal
from zkconsumer.decode.compiled import SOURCES, cache_directory

ROOT = Path(__file__).parents[3]
# The module that compiles in the shortest time: the same function compiles and stores all of them.
LOAD = """
from zkconsumer.decode.compiled import cache_directory
from zkconsumer.decode.kernelloader import transactions
print("kept in", cache_directory(transactions()._exclude))
"""
DAMAGE_AND_LOAD_AGAIN = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})  # the package is imported already
from tests.unit.decode.test_compiled import DAMAGES
for damage in DAMAGES:
    (file,) = Path(os.environ["NUMBA_CACHE_DIR"]).rglob("transactions.*.nbc")
    file.write_bytes(damage(file.read_bytes()))
    del sys.modules["zkconsumer.decode.transactions"]
    transactions()
"""
# Root may write everywhere, so the tests for write permission are replaced.
NOTHING_CAN_BE_WRITTEN = """
import os, tempfile
def refuse(*_, **__):
    raise PermissionError
tempfile.TemporaryFile = refuse
os.access = lambda path, mode, may=os.access, **__: mode != os.W_OK and may(path, mode)
"""


def run(code, root, cache):
    """Run code in a new process whose package is in ``root``."""
    settings = {**os.environ, "PYTHONPATH": str(root), "HOME": str(root), "NUMBA_DEBUG_CACHE": "1"}
    settings |= {"NUMBA_CACHE_DIR": str(cache), "XDG_CACHE_HOME": str(root / "cache")}
    return subprocess.run(
        [sys.executable, "-B", "-c", code], check=True, cwd=root, env=settings, capture_output=True, text=True
    )


@pytest.fixture
def package(tmp_path):
    """A copy of the package without caches."""
    root = tmp_path / "installed"
    shutil.copytree(ROOT / "zkconsumer", root / "zkconsumer", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_without_a_cache_directory_it_is_compiled_with_a_warning(package, tmp_path):
    done = run(NOTHING_CAN_BE_WRITTEN + LOAD, package, tmp_path / "none")
    assert "kept in None" in done.stdout
    assert "set NUMBA_CACHE_DIR" in done.stderr


def test_a_file_in_place_of_the_directory_is_ignored(package, tmp_path):
    (tmp_path / "file").touch()
    assert f"kept in {package}/zkconsumer/decode/__pycache__" in run(LOAD, package, tmp_path / "file").stdout


def test_a_cache_that_cannot_be_written_is_used(package, tmp_path):
    run(LOAD, package, tmp_path)
    used = run(NOTHING_CAN_BE_WRITTEN + LOAD, package, tmp_path)
    assert "data loaded from" in used.stdout
    assert "data saved to" not in used.stdout
    assert used.stderr == ""


@pytest.mark.slow
def test_code_that_changed_in_another_file_is_compiled_again(package, tmp_path):
    """numba checks only the file of a function; its constants are in another one."""
    run(LOAD, package, tmp_path)
    table = package / "zkconsumer/decode/batchtable.py"
    table.write_text(table.read_text().replace("NO_TIMESTAMP: Final = -1", "NO_TIMESTAMP: Final = -2"))
    before = set(tmp_path.rglob("*.nbc"))
    again = run(LOAD, package, tmp_path)
    assert "data saved to" in again.stdout
    assert "data loaded from" not in again.stdout
    after = set(tmp_path.rglob("*.nbc"))
    assert before.isdisjoint(after)  # those of the former source are removed
    assert len(before) == len(after)


def test_the_command_stores_every_module_and_prints_the_directory():
    loaded = cache_directory(kernelloader.kernel().scan)
    done = subprocess.run(
        [sys.executable, "-m", "zkconsumer", "warm"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert f"is kept in {loaded}" in done.stdout
    modules = {file.name.partition(".")[0] for file in Path(loaded).glob("*.nbc")}
    assert modules >= {"kernel", "messageset", "messagekernel", "headerlists", "transactions"}


def test_the_stamp_covers_every_module_that_is_compiled():
    users = {
        file.name
        for file in (ROOT / "zkconsumer/decode").glob("*.py")
        if re.search(r"^from zkconsumer.decode.compiled import", file.read_text(), re.MULTILINE)
    }
    assert users <= set(SOURCES)


def empty(_data):
    return b""


def truncated(data):
    return data[: len(data) // 2]


def garbage(data):
    return os.urandom(len(data))


def one_bit_flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def first_byte_changed(data):
    return bytes([data[0] ^ 0xFF]) + data[1:]


def intact_but_of_another_library(_data):
    return seal(b"cno.such.module\nThing\n.")


DAMAGES = [empty, truncated, garbage, one_bit_flipped, first_byte_changed, intact_but_of_another_library]


@pytest.mark.slow
def test_a_damaged_cache_is_compiled_again_and_repaired(package, tmp_path):
    repairing = run(LOAD + DAMAGE_AND_LOAD_AGAIN, package, tmp_path)
    assert f"kept in {tmp_path}" in repairing.stdout
    assert repairing.stdout.count("data saved to") == 1 + len(DAMAGES)
    assert repairing.stderr.count("compiling it again") == len(DAMAGES)
    after = run(LOAD, package, tmp_path)
    assert "data saved to" not in after.stdout
    assert after.stderr == ""


@pytest.mark.parametrize("damage", [empty, truncated, garbage, one_bit_flipped, first_byte_changed])
def test_the_checksum_covers_every_part_of_a_file(damage):
    content = bytes(range(256))
    assert unseal(seal(content)) == content
    assert unseal(damage(seal(content))) is None


def test_no_single_flipped_byte_goes_unnoticed():
    whole = seal(b"machine code")
    for at in range(len(whole)):
        assert unseal(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]) is None


def test_the_name_depends_on_source_processor_and_signature():
    key = (("int64",), ("x86_64", "skylake", "+avx"), ("a", "b"))
    changed = [
        (("int32",), *key[1:]),
        (key[0], ("x86_64", "znver4", "+avx"), key[2]),
        (key[0], ("x86_64", "skylake", "-avx"), key[2]),
    ]
    names = {file_name("kernel.scan", 7, one) for one in (key, *changed)} | {file_name("kernel.scan", 8, key)}
    assert len(names) == len(changed) + 2
    assert "-00000007-skylake-" in file_name("kernel.scan", 7, key)


def test_only_files_of_another_source_are_stale():
    base = "kernel.scan-53.py311"
    stale = [
        "kernel.scan-50.py311-00000006-skylake-0123456789abcdef.nbc",
        "kernel.removed-9.py311-00000006-znver4-0123456789abcdef.nbc",
        "kernel.scan-50.py311.nbi",
        "kernel.scan-50.py311.1.nbc",
    ]
    kept = [
        "kernel.scan-53.py311-00000007-skylake-0123456789abcdef.nbc",
        "kernel.scan-53.py311-00000007-znver4-fedcba9876543210.nbc",
        "kernel.scan-50.py312-00000006-skylake-0123456789abcdef.nbc",
        "messageset.scan-50.py311-00000006-skylake-0123456789abcdef.nbc",
        "kernel.scan-53.py311-00000006-skylake-0123456789abcdef.nbc.tmp.1",
        "kernel.cpython-311.pyc",
        "other.nbi",
    ]
    assert stale_files([*kept, *stale], base, 7) == stale
