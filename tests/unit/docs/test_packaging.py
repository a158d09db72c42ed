"""What ``python -m build`` makes: complete, well described, and working where nothing else of this project is."""

import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests.fixtures.documents import ROOT
from zkconsumer.decode import library

PROJECT_URL = "https://example.org/zkconsumer"
FILES = (
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
    "pyspark_zkconsumer.py",
    "setup.cfg",
    "setup.py",
)
DIRECTORIES = ("zkconsumer", "tests", "docs", "examples", "docker", ".ci")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A directory with the wheel and the source distribution, built from a copy: setuptools writes where it builds."""
    source = tmp_path_factory.mktemp("source")
    for name in FILES:
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "jars", "wheels")
    for name in DIRECTORIES:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    built = tmp_path_factory.mktemp("dist")
    environment = {**os.environ, "ZKCONSUMER_PROJECT_URL": PROJECT_URL}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, source]
    subprocess.run(command, check=True, env=environment, cwd=built)
    return built


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Run a program of a new environment that has the wheel, and of the dependencies those that are installed here."""
    directory = tmp_path_factory.mktemp("clean") / "environment"
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
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()], check=True)


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"zkconsumer", "pyspark_zkconsumer.py"}
    assert "zkconsumer/py.typed" in names
    page = {path.name for path in (ROOT / "zkconsumer/web/static").iterdir()}
    assert {name.rpartition("/")[2] for name in names if "/static/" in name} == page
    locks = {path.name for path in (ROOT / "zkconsumer/sandbox/locks").iterdir()}
    assert {name.rpartition("/")[2] for name in names if "/locks/" in name} == locks


def test_the_wheel_has_the_library_for_any_python_and_no_source(wheel):
    with zipfile.ZipFile(wheel) as archive:
        native = [name for name in archive.namelist() if name.endswith((".so", ".c", ".h"))]
    assert native == [f"zkconsumer/decode/{library.name_of(platform.machine())}"]
    assert wheel.name.endswith(f"-py3-none-manylinux2014_{platform.machine()}.whl")


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


def test_without_a_repository_a_link_becomes_its_text():
    description = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]
    assert description("see [a](docs/a#b) and [c](https://c)", "", "1") == "see a and [c](https://c)"


def test_the_source_distribution_has_tests_and_documents(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = [
        path.relative_to(ROOT).as_posix()
        for directory in ("tests", "docs", "examples")
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
