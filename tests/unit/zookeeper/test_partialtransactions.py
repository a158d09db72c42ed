"""How operations are parted into transactions that servers accept."""

from contextlib import closing

import pytest
from kazoo.protocol.serialization import CheckVersion, Transaction

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore
from zkconsumer.zookeeper.fencedtransaction import Operation

FENCE = "/zookeeper-fence"


@pytest.fixture
def session():
    with closing(session_in_memory(ZooKeeperInMemory())) as opened:
        opened.ensure_path(FENCE, b"")
        yield opened


@pytest.fixture
def sent(session, monkeypatch):
    """The paths that each transaction writes."""
    transactions = []
    ask = session._client._ask

    def noted(request):
        if isinstance(request, Transaction):
            transactions.append([one.path for one in request.operations if not isinstance(one, CheckVersion)])
        return ask(request)

    monkeypatch.setattr(session._client, "_ask", noted)
    return transactions


def test_transactions_are_cut_at_their_number_of_bytes_too(session, sent):
    claims = [Operation("create-ephemeral", f"/{number:03}{'x' * 717}") for number in range(500)]
    assert set(session.try_transact(FENCE, claims, insist=False).values()) == {"done"}
    assert max(sum(map(len, paths)) for paths in sent) <= 0x40000
    assert [path for paths in sent for path in paths] == [claim.path for claim in claims]


@pytest.mark.parametrize("letters", range(700, 704))
def test_an_offset_and_its_stamp_are_written_in_one_transaction(session, sent, letters):
    partitions = [TopicPartition("t", number) for number in range(300)]
    store = ZooKeeperOffsetStore(session, "g" * letters, lambda: FENCE, is_stamping=True)
    store.fetch(partitions)
    store.commit(dict.fromkeys(partitions, 5), stamp=Stamp("q", 1))  # creates parents
    sent.clear()
    assert store.commit(dict.fromkeys(partitions, 6), stamp=Stamp("q", 1)) == set(partitions)
    assert len(sent) > 1
    for paths in sent:
        numbers = [path.rpartition("/")[2] for path in paths]
        assert numbers[::2] == numbers[1::2]


def test_transactions_do_not_wait_for_the_rest_of_one_that_cannot_be_done(session, sent):
    session.ensure_path("/7", b"")
    creations = [Operation("create", f"/{number}") for number in range(1200)]
    sent.clear()
    outcomes = session.try_transact(FENCE, creations)
    assert [path for path, outcome in outcomes.items() if outcome != "done"] == ["/7"]
    assert [len(paths) for paths in sent] == [500, 500, 200, 499]
