"""What a migration sees of its ends."""


def test_equal_reads_of_a_source_do_not_say_that_its_consumers_are_stopped(servers):
    """They pause between writes, and write nothing if there is nothing to do."""
    servers.begin("storm:/s/id", "kafka:g")
    (guard,) = [guard for guard in servers.plan.guards if guard.name == "source"]
    assert (guard.holds, guard.text) == (True, "two reads of the offsets of storm:/s/id are equal")
