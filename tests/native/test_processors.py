"""The library equals the reference on other processors, which qemu emulates: aarch64, and x86-64 without SSE 4.2."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.checkout import copy_checkout
from tests.fixtures.documents import ROOT
from tests.fixtures.programs import require_for_native

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COMPARE = """
from hypothesis import settings
settings.register_profile("few", max_examples=10, deadline=None, database=None)
settings.load_profile("few")
from tests.property import test_kernels
print(test_kernels.NATIVE.library.zk_use_instructions(1))
test_kernels.test_both_kernels_make_the_same_of_a_log()
test_kernels.test_both_kernels_make_the_same_of_noise()
"""
IMPORTED = ("hypothesis", "cramjam", "crc32c", "xxhash", "kafka-python")


def compare(command, **variables):
    """Run the comparison; True if the library uses the processor's instructions for checksums."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", **variables}
    done = subprocess.run([*command, "-c", COMPARE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip() != "0"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs this Python")
def test_a_processor_without_crc_instructions_uses_tables():
    require_for_native("qemu-x86_64", package="qemu-user")
    assert compare([sys.executable], PYTHONPATH=str(ROOT))
    assert not compare(["qemu-x86_64", "-cpu", "core2duo", sys.executable], PYTHONPATH=str(ROOT))


def test_the_library_of_aarch64_makes_the_same(tmp_path):
    require_for_native("qemu-aarch64", "dpkg-deb", package="qemu-user dpkg")
    root, site, code = tmp_path / "root", tmp_path / "site", tmp_path / "code"
    unpack_python(tmp_path / "apt", root)
    platforms = [option for name in ("manylinux2014", "manylinux_2_28") for option in ("--platform", f"{name}_aarch64")]
    wheels = ["--only-binary", ":all:", "--python-version", "3.11", *platforms]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", site, *wheels, *IMPORTED], check=True)
    copy_checkout(code)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=code, check=True, env={**os.environ, "ZKCONSUMER_MACHINE": "aarch64"})
    command = ["qemu-aarch64", "-L", str(root), str(root / "usr/bin/python3.11")]
    assert compare(command, PYTHONHOME=str(root / "usr"), PYTHONPATH=f"{code}:{site}")


def unpack_python(state: Path, root: Path) -> None:
    """Debian's Python for aarch64 with all that it needs; fetched by apt, with lists of our own, and not installed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    for command in (["update"], ["install", "--yes", "--download-only", "--no-install-recommends", "python3.11"]):
        subprocess.run(["apt-get", "-q", *options, *command], check=True, capture_output=True)
    for package in (state / "cache" / "archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
