"""The files of a group of a fleet, also after a full disk or a kill has cut them."""

import pytest

from tests.fixtures.migrationplans import SEEN, SOURCE, TARGET
from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.operate.migrate.fleetfiles import GroupFiles, read_fleets
from zkconsumer.operate.migrate.rules.migrationplan import make_plan
from zkconsumer.operate.migrate.rules.planfile import encode_plan, plan_digest
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import Snapshot, beside, snapshot_of_plan

PLAN = make_plan(SOURCE, TARGET, "h:1/kafka", SEEN, missing="fail", retention_ms=5000, now_ms=1)


@pytest.fixture
def files(tmp_path):
    """A group whose plan was made."""
    made = GroupFiles(tmp_path)
    made.plan_file.write_text(encode_plan(PLAN))
    return made


def cuts(file):
    """Cut a file before each of its bytes but the newline at its end; it is whole afterwards."""
    content = file.read_bytes()
    for length in range(len(content.rstrip())):
        file.write_bytes(content[:length])
        yield length
    file.write_bytes(content)


def test_a_plan_that_was_cut_is_made_again(files):
    for _ in cuts(files.plan_file):
        with pytest.raises(ZkConsumerError, match=r"plan.json .*fleet plan` makes it again"):
            files.run_state()
        assert not files.has_begun
    assert files.run_state() is None


def test_a_plan_that_was_cut_after_a_run_is_put_back(files):
    snapshot_of_plan(PLAN, files.plan_file).begin(Snapshot("run", "h:1", 1, (), plan=plan_digest(PLAN)))
    for _ in cuts(files.plan_file):
        with pytest.raises(ZkConsumerError, match=r"plan.json .*put a copy of that file back"):
            files.run_state()
    assert files.run_state() is WriteState.WRITING
    for _ in cuts(beside(files.plan_file, "snapshot.json")):
        with pytest.raises(ZkConsumerError, match=r"plan.json.snapshot.json is broken: put a copy of it back"):
            files.run_state()


def test_a_way_back_that_was_cut_counts_as_none_until_it_was_run(files):
    files.back_file.write_text(encode_plan(PLAN))
    for _ in cuts(files.back_file):
        assert (files.back(), files.back_state()) == (None, None)
    snapshot_of_plan(PLAN, files.back_file).begin(Snapshot("run", "h:1", 1, (), plan=plan_digest(PLAN)))
    for _ in cuts(files.back_file):
        with pytest.raises(ZkConsumerError, match=r"back.json"):
            files.back_state()


def test_the_file_of_a_cluster_that_was_cut_is_named(tmp_path):
    file = tmp_path / "main.toml"
    file.write_text('[cluster]\nzookeeper = "h:1"\n[groups."ü"]\nwave = 1\nwindow = ""\nmissing = "latest"\n')
    for _ in cuts(file):
        try:
            read_fleets(tmp_path)
        except UsageError as error:
            assert str(error).startswith("main.toml: ")  # noqa: PT017 - some of what is left is a valid file
