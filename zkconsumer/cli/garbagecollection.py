"""How often garbage is collected by commands that end soon."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS_BETWEEN_COLLECTIONS = 1_000_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely in the block, or in the function that this decorates; for a command that ends with it.

    Nearly all of what such a command makes lives until its end: imported modules, and up to some 10,000 znodes.
    """
    former = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *former[1:])
    try:
        yield
    finally:
        gc.freeze()  # the process is about to end: to look through all that for garbage would be for nothing
        gc.set_threshold(*former)
