"""Where the groups of a fleet are."""

from zkconsumer.operate.migrate.rules.fleetfacts import FleetState, whereabouts


def test_a_group_is_in_kafka_though_its_znodes_are_there():
    states = [FleetState.CONSUMED, FleetState.DONE, FleetState.WRITTEN, FleetState.CAME_BACK, FleetState.UNKNOWN]
    assert whereabouts(states) == {"in_kafka": 2, "waiting": 1, "in_zookeeper": 1, "unclear": 1}
