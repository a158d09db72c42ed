"""Loads the kernels for this platform, on first use."""

from __future__ import annotations

import functools
import logging
import platform
import sys

from zkconsumer.decode import library
from zkconsumer.decode.kernels import Kernels
from zkconsumer.errors import DecoderUnavailable

_log = logging.getLogger(__name__)


@functools.cache
def kernels() -> Kernels:
    """The kernels for this platform.

    Raises:
        DecoderUnavailable: the library is missing, damaged, or older than its source.
    """
    if not library.is_supported():
        from zkconsumer.decode.reference import ReferenceKernels

        _log.warning(
            "there is no compiled decoder for %s on %s (%s): records are decoded in Python, a hundred times slower",
            sys.platform,
            platform.machine(),
            sys.version,
        )
        return ReferenceKernels()
    try:
        from zkconsumer.decode.native import NativeKernels

        return NativeKernels(*library.load())
    except Exception as error:
        raise DecoderUnavailable(
            f"the decoder's library cannot be loaded: {type(error).__name__}: {error}; install zkconsumer again (in a "
            "checkout: make venv, or start Python in another directory)"
        ) from error
