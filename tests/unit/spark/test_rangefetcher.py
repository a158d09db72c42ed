import threading
from concurrent.futures import ThreadPoolExecutor

from zkconsumer.spark.rangefetcher import HandOver

LONG_S = 30.0


def test_items_come_out_in_order_and_nothing_is_none():
    hand_over = HandOver(100)
    assert hand_over.get(0) is None
    assert hand_over.put("a", 50)
    assert hand_over.put("b", 50)
    assert [hand_over.get(0), hand_over.get(0), hand_over.get(0)] == ["a", "b", None]


def test_an_item_larger_than_the_bound_is_admitted_alone():
    hand_over = HandOver(100)
    assert hand_over.put("large", 1000)
    with ThreadPoolExecutor(1) as fetcher:
        second = fetcher.submit(hand_over.put, "next", 1)
        assert hand_over.get(LONG_S) == "large"
        assert second.result(LONG_S)
    assert hand_over.get(LONG_S) == "next"


def test_a_full_queue_makes_the_fetcher_wait_until_the_task_ends():
    hand_over = HandOver(100)
    assert hand_over.put("a", 100)
    begun = threading.Event()

    def put() -> bool:
        begun.set()
        return hand_over.put("b", 1)

    with ThreadPoolExecutor(1) as fetcher:
        waiting = fetcher.submit(put)
        assert begun.wait(LONG_S)
        assert not waiting.done()
        hand_over.close()
        assert waiting.result(LONG_S) is False
