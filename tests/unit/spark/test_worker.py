import gc

import pytest

from zkconsumer.spark import worker


@pytest.fixture
def _thawed(monkeypatch):
    monkeypatch.setattr(worker, "_collects_less", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_thawed")
@pytest.mark.parametrize("in_worker", [True, False])
def test_a_worker_collects_less_from_its_first_task_on_and_other_processes_are_left_alone(monkeypatch, in_worker):
    monkeypatch.setattr(worker, "_in_spark_worker", lambda: in_worker)
    worker.collect_less()
    frozen = gc.get_freeze_count()
    assert (frozen > 0) == in_worker
    more = [[] for _ in range(10)]
    worker.collect_less()
    assert gc.get_freeze_count() == frozen, f"only the first call counts, not {len(more)} objects more"
