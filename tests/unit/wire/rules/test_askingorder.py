"""Which broker is asked first."""

import pytest

from zkconsumer.model import Broker
from zkconsumer.wire.rules.askingorder import asking_order

A, B, C = (Broker(number, "host", 9092) for number in range(3))
GONE = Broker(9, "host", 9092)


@pytest.mark.parametrize(
    ("connected", "answered", "order"),
    [
        ((), None, [A, B, C]),
        ((C,), None, [C, A, B]),
        ((A, C), None, [A, C, B]),
        ((C,), C, [A, C, B]),
        ((B, C), C, [B, C, A]),
        ((B, C), B, [C, B, A]),
        ((C,), GONE, [C, A, B]),
    ],
)
def test_connected_brokers_come_first_and_the_last_answer_second(connected, answered, order):
    assert asking_order([A, B, C], set(connected), answered) == order


def test_the_only_broker_is_asked_again():
    assert asking_order([A], {A}, A) == [A]
