"""Loading kafka-python, late and without its noise."""

from __future__ import annotations

import sys
import warnings

_NOISE = r"(read|open)_text is deprecated"


def load_kafka_python() -> None:
    """Import the library; to be called before importing from it inside a function.

    Up to 3.0.12 it reads its message definitions through functions that Python 3.11 and 3.12 call deprecated (3.13 took
    that back). Where warnings are errors that would break the import, so exactly this warning is switched off.
    """
    if "kafka.protocol.api_message" not in sys.modules:
        warnings.filterwarnings("ignore", message=_NOISE, category=DeprecationWarning)
        import kafka  # noqa: F401
