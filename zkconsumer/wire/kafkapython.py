"""Loads kafka-python, of which only the protocol's messages and the record builders are used."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

_NAME: Final = "kafka"
_NOISE: Final = r"(read|open)_text is deprecated"
_IGNORED: Final = ("ignore", re.compile(_NOISE, re.IGNORECASE), DeprecationWarning, None, 0)
_loading: Final = threading.Lock()


def load_kafka_python() -> None:
    """Make the library importable; to be called before importing from it inside a function.

    ``kafka/__init__.py`` imports the library's own clients, which takes several times as long as the messages do. So
    the package is put in place without running that file. It runs when a name is used that it defines: ``from kafka
    import KafkaConsumer`` works as ever.

    Up to 3.0.12 the library reads its message definitions through functions that are deprecated in Python 3.11 and 3.12
    (not in 3.13). If warnings are errors, that would break the import, so exactly this warning is disabled: at each
    call, since the messages are imported after it, and a caller may have its own filters (``catch_warnings``).
    """
    if _IGNORED not in warnings.filters:
        warnings.filterwarnings("ignore", message=_NOISE, category=DeprecationWarning)
    with _loading:
        if _NAME in sys.modules:
            return
        spec = find_spec(_NAME)
        if spec is None or spec.loader is None:
            import kafka  # noqa: F401 - raises ModuleNotFoundError

            return
        package = module_from_spec(spec)
        package.__dict__["__getattr__"] = _Deferred(package, spec.loader.exec_module)
        sys.modules[_NAME] = package


class _Deferred:
    """A module's ``__getattr__`` (PEP 562): runs the module's file when a name is first missed.

    Args:
        module: without its contents.
        run: runs its file.
    """

    def __init__(self, module: ModuleType, run: Callable[[ModuleType], object]) -> None:
        self._module, self._run = module, run
        self._running = threading.RLock()  # the file imports modules that ask for names of this one
        self._has_begun = False

    def __call__(self, name: str) -> Any:
        # 1. A user imports kafka.consumer; 2. that imports kafka.errors from this package; 3. to run the file now would
        # import kafka.consumer, which is not complete.
        submodule = f"{self._module.__name__}.{name}"
        if find_spec(submodule) is not None:
            return import_module(submodule)
        with self._running:
            if not self._has_begun:
                self._has_begun = True
                self._run(self._module)
            try:
                return self._module.__dict__[name]
            except KeyError:
                raise AttributeError(f"module {self._module.__name__!r} has no attribute {name!r}") from None
