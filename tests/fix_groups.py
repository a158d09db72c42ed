"""Groups as seen from outside."""

from collections.abc import Callable
from contextlib import closing

from tests.fix_waiting import eventually
from zkconsumer import ConsumerConfig
from zkconsumer.tools.groups import GroupDescription, describe_group
from zkconsumer.zookeeper.session import ZkSession


def describe_until(
    is_right: Callable[[GroupDescription], bool], config: ConsumerConfig, asked_with: ConsumerConfig | None = None
) -> GroupDescription:
    """Describe the group of ``config`` until that is right: where a broker is slow to answer, that is told instead.

    One that has to make its topic of offsets first may well be. ``asked_with`` is for the brokers, if not ``config``.
    """
    found: list[GroupDescription] = []
    with closing(ZkSession.from_config(config)) as session:
        session.open()

        def describe() -> bool:
            found.append(describe_group(session, asked_with or config, config.group_id))
            return is_right(found[-1])

        eventually(describe)
    return found[-1]
