"""The compiled modules, each loaded on first use: the first process on a machine compiles them, in seconds.

They import numba, which takes a third of a second by itself.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from zkconsumer.errors import DecoderUnavailable


def kernel() -> ModuleType:
    """:mod:`zkconsumer.decode.kernel`, which every chunk needs.

    Raises:
        DecoderUnavailable: it cannot be loaded.
    """
    return _load("kernel")


def messageset() -> ModuleType:
    """:mod:`zkconsumer.decode.messageset`, for message formats 0 and 1; as :func:`kernel`."""
    return _load("messageset")


def messagekernel() -> ModuleType:
    """:mod:`zkconsumer.decode.messagekernel`, for reading record by record; as :func:`kernel`."""
    return _load("messagekernel")


def headerlists() -> ModuleType:
    """:mod:`zkconsumer.decode.headerlists`, for records with headers; as :func:`kernel`."""
    return _load("headerlists")


def transactions() -> ModuleType:
    """:mod:`zkconsumer.decode.transactions`, for aborted transactions; as :func:`kernel`."""
    return _load("transactions")


def load_all() -> None:
    """Load all compiled modules, and compile them if necessary. Raises as :func:`kernel`."""
    for load in (kernel, messageset, messagekernel, headerlists, transactions):
        load()


def _load(name: str) -> ModuleType:
    try:
        return import_module(f"{__package__}.{name}")
    except Exception as error:  # a package is missing or broken, or the compiler fails
        raise DecoderUnavailable(
            f"the compiled decoder cannot be loaded: {type(error).__name__}: {error}; check the installed numba, "
            "llvmlite and numpy (pip check), then run: zkconsumer warm"
        ) from error
