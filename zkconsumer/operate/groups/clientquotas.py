"""DescribeClientQuotas (KIP-546): the quotas of fetches as brokers report them; for tools."""

from __future__ import annotations

from typing import Any, Final

from zkconsumer.errors import ProtocolError
from zkconsumer.operate.groups.rules.quotas import CONSUMER_RATE, quota_path
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.kafkapython import load_kafka_python

_DESCRIBE_CLIENT_QUOTAS: Final = 48
_VERSIONS: Final = (0, 1)


def describe_quotas(connection: BrokerConnection) -> dict[str, float] | None:
    """The quotas of all users and client ids, in bytes per second and broker.

    Returns:
        Rates by the path that the quota has in a cluster with ZooKeeper; empty if this client has no permission for the
        operation DescribeConfigs on the cluster; None if the broker is older than 2.6, and does not know the request.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the answer is malformed, or the broker refuses; the message has the reason.
    """
    if not connection.knows(_DESCRIBE_CLIENT_QUOTAS):
        return None
    load_kafka_python()
    from kafka.protocol.admin import DescribeClientQuotasRequest

    version = connection.version(_DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", *_VERSIONS)
    answer: Any = connection.call(DescribeClientQuotasRequest(version=version, components=[], strict=False))
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return {}
    if answer.error_code:
        raise ProtocolError(f"{connection} does not report quotas: {error_name(answer.error_code)}")
    rate_by_path: dict[str, float] = {}
    for entry in answer.entries or ():
        path = quota_path({part.entity_type: part.entity_name for part in entry.entity})
        rates = [quota.value for quota in entry.values if quota.key == CONSUMER_RATE]
        if path is not None and rates:
            rate_by_path[path] = rates[0]
    return rate_by_path
