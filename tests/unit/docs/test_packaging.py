"""What ``python -m build`` makes: complete, well described, and working where nothing else of this project is."""

import io
import json
import os
import platform
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from elftools.elf.constants import P_FLAGS
from elftools.elf.elffile import ELFFile

from tests.fixtures.batches import build as build_batch
from tests.fixtures.checkout import FILES, copy_checkout
from tests.fixtures.documents import ROOT
from zkconsumer.decode import library
from zkconsumer.sandbox.producer import Record

PROJECT_URL = "https://example.org/zkconsumer"
MACHINES = library.MACHINES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def build(directory, *options, **variables):
    """Build a copy of the checkout, and return what was made: without options a wheel from the source distribution."""
    built = directory / "dist"
    environment = {**os.environ, "ZKCONSUMER_PROJECT_URL": PROJECT_URL, **variables}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, *options, directory / "source"]
    subprocess.run(command, check=True, env=environment, cwd=directory)
    return sorted(built.iterdir())


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory with a copy of the checkout."""
    directory = tmp_path_factory.mktemp("build")
    copy_checkout(directory / "source")
    return directory


@pytest.fixture(scope="module")
def built(directory):
    """The wheel and the source distribution that it was built from."""
    return build(directory)


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = [path for path in built if path.suffix == ".whl"]
    return found


@pytest.fixture(scope="module")
def wheels(wheel, directory):
    """Wheels by machine; those for other machines are built where a library for this one was built in place."""
    in_place = directory / "source/zkconsumer/decode" / library.name_of(platform.machine())
    with zipfile.ZipFile(wheel) as archive:
        in_place.write_bytes(archive.read(f"zkconsumer/decode/{in_place.name}"))
    for machine in {*MACHINES, "any"} - {platform.machine()}:
        build(directory, "--wheel", ZKCONSUMER_MACHINE=machine)
    return {path.stem.partition("manylinux2014_")[2] or "any": path for path in (directory / "dist").glob("*.whl")}


@pytest.fixture(params=MACHINES)
def elf(request, wheels):
    """The library for each machine."""
    with zipfile.ZipFile(wheels[request.param]) as archive:
        packed = archive.read(f"zkconsumer/decode/{library.name_of(request.param)}")
    return ELFFile(io.BytesIO(packed))


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Run a program of a new environment that has the wheel."""
    return installed(wheel, tmp_path_factory.mktemp("clean") / "environment")


def installed(wheel, directory):
    """Install a wheel in a new environment, where dependencies are those of this one; return what runs programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True)
    places = sysconfig.get_paths(vars={"base": str(directory), "platbase": str(directory)})
    # A line of a .pth file adds a directory without the .pth files in it, such as those of a development install.
    Path(places["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def call(program, *arguments):
        command = [directory / "bin" / program, *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment, cwd=directory, timeout=120
        ).stdout

    return call


def test_descriptions_are_rendered_by_an_index(built):
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True)


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"zkconsumer", "pyspark_zkconsumer.py"}
    assert "zkconsumer/py.typed" in names
    page = {path.name for path in (ROOT / "zkconsumer/operate/serve/static").iterdir()}
    assert {name.rpartition("/")[2] for name in names if "/static/" in name} == page
    locks = {path.name for path in (ROOT / "zkconsumer/sandbox/locks").iterdir()}
    assert {name.rpartition("/")[2] for name in names if "/locks/" in name} == locks


@pytest.mark.parametrize("machine", MACHINES)
def test_a_wheel_has_one_library_for_any_python_and_no_source(wheels, machine):
    assert native_files(wheels[machine]) == [f"zkconsumer/decode/{library.name_of(machine)}"]
    assert wheels[machine].name.endswith(f"-py3-none-manylinux2014_{machine}.whl")


def test_the_wheel_for_other_platforms_has_no_library(wheels):
    assert native_files(wheels["any"]) == []
    assert wheels["any"].name.endswith("-py3-none-any.whl")


def native_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith((".so", ".c", ".h"))]


def test_other_platforms_decode_in_python(wheels, tmp_path):
    log = build_batch([Record(b"value", b"key", 1000, [("h", b"1")])])
    decode = f"""
import platform
platform.machine = lambda: "riscv64"
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.decode.messages import records
(message,) = records(BatchDecoder(headers=True).decode("t", 0, 0, memoryview(bytearray({log!r})), ()).records)
print(type(kernels()).__name__, message.value, message.headers)
"""
    printed = installed(wheels["any"], tmp_path / "environment")("python", "-c", decode)
    assert printed == "ReferenceKernels b'value' (('h', b'1'),)\n"


def test_the_library_needs_nothing_but_libc(elf):
    needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
    assert needed <= {"libc.so.6", "libm.so.6"}


def test_the_library_runs_with_glibc_2_17(elf):
    groups = elf.get_section_by_name(".gnu.version_r").iter_versions()
    versions = {version.name for _, wanted in groups for version in wanted}
    assert versions
    assert {name for name in versions if not name.startswith("GLIBC_")} == set()
    assert max(tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in versions) <= (2, 17)


def test_the_library_exports_its_own_names_only(elf):
    symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
    exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    assert "zk_source_hash" in exported
    assert {name for name in exported if not name.startswith("zk_")} == set()


def test_the_librarys_stack_is_not_executable(elf):
    (stack,) = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_GNU_STACK"]
    assert not stack["p_flags"] & P_FLAGS.PF_X


def test_the_installed_package_decodes_with_its_library(run):
    assert "NativeKernels" in run(
        "python", "-c", "from zkconsumer.decode.kernelloader import kernels; print(kernels())"
    )


def test_links_of_the_description_lead_to_the_repository(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        described = message_from_string(archive.read(metadata).decode())
    assert f"]({PROJECT_URL}/blob/v{described['Version']}/docs/delivery.md)" in described.get_payload()
    assert "](docs/" not in described.get_payload()
    assert f"Source, {PROJECT_URL}" in described.get_all("Project-URL")


def test_pictures_of_the_description_lead_to_their_bytes():
    description = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]
    assert description("![a](docs/a.png) [b](docs/b)", "https://h", "1") == (
        "![a](https://h/raw/v1/docs/a.png) [b](https://h/blob/v1/docs/b)"
    )
    assert description("![a](docs/a.png)", "", "1") == "a"


def test_without_a_repository_a_link_becomes_its_text():
    description = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]
    assert description("see [a](docs/a#b) and [c](https://c)", "", "1") == "see a and [c](https://c)"


def test_the_source_distribution_has_tests_and_documents(built):
    (archive,) = [path for path in built if path.suffix == ".gz"]
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = [
        path.relative_to(ROOT).as_posix()
        for directory in ("benchmarks", "demo", "jvmclients", "tests", "docs", "examples")
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [name for name in [*wanted, *FILES] if name not in names] == []


def test_the_installed_command_explains_itself(run):
    assert "consume" in run("zkconsumer", "--help")
    assert "--from-beginning" in run("zkconsumer", "consume", "--help")


def test_the_installed_package_is_imported(run):
    location = run("python", "-c", "import zkconsumer; print(zkconsumer.__file__, zkconsumer.__version__)")
    assert "environment/lib" in location


def test_spark_finds_the_installed_source(run):
    """By Spark's own rule: modules whose name begins with pyspark_ and that have a DefaultSource."""
    look_up = """
import importlib, json, pkgutil
modules = [importlib.import_module(one.name) for one in pkgutil.iter_modules() if one.name.startswith("pyspark_")]
print(json.dumps([module.DefaultSource.name() for module in modules if hasattr(module, "DefaultSource")]))
"""
    assert "zkconsumer" in json.loads(run("python", "-c", look_up))
