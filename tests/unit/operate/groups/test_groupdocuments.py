"""Groups as JSON documents."""

from zkconsumer.operate.groups.groupdocuments import member_documents
from zkconsumer.operate.groups.observedgroup import DescribedGroupMember


def test_the_lag_of_a_member_is_summed_as_that_of_a_group():
    """As far as it is known; what lies after the log end counts as 0."""
    member = DescribedGroupMember("g_a", "jvm", {"t": 1}, "static", None, 2)
    for lags, total in (([5, None], 5), ([5, -3], 5), ([None], None), ([], 0)):
        (document,) = member_documents([member], [("g_a-0", lag) for lag in lags])
        assert document["lag"] == total
