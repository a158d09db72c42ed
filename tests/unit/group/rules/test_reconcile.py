"""From one share to another."""

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.group.rules.reconcile import reconcile
from zkconsumer.model import ConsumerThreadId, TopicPartition

SHARES = st.dictionaries(
    st.integers(0, 5).map(lambda number: TopicPartition("t", number)),
    st.integers(0, 2).map(lambda number: ConsumerThreadId("g_c", number)),
)


@given(SHARES, SHARES, st.booleans())
def test_giving_up_and_taking_leads_from_one_share_to_the_other(held, target, incremental):
    plan = reconcile(held, target, incremental=incremental)
    after = {p: held[p] for p in held.keys() - plan.revoked} | {p: target[p] for p in plan.gained}
    assert after == target
    assert plan.kept == held.keys() - plan.revoked
    assert not plan.kept & plan.gained


@given(SHARES, SHARES)
def test_what_stays_with_its_thread_is_kept(held, target):
    plan = reconcile(held, target, incremental=True)
    assert plan.kept == {p for p in held if target.get(p) == held[p]}


@given(SHARES, SHARES)
def test_without_increments_nothing_is_kept(held, target):
    plan = reconcile(held, target, incremental=False)
    assert (plan.revoked, plan.kept, plan.gained) == (held.keys(), frozenset(), target.keys())
