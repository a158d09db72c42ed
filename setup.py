"""The decoder's library, and metadata that depends on where the project is published; the rest is in ``setup.cfg``.

A package index shows README.md away from the repository, where relative links lead nowhere. If the environment variable
``ZKCONSUMER_PROJECT_URL`` names the repository, they become links to the files of this version there, and the metadata
has its URLs. Otherwise a link becomes its text.

The decoder's C source is compiled by the clang in the package ``ziglang``, a requirement of the build only, so that
neither a compiler nor header files have to be installed. It has no part that depends on the version of Python. The
library needs Linux, and glibc 2.17 or later, on any processor of its kind. ``ZKCONSUMER_MACHINE`` names the machine
(``x86_64`` or ``aarch64``) if it is not this one. For other platforms, of which ``any`` stands for all, the package has
no library, and decodes in Python.
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")
_FLAGS = (
    "-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-sanitize=undefined", "-Wall", "-Wextra",
    "-Werror", "-s",
)  # fmt: skip
_GLIBC = "2.17"
_PLATFORM = "manylinux2014"  # which means this release of glibc


def description(readme: str, project_url: str, version: str) -> str:
    """The README as an index shows it."""
    if not project_url:
        return _LINK.sub(r"\2", readme)
    kinds = {"!": "raw", "": "blob"}
    return _LINK.sub(lambda link: f"{link[1]}[{link[2]}]({project_url}/{kinds[link[1]]}/v{version}/{link[3]})", readme)


def urls(project_url: str, version: str) -> dict[str, str]:
    """What the metadata links to."""
    if not project_url:
        return {}
    files = f"{project_url}/blob/v{version}"
    return {
        "Source": project_url,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{project_url}/issues",
    }


def _library_module():
    """``zkconsumer/decode/library.py``, without the package."""
    path = HERE / "zkconsumer" / "decode" / "library.py"
    spec = importlib.util.spec_from_file_location("library", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LIBRARY = _library_module()
CHOSEN = os.environ.get("ZKCONSUMER_MACHINE")
MACHINE = CHOSEN or platform.machine()
HAS_LIBRARY = MACHINE in LIBRARY.MACHINES if CHOSEN else LIBRARY.is_supported()


class BuildLibrary(build_ext):
    """Compiles the library."""

    def get_ext_filename(self, fullname: str) -> str:
        """The name of the library, without a tag of an interpreter."""
        *packages, _ = fullname.split(".")
        return str(Path(*packages, LIBRARY.name_of(MACHINE)))

    def build_extension(self, ext: Extension) -> None:
        """Compile; the compiler's own cache stays in the directory of the build."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        for other in target.parent.glob(LIBRARY.name_of("*")):  # an earlier build for another machine
            other.unlink()
        cache = str(Path(self.build_temp).absolute() / "zig")
        command = [
            sys.executable, "-m", "ziglang", "cc", "-target", f"{MACHINE}-linux-gnu.{_GLIBC}", *_FLAGS,
            f'-DSOURCE_HASH="{LIBRARY.source_hash()}"', *ext.sources, "-o", str(target),
        ]  # fmt: skip
        caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run(command, check=True, cwd=HERE, env=os.environ | caches)

    def get_source_files(self) -> list[str]:
        """What a source distribution has to hold."""
        return [str(path.relative_to(HERE)) for path in (LIBRARY.DIRECTORY / "native").glob("*.[ch]")]


class TagWheel(bdist_wheel):
    """Names the platform of the library, and no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Tags of the wheel."""
        return ("py3", "none", f"{_PLATFORM}_{MACHINE}" if HAS_LIBRARY else "any")


class Platform(Distribution):
    """A distribution that belongs to a platform."""

    def has_ext_modules(self) -> bool:
        """True if there is a library."""
        return HAS_LIBRARY


def _run() -> None:
    found = re.search(r"^version = (.*)$", (HERE / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    version, project_url = found.group(1), os.environ.get("ZKCONSUMER_PROJECT_URL", "").rstrip("/")
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    sources = sorted(str(path.relative_to(HERE)) for path in (LIBRARY.DIRECTORY / "native").glob("*.c"))
    setup(
        long_description=description(readme, project_url, version),
        project_urls=urls(project_url, version),
        distclass=Platform,
        ext_modules=[Extension("zkconsumer.decode.kernels", sources)] if HAS_LIBRARY else [],
        cmdclass={"build_ext": BuildLibrary, "bdist_wheel": TagWheel},
    )


if __name__ == "__main__":
    _run()
