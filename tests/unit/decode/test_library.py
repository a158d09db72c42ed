"""The library of the decoder: which one is loaded, and what is said of one that cannot be used."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import zkconsumer
from zkconsumer.decode import kernelloader, library
from zkconsumer.decode.reference import ReferenceKernels
from zkconsumer.errors import DecoderUnavailable

PACKAGE = Path(zkconsumer.__file__).parent
READ = (
    "import sys\n"
    "from zkconsumer.decode.kernelloader import kernels\n"
    "from zkconsumer.decode import library\n"
    "print(library.__file__, kernels().extent(memoryview(b'')))\n"
)


@pytest.fixture
def fresh():
    """The kernels are loaded again, in this test and after it."""
    kernelloader.kernels.cache_clear()
    yield kernelloader.kernels
    kernelloader.kernels.cache_clear()


def test_a_library_of_other_source_is_refused(fresh, monkeypatch, tmp_path):
    shutil.copytree(library.DIRECTORY, tmp_path, dirs_exist_ok=True)
    (tmp_path / "native" / "added.c").write_text("")
    monkeypatch.setattr(library, "DIRECTORY", tmp_path)
    monkeypatch.setattr(library, "source_hash", lambda: original(tmp_path))
    with pytest.raises(DecoderUnavailable, match=r"was built from other source .* make venv"):
        fresh()


original = library.source_hash


def test_a_missing_library_is_an_error_where_there_should_be_one(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "DIRECTORY", tmp_path)
    with pytest.raises(DecoderUnavailable, match=r"kernels-\w+\.so does not exist; install zkconsumer again"):
        fresh()


def test_other_platforms_decode_in_python_and_say_so(fresh, monkeypatch, caplog):
    monkeypatch.setattr(library, "is_supported", lambda: False)
    assert isinstance(fresh(), ReferenceKernels)
    assert "a hundred times slower" in caplog.text


def test_an_installed_package_without_source_is_not_checked(tmp_path):
    assert original(tmp_path) is None


def test_the_library_is_loaded_from_a_zip_file(tmp_path):
    archive = tmp_path / "zkconsumer.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in PACKAGE.rglob("*"):
            if path.suffix in (".py", ".so"):
                packed.write(path, path.relative_to(PACKAGE.parent))
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{READ}"]
    done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(archive))
    assert done.stdout.endswith("(0, -1)\n")
