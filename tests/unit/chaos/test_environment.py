"""Clocks that step, in a process of its own: they are replaced for good; and orders."""

import subprocess
import sys
import time

from tests.chaos.environment import (
    ClockSteps,
    Order,
    clock_file,
    order_file,
    read_order,
    write_clock_steps,
    write_order,
)

SCRIPT = """
import sys, time
from pathlib import Path
from tests.chaos.environment import SteppedClocks
from zkconsumer.process.boottime import boot_seconds

clocks = SteppedClocks(Path(sys.argv[1]))
real, boot, steady = time.time(), boot_seconds(), time.monotonic()
clocks.look()
print(*(round((after - before) / 1000) for before, after in
    ((real, time.time()), (boot, boot_seconds()), (steady, time.monotonic()))))
"""


def test_each_clock_of_a_process_steps_by_itself(tmp_path):
    path = clock_file(tmp_path, "m")
    write_clock_steps(path, ClockSteps(real=-5000.0) + ClockSteps(real=2000.0, boot=7000.0))
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["-3", "7", "0"]


def test_an_order_holds_until_its_time(tmp_path):
    path, now = order_file(tmp_path, "m"), time.monotonic()
    assert read_order(path) is None
    for until, holds in ((now + 60.0, True), (now - 1.0, False)):
        write_order(path, order := Order("hang", until))
        assert read_order(path) == (order if holds else None)
