"""Names of groups that lead to other znodes, given to the commands that write."""

from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, Servers
from zkconsumer.errors import ZkConsumerError
from zkconsumer.operate.groups.groupremoval import plan_delete, plan_rename
from zkconsumer.operate.offsets.offsetfiles import parse_offsets
from zkconsumer.operate.offsets.offsetimport import plan_copy, plan_import
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec

NAME = "g/offsets"
WRITES = {
    "delete": lambda session, brokers: plan_delete(session, brokers, [NAME], None),
    "delete a topic of all groups": lambda session, brokers: plan_delete(session, brokers, [], "t/0"),
    "rename": lambda session, brokers: plan_rename(session, brokers, NAME, "h"),
    "rename to": lambda session, brokers: plan_rename(session, brokers, "g", NAME),
    "copy": lambda session, brokers: plan_copy(session, brokers, NAME, "h"),
    "copy to": lambda session, brokers: plan_copy(session, brokers, "g", NAME),
    "reset": lambda session, brokers: plan_reset(session, brokers, NAME, {"t": None}, ResetSpec("earliest")),
    "import": lambda session, brokers: plan_import(session, brokers, parse_offsets("f", b"t,0,1\n", NAME)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_name_that_leads_to_another_znode_is_refused(tmp_path, write):
    """``g/offsets`` is a znode of the live group g."""
    servers = Servers(tmp_path)
    servers.store(OFFSETS)
    servers.write("/consumers/g/offsets/t/0/offsets/x", b"")
    servers.write("/consumers/g/offsets/offsets/t/0", 5)
    servers.write("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0],"3":[0],"4":[0]}}')
    with (
        closing(session_in_memory(servers.server)) as session,
        pytest.raises(ZkConsumerError, match="cannot be the name of a"),
    ):
        write(session, servers.brokers)
    assert servers.stored() == OFFSETS
