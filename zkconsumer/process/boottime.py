"""The clock of leases: servers that expire a session do not stop while this machine sleeps."""

from __future__ import annotations

import time
from typing import Final

# CLOCK_BOOTTIME advances while the machine sleeps, as the servers' clocks do; CLOCK_MONOTONIC does not.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds on a clock that never jumps back and counts suspended time where the system has one."""
    return time.clock_gettime(_CLOCK)
