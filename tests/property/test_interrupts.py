"""A reading thread is interrupted thousands of times at random: each record comes once, in order and unchanged."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from tests.fixtures.chunks import decode_pool
from tests.fixtures.interrupts import (
    CODECS,
    READERS,
    Alarm,
    Log,
    Striker,
    in_turns,
    read_under_fire,
)
from zkconsumer.connector.decoder import decoded_message
from zkconsumer.model import Message

pytestmark = [
    pytest.mark.timeout(600, method="thread"),  # the other method needs the timer that these tests use
    # An exception raised in a callback of a weak reference is swallowed by Python, with this warning.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

INTERRUPTS = 150
UPPER = decoded_message(None, bytes.upper)

# That one reads in each way; tests/unit/connector/test_interrupts.py interrupts each way at each line.
EACH_READER = [pytest.param(reader, marks=() if reader is in_turns else pytest.mark.slow) for reader in READERS]


@cache
def large_log():
    log = Log()
    for number, codec in enumerate(CODECS):
        for _ in range(3):
            log.add(number, 100, codec=codec, batches=2, headers=number % 2 == 1).add_markers(number, 2)
        log.add_old_format(number, 40)
    return log


def read_again_and_again(reader, check_crcs, kind, weapon, pool=None):
    interrupts = 0
    with weapon.active():
        while interrupts < INTERRUPTS:
            log, got = large_log().copy(check_crcs=check_crcs, pool=pool), []
            interrupts += read_under_fire(reader, log.stream(kind), got, weapon)
            log.audit(got)
            log.check_positions(got)
            if kind is UPPER:
                assert all(message.value == message[6].upper() for message in got if isinstance(message, kind))


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize("reader", EACH_READER, ids=lambda reader: reader.__name__)
def test_random_signals_skip_and_repeat_no_record(reader, check_crcs):
    read_again_and_again(reader, check_crcs, Message, Alarm())


@pytest.mark.parametrize("kind", [Message, UPPER])
@pytest.mark.parametrize("reader", EACH_READER, ids=lambda reader: reader.__name__)
def test_random_asynchronous_exceptions_skip_and_repeat_no_record(reader, kind):
    with ThreadPoolExecutor(1) as thread:
        thread.submit(read_again_and_again, reader, True, kind, Striker()).result()


@pytest.mark.parametrize("weapon", [Alarm, Striker])
@pytest.mark.parametrize("reader", EACH_READER, ids=lambda reader: reader.__name__)
def test_interrupts_while_decoding_ahead_skip_no_record(reader, weapon):
    with decode_pool(2) as pool:
        read_again_and_again(reader, True, Message, weapon(), pool)
