"""KafkaOffsetStore and a coordinator that disconnects, moves or refuses: requests, repetitions and log lines."""

import itertools
from contextlib import nullcontext, suppress
from functools import partial
from types import SimpleNamespace

import pytest

from tests.fixtures.slowbrokers import CLOSES, SILENT, Answer, SlowBrokers, only
from zkconsumer.errors import (
    BrokerUnavailable,
    CoordinatorMoved,
    GroupAuthorizationFailed,
    LeaseLapsed,
    RetriableError,
    TopicAuthorizationFailed,
)
from zkconsumer.model import Broker, Stamp, TopicIdentity, TopicPartition
from zkconsumer.offsets.kafkastore import KafkaOffsetStore
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.storedoffsets import topic_id_of
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.rules.retrypolicy import RetryPolicy

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_AUTHORIZATION_FAILED = 29
HANGS_UP = BrokerUnavailable("hung up")


def because(error: ConnectionError) -> BrokerUnavailable:
    unavailable = BrokerUnavailable(str(error))
    unavailable.__cause__ = error
    return unavailable


HAS_CLOSED, REFUSES = because(ConnectionResetError("closed")), because(ConnectionRefusedError("refused"))


class Broker1:
    """The only process: answers with the codes of the test, one for each partition; an error breaks the connection."""

    def __init__(self) -> None:
        self.answers: list = []
        self.commits = 0
        self.coordinator = 1

    def call(self, request, *, before_send=lambda: None):
        before_send()
        if hasattr(request, "key"):
            return SimpleNamespace(error_code=0, node_id=self.coordinator, host="broker", port=1)
        self.commits += request.API_KEY == 8
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        partitions = [
            SimpleNamespace(partition_index=number, error_code=code, committed_offset=7, metadata="")
            for number, code in enumerate(answer)
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=partitions)], error_code=0)


class Connection:
    """Make stores that use that broker."""

    def __init__(self, broker, host, port, **settings):
        self.call = broker.call

    def connect(self):
        pass

    def within(self, deadline):
        return nullcontext()

    def close(self):
        pass

    def version(self, key, name, oldest, newest):
        return newest


@pytest.fixture
def broker():
    return Broker1()


@pytest.fixture
def make_store(broker):
    def make(*, retries=5, no_more_attempts=False, is_fenced=False):
        brokers, connection = [Broker(1, "broker", 1)], partial(Connection, broker)
        client = BrokerClient(lambda: brokers, client_id="test", timeout_ms=1000, connection=connection)
        coordinator = OffsetCoordinator(client, "g")
        return KafkaOffsetStore(
            coordinator,
            policy=RetryPolicy(1 + retries, 0.0, 60.0),
            wait_before_retry=lambda _: no_more_attempts,
            is_fenced=is_fenced,
        )

    return make


class Lease:
    """Holds for so many questions."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def holds(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("first", [HANGS_UP, [ErrorCode.NOT_COORDINATOR]], ids=["hangs up", "moved"])
def test_a_lease_that_lapses_stops_the_next_send(broker, first, make_store):
    """Also if the connection sends again by itself: the partition may have another owner, which has committed."""
    broker.answers = [first, [0]]
    with pytest.raises(LeaseLapsed):
        make_store().commit({T0: 5}, may_send=Lease(1).holds)
    assert broker.commits == 1


@pytest.mark.parametrize(
    "answers", [[[ErrorCode.NOT_COORDINATOR]], [HAS_CLOSED, REFUSES]], ids=["moved", "moved, and the broker has ended"]
)
def test_a_commit_that_others_wait_for_follows_a_coordinator_that_has_moved_before(broker, make_store, answers):
    """1. A commit finds the coordinator; 2. it moves; 3. the next commit is the last one, and asks the former."""
    store = make_store()
    broker.answers = [[0]]
    store.commit({T0: 5})
    broker.answers, broker.coordinator = [*answers, [0]], 2
    assert store.commit({T0: 6}, retry=False) == {T0}


def test_a_commit_that_others_wait_for_is_tried_once_by_a_silent_coordinator(broker, make_store):
    store = make_store()
    broker.answers = [[0]]
    store.commit({T0: 5})
    broker.answers, broker.coordinator, broker.commits = [HANGS_UP, HANGS_UP, [0]], 2, 0
    with pytest.raises(BrokerUnavailable):
        store.commit({T0: 6}, retry=False)
    assert broker.commits == 2, "on the connection of the former commit, and on a new one"


def test_a_commit_whose_replication_takes_too_long_is_repeated(broker, make_store):
    broker.answers = [[ErrorCode.REQUEST_TIMED_OUT], [0]]
    assert make_store().commit({T0: 5}) == {T0}


def test_a_failed_commit_is_repeated_while_the_lease_holds(broker, make_store):
    broker.answers = [HANGS_UP, [ErrorCode.NOT_COORDINATOR], [0]]
    assert make_store().commit({T0: 5}, may_send=Lease(3).holds) == {T0}
    assert broker.commits == 3


def test_a_commit_that_others_wait_for_is_tried_once(broker, make_store):
    broker.answers = [[ErrorCode.NOT_COORDINATOR], [0]]
    with pytest.raises(CoordinatorMoved):
        make_store().commit({T0: 5}, retry=False)
    assert broker.commits == 1


def test_attempts_end_when_a_rebalance_is_requested(broker, make_store):
    broker.answers = [[ErrorCode.NOT_COORDINATOR], [0]]
    with pytest.raises(CoordinatorMoved):
        make_store(no_more_attempts=True).commit({T0: 5})
    assert broker.commits == 1


def test_the_offset_of_a_partition_that_stays_is_not_read_again(broker, make_store):
    store = make_store(is_fenced=True)
    broker.answers = [[0], [0]]
    store.fetch([T0])
    store.commit({T0: 9})
    assert store.fetch([T0], [T0]) == {T0: 9}
    broker.answers = [[0]]
    assert store.fetch([T0]) == {T0: 7}, "it was not owned meanwhile"


@pytest.mark.parametrize(("is_fenced", "last"), [(False, [0]), (True, HANGS_UP)])
def test_an_offset_that_may_be_another_one_is_read_again(broker, make_store, is_fenced, last):
    """Another client may have written it, or this one by a commit that was not answered."""
    store = make_store(is_fenced=is_fenced)
    broker.answers = [[0], last, last]
    store.fetch([T0])
    with suppress(BrokerUnavailable):
        store.commit({T0: 9}, retry=False)
    broker.answers = [[0]]
    assert store.fetch([T0], [T0]) == {T0: 7}


def test_an_unreadable_offset_costs_its_partition_only(broker, caplog, make_store):
    store = make_store()
    broker.answers = [[0, TOPIC_AUTHORIZATION_FAILED]] * 5
    for _ in range(2):
        assert store.fetch([T0, T1]) == {T0: 7}
    logged = "t-1 is not consumed, since its offset in Kafka cannot be read: TOPIC_AUTHORIZATION_FAILED (29)"
    assert caplog.text.count(logged) == 1
    assert not broker.answers, "asked four times at first, since the permission may be on its way, and once later"
    (error,) = store.refused().values()
    assert isinstance(error, TopicAuthorizationFailed)
    assert (error.topic, error.operation) == ("t", "Describe")


@pytest.mark.parametrize(
    ("code", "logged"),
    [
        (3, "UNKNOWN_TOPIC_OR_PARTITION (3); the topic was deleted"),
        (100, "UNKNOWN_TOPIC_ID (100); the topic was deleted"),
        (TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED (29); check the ACLs of group and topic"),
    ],
)
def test_why_an_offset_is_not_stored_is_logged(code, logged, broker, caplog, make_store):
    broker.answers = [[code]] * 9
    assert make_store().commit({T0: 5}) == set()
    assert f"offset 5 of t-0 is not stored in Kafka: {logged}" in caplog.text


def test_a_permission_that_arrives_late_costs_nothing(broker, make_store):
    store = make_store()
    broker.answers = [[0, TOPIC_AUTHORIZATION_FAILED]] * 2 + [[0, 0]]
    assert store.fetch([T0, T1]) == {T0: 7, T1: 7}
    assert store.refused() == {}


def test_a_group_that_may_not_be_read_is_an_error(broker, make_store):
    broker.answers = [[ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2]
    with pytest.raises(GroupAuthorizationFailed, match="GROUP_AUTHORIZATION_FAILED"):
        make_store().fetch([T0, T1])


def test_a_group_that_may_not_be_written_is_an_error(broker, make_store):
    broker.answers = [[ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2]
    with pytest.raises(GroupAuthorizationFailed, match="operation Read"):
        make_store().commit({T0: 1, T1: 1})
    assert broker.commits == 1


def test_an_invalidated_offset_gets_metadata_of_its_own(broker, make_store):
    broker.answers = [[0], [0], [0]]
    store = make_store()
    marks = []
    for invalidate in (False, False, True):
        if invalidate:
            store.invalidate([T0])
        store.commit({T0: 5})
        marks.append(store.stored([T0])[T0].mark)
    assert marks[0] == marks[1] != marks[2]


def test_a_commit_names_the_topic_that_it_belongs_to(broker, make_store):
    """Also an offset that is the same number in the topic that was created again; an unknown id replaces none."""
    broker.answers = [[0], [0], [0], [0]]
    store, named = make_store(), []
    for topic_id, offset in (("first", 5), ("second", 5), (None, 5), (None, 6)):
        store.consume({"t": TopicOrigin(TopicIdentity(topic_id, 1))})
        store.commit({T0: offset})
        named.append(topic_id_of(store.stored([T0])[T0].mark))
    assert named == ["first", "second", "second", None]


def test_the_metadata_of_a_commit_has_the_plan_of_its_query(broker, make_store):
    broker.answers = [[0], [0]]
    store = make_store()
    store.consume({"t": TopicOrigin(TopicIdentity("id", 1))})
    store.commit({T0: 5}, stamp=Stamp("1f", 17))
    stored = store.stored([T0])[T0]
    assert stored.stamp == Stamp("1f", 17)
    assert topic_id_of(stored.mark) == "id", "also as earlier releases read it"
    store.commit({T0: 6})
    assert store.stored([T0])[T0].stamp is None


# -- how long operations take, on a clock of the test's own ------------------------------------------------------------


NAMED = itertools.cycle([2, 1])


def moves_for_ever(_, what):
    """Whoever is asked names the other one of two brokers, and neither of them is the coordinator."""
    return Answer(9.5, 0 if what in ("connect", "find") else ErrorCode.NOT_COORDINATOR, next(NAMED))


def is_always(code, seconds=0.0):
    return lambda _, what: Answer(seconds, 0 if what in ("connect", "find") else code)


def failing_seconds(brokers, operation):
    """How long an operation takes that fails; nothing is begun after its deadline, nor sent without the lease."""

    def fail():
        with pytest.raises(RetriableError):
            operation()

    began = brokers.clock()
    seconds = brokers.seconds(fail)
    deadline = began + brokers.policy.total_s
    assert all(one.at < deadline for one in brokers.begun)
    assert brokers.count("commit") == brokers.asked_for_lease
    return seconds


SLOW = [
    pytest.param(only(1, SILENT), id="the coordinator is silent"),
    pytest.param(only(1, SILENT, at=["commit", "fetch"]), id="it is silent when asked to commit"),
    pytest.param(lambda *_: SILENT, id="all brokers are silent"),
    pytest.param(lambda *_: Answer(9.9, ErrorCode.COORDINATOR_NOT_AVAILABLE), id="none is the coordinator"),
    pytest.param(moves_for_ever, id="it moves for ever"),
    pytest.param(is_always(ErrorCode.REBALANCE_IN_PROGRESS), id="the group rebalances for ever"),
    pytest.param(is_always(ErrorCode.REBALANCE_IN_PROGRESS, 9.9), id="and each answer takes its time"),
    pytest.param(is_always(ErrorCode.REQUEST_TIMED_OUT, 9.9), id="its followers are slow"),
]


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("was_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("answer", SLOW)
def test_one_deadline_ends_a_commit(answer, count, was_known):
    brokers = SlowBrokers(lambda *_: Answer(), count=count)
    if was_known:
        assert brokers.commit() == {T0}
    brokers.answer = answer
    assert failing_seconds(brokers, brokers.commit) <= 125
    assert len(brokers.waits) <= 5


@pytest.mark.parametrize("was_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("answer", SLOW)
def test_a_commit_that_others_wait_for_ends_sooner_and_waits_for_no_second_attempt(answer, was_known):
    brokers = SlowBrokers(lambda *_: Answer())
    if was_known:
        assert brokers.commit() == {T0}
    brokers.answer = answer
    assert failing_seconds(brokers, lambda: brokers.commit(retry=False)) <= 20
    assert not brokers.waits


def test_one_deadline_ends_a_fetch_also_while_a_permission_is_missing():
    brokers = SlowBrokers(
        lambda _, what: Answer(5, TOPIC_AUTHORIZATION_FAILED if what == "fetch" else 0),
        count=1,
        offsets_channel_backoff_ms=30_000,
        offsets_commit_max_retries=1,
    )
    assert brokers.policy.total_s == 70
    assert brokers.seconds(lambda: brokers.store.fetch([T0])) == 55, "connecting, finding, and two requests"
    assert brokers.waits == [30], "after a second pause the time would be over"


@pytest.mark.parametrize(("retry", "seconds", "pauses"), [(True, 35.0, 5), (False, 5.0, 0)])
def test_a_group_that_rebalances_for_ever_is_asked_for_a_while(retry, seconds, pauses):
    """Each attempt lasts five seconds, as long as a leader takes to assign."""
    brokers = SlowBrokers(is_always(ErrorCode.REBALANCE_IN_PROGRESS))
    assert failing_seconds(brokers, lambda: brokers.commit(retry=retry)) == pytest.approx(seconds, abs=0.7)
    assert len(brokers.waits) == pauses


def test_the_next_generation_ends_the_wait_at_once():
    codes = [ErrorCode.REBALANCE_IN_PROGRESS, 0]
    brokers = SlowBrokers(lambda _, what: Answer(code=codes.pop(0) if what == "commit" else 0), renews=True)
    assert brokers.seconds(lambda: brokers.commit(retry=False)) < 0.1
    assert brokers.count("commit") == 2


def test_a_member_that_the_group_has_removed_does_not_try_again():
    brokers = SlowBrokers(is_always(ErrorCode.REBALANCE_IN_PROGRESS), in_group=False)
    assert failing_seconds(brokers, brokers.commit) < 1
    assert brokers.count("commit") == 1


def test_a_rebalance_or_the_end_of_the_member_ends_the_attempts():
    brokers = SlowBrokers(is_always(ErrorCode.REQUEST_TIMED_OUT))
    brokers.interrupted = True
    assert failing_seconds(brokers, brokers.commit) == 1.0
    assert brokers.count("commit") == 1


def followed(first):
    """Brokers whose second one has become the coordinator; the first one, which the member knows, does this."""
    brokers = SlowBrokers(lambda *_: Answer())
    brokers.commit()
    brokers.answer = lambda number, what: first if number == 1 and what != "find" else Answer(coordinator=2)
    return brokers


@pytest.mark.parametrize("first", [Answer(code=ErrorCode.NOT_COORDINATOR), CLOSES], ids=["refuses", "closes"])
def test_an_answer_is_followed_at_once_where_others_wait(first):
    brokers = followed(first)
    assert brokers.seconds(lambda: brokers.commit(retry=False)) == 0
    assert brokers.begun[-1].broker == 2


def test_a_silent_coordinator_is_not_followed_where_others_wait():
    brokers = followed(SILENT)
    assert failing_seconds(brokers, lambda: brokers.commit(retry=False)) == 20.0
    assert brokers.begun[-1].broker == 1
