"""CodeCache: machine code of compiled functions on disk, in one file with a checksum per function.

numba's own cache has an index and a data file, reads both without a check, and raises any exception of unpickling. It
would execute code with a changed bit. Here the file's name contains everything that the machine code depends on, so
there is no index that could belong to other code; and a file is used only if its checksum matches. A file that cannot
be used is treated as missing: the function is compiled and the file replaced. When a new file is written, those of
other sources of the same module, such as an older version, are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numba
from numba.core import caching as numba_caching

# numba does not describe its cache to type checkers.
caching: Any = numba_caching

_log = logging.getLogger(__name__)

_MAGIC: Final = b"zkconsumer code 1\n"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


def seal(content: bytes) -> bytes:
    """The bytes of a file: a prefix, the checksum of the content, and the content."""
    return _MAGIC + hashlib.sha256(content).digest() + content


def unseal(data: bytes) -> bytes | None:
    """The content of a file made by :func:`seal`; None if any byte differs or is missing."""
    start = len(_MAGIC) + _DIGEST_BYTES
    content = data[start:]
    return content if len(data) >= start and data == seal(content) else None


def file_name(base: str, stamp: int, key: Any) -> str:
    """Name of the file of one function.

    Args:
        base: name of the function and Python version.
        stamp: checksum of the source.
        key: numba's key: signature, then the target with the processor's name and features, then the byte code.
    """
    _, (_, processor, *_), _ = key
    rest = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()[:16]
    return f"{base}-{stamp:08x}-{processor}-{rest}.nbc"


def stale_files(names: Iterable[str], base: str, stamp: int) -> list[str]:
    """The files of a directory that belong to another source of the same module, for the same version of Python.

    Files for other processors and other versions of numba stay: several machines or environments may share a directory.

    Args:
        names: names of the files.
        base: see :func:`file_name`; for any function of the module.
        stamp: checksum of the current source.
    """
    module, _, rest = base.partition(".")
    python = re.escape(rest.rpartition(".")[2])
    ours = re.compile(rf"{re.escape(module)}\..+\.{python}-([0-9a-f]{{8}})-.+\.nbc")
    numbas = re.compile(rf"{re.escape(module)}\..+\.{python}\.(nbi|[0-9]+\.nbc)")  # numba's own index and data
    matched = [(name, ours.fullmatch(name)) for name in names]
    return [name for name, made in matched if (made and made[1] != f"{stamp:08x}") or numbas.fullmatch(name)]


class CodeFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """Replaces numba's index and data file of one function.

    Args:
        directory: directory of the file; it need not exist yet.
        base: see :func:`file_name`.
        stamp: see :func:`file_name`.
    """

    def __init__(self, directory: str, base: str, stamp: int) -> None:
        super().__init__(cache_path=directory, filename_base=base, source_stamp=stamp)
        self._base = base

    def holds(self, key: Any) -> bool:
        """True if there is intact code for this key."""
        return self._read(key) is not None

    def load(self, key: Any) -> Any:
        """The data saved for a key; None if there is no intact file. May raise any exception of unpickling."""
        content = self._read(key)
        if content is None:
            return None
        data = pickle.loads(
            content
        )  # as trusted as the package: a user with write access to it can also change modules
        caching._cache_log("[cache] data loaded from %r", str(self._path(key)))
        return data

    def save(self, key: Any, data: Any) -> None:
        """Write or replace the file, and remove those of another source. Raises OSError."""
        path = str(self._path(key))
        with self._open_for_write(path) as file:
            file.write(seal(self._dump(data)))
        caching._cache_log("[cache] data saved to %r", path)
        directory = Path(self._cache_path)
        for name in stale_files([file.name for file in directory.iterdir()], self._base, self._source_stamp):
            with contextlib.suppress(OSError):  # another process was faster, or this one has no permission
                (directory / name).unlink()

    def _path(self, key: Any) -> Path:
        return Path(self._cache_path, file_name(self._base, self._source_stamp, key))

    def _read(self, key: Any) -> bytes | None:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("the compiled decoder cannot be read: %s; compiling it again", error)
            return None
        content = unseal(data)
        if content is None:
            _log.warning("the compiled decoder in %s is damaged; compiling it again", path)
        return content


class CodeCache(caching.FunctionCache):  # type: ignore[misc]
    """numba's cache of a function, on a :class:`CodeFile`. If the cache is unusable, the function is compiled again.

    Args:
        function: the function to compile.
        stamp: checksum of all source that the machine code depends on.
    """

    def __init__(self, function: Any, stamp: int) -> None:
        super().__init__(function)
        self._cache_file = CodeFile(self._cache_path, self._impl.filename_base, stamp)

    def is_ready_made(self, signature: Any, target: Any) -> bool:
        """True if the cache has the code, but is not writable."""
        key = self._index_key(signature, target.codegen())
        return not os.access(self.cache_path, os.W_OK) and self._cache_file.holds(key)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """See numba; also None if the cached code cannot be used."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001  unpickling and numba's rebuilding may raise anything
            what = f"{type(error).__name__}: {error}"
            _log.warning("the compiled decoder in %s cannot be loaded (%s); compiling it again", self.cache_path, what)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """See numba; a disk that is full or cannot be written is logged."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _log.warning(
                "cannot store the compiled decoder in %s: %s; set NUMBA_CACHE_DIR to a writable directory",
                self.cache_path,
                error,
            )
