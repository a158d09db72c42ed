"""Which servers are listed, and since when they are silent."""

from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer, ServerAnswers

HOUR_MS = 3_600_000


def broker(number, answers=True, since_ms=None, reason=""):
    return ServerAnswer("broker", number, f"h:{number}", answers, since_ms, reason)


def test_a_server_is_silent_since_its_first_question_without_an_answer():
    answers = ServerAnswers("broker")
    answers.note("h:1", 10, server_id=1)
    assert answers.newest(10) == (broker(1),)
    answers.note("h:1", 20, "refused")
    answers.begin_round()
    answers.note("h:1", 30, "timed out")
    assert answers.newest(30) == (broker(1, False, 20, "timed out"),)
    answers.note("h:1", 40)
    assert answers.newest(40) == (broker(1),)
    answers.note("h:1", 50, "refused")
    assert answers.newest(50) == (broker(1, False, 50, "refused"),)


def test_a_server_that_was_asked_in_an_earlier_round_is_listed_for_an_hour_if_it_did_not_answer():
    answers = ServerAnswers("broker")
    answers.note("h:0", 5, server_id=0)
    answers.note("h:1", 10, "refused", 1)
    answers.begin_round()
    assert answers.newest(9 + HOUR_MS) == (broker(1, None, 10, "refused"),)
    assert answers.newest(10 + HOUR_MS) == ()


def test_the_round_in_progress_forgets_nothing():
    answers = ServerAnswers("broker")
    answers.note("h:1", 10, "refused", 1)
    assert answers.newest(10 + HOUR_MS) == (broker(1, False, 10, "refused"),)


def test_a_broker_keeps_its_id_and_the_others_follow_those_with_one():
    answers = ServerAnswers("broker")
    answers.note("a:1", 10)
    for number in (10, 2, 0):
        answers.note(f"h:{number}", 10, server_id=number)
    answers.note("h:2", 11)
    assert [(one.id, one.address) for one in answers.newest(11)] == [
        (0, "h:0"),
        (2, "h:2"),
        (10, "h:10"),
        (None, "a:1"),
    ]


def test_zookeeper_has_no_id():
    answers = ServerAnswers("zookeeper")
    answers.note("h:2181/kafka", 10)
    assert answers.newest(10) == (ServerAnswer("zookeeper", None, "h:2181/kafka", True, None, ""),)
