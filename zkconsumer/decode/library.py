"""The shared library of the kernels: where it is, whether it fits its source, and how it is loaded.

``setup.py`` uses this module, too; so it imports nothing of the package.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parent
"""The directory of the libraries; their source is in its ``native``."""
MACHINES: Final = ("x86_64", "aarch64")
"""Machines for which there is a library; with Linux and glibc 2.17 or later."""
_HASH_CHARACTERS: Final = 16


class StaleLibrary(Exception):
    """The library was built from other source."""


def name_of(machine: str) -> str:
    """File name of the library for a machine."""
    return f"kernels-{machine}.so"


def is_supported() -> bool:
    """True if there is a library for this platform, and for this interpreter: not for one without a global lock."""
    if sys.platform != "linux" or platform.machine() not in MACHINES or sys.maxsize < 2**32:
        return False
    return _has_glibc() and bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):  # another C library does not know the name
        return False


def source_hash(directory: Path = DIRECTORY) -> str | None:
    """A hash of the source; None if there is no source, as in an installed package."""
    files = sorted(path for path in (directory / "native").glob("*") if path.suffix in (".c", ".h"))
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:_HASH_CHARACTERS]


def load() -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """The library for this machine, for functions that release the interpreter lock, and for those that need it.

    Raises:
        StaleLibrary: the source beside it has changed since it was built.
        OSError: it is missing or cannot be loaded.
    """
    path = DIRECTORY / name_of(platform.machine())
    if path.exists():
        library = ctypes.CDLL(str(path))
        _check(library, path)
        return library, ctypes.PyDLL(str(path))
    return _load_packed(path)


def _check(library: ctypes.CDLL, path: Path) -> None:
    function = library.zk_source_hash
    function.restype = ctypes.c_char_p
    built, current = function().decode(), source_hash()
    if current is not None and current != built:
        raise StaleLibrary(f"{path} was built from other source ({built}, and now it is {current})")


def _load_packed(path: Path) -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """The library of a package that is imported from a zip file, as Spark distributes packages."""
    loader = globals()["__loader__"]
    if not hasattr(loader, "archive"):
        raise OSError(f"{path} does not exist")
    descriptor = os.memfd_create("zkconsumer-kernels")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(loader.get_data(str(path)))
        name = f"/proc/self/fd/{descriptor}"
        return ctypes.CDLL(name), ctypes.PyDLL(name)
    finally:
        os.close(descriptor)
