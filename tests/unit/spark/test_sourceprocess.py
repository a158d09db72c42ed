"""The source's process leaves the group however SIGTERM arrives."""

import subprocess
import sys

import pytest

# What Spark's runner does around a reader: stop() is called in a ``finally``, and the process exits afterwards.
RUNNER = """
import os, signal, sys
from zkconsumer.spark.sourceprocess import ignore_sigterm, prepare_process

left = False

def stop():
    global left
    {at_the_start}
    ignore_sigterm()
    {while_leaving}
    if not left:
        left = True
        print("left")

prepare_process(stop)
try:
    try:
        {while_waiting}
    finally:
        {before_stop}
        stop()
except BaseException:
    sys.exit(-1)
"""

SIGTERM = "os.kill(os.getpid(), signal.SIGTERM)"
END_OF_INPUT = "raise EOFError"


@pytest.mark.parametrize(
    "places",
    [
        {"while_waiting": SIGTERM},
        {"while_waiting": SIGTERM, "while_leaving": SIGTERM},
        {"while_waiting": END_OF_INPUT, "while_leaving": SIGTERM},
        {"while_waiting": END_OF_INPUT, "at_the_start": f"if not signal.getsignal(15) == signal.SIG_IGN: {SIGTERM}"},
        {"while_waiting": END_OF_INPUT, "before_stop": SIGTERM},
    ],
    ids=["waiting", "waiting, then leaving", "leaving", "before leaving begins", "between input and stop"],
)
def test_the_process_leaves_the_group_wherever_sigterm_arrives(places):
    nothing = dict.fromkeys(("at_the_start", "while_leaving", "while_waiting", "before_stop"), "pass")
    program = RUNNER.format(**nothing | places)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("left\n", "")
