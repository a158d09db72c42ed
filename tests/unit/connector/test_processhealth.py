"""A consumer's health according to its metrics page."""

from zkconsumer.connector.processhealth import health_of


def page(connected=1.0, delivering=1.0, closed=0.0, group="g", rebalancing=0.0):
    labels = f'client_id="c",group_id="{group}"'
    return (
        "# TYPE zkconsumer_zookeeper_connected gauge\n"
        f"zkconsumer_zookeeper_connected{{{labels}}} {connected}\n"
        "# TYPE zkconsumer_delivering gauge\n"
        f"zkconsumer_delivering{{{labels}}} {delivering}\n"
        "# TYPE zkconsumer_member_state gauge\n"
        f'zkconsumer_member_state{{{labels},state="joined"}} {1 - closed - rebalancing}\n'
        f'zkconsumer_member_state{{{labels},state="rebalancing"}} {rebalancing}\n'
        f'zkconsumer_member_state{{{labels},state="closed"}} {closed}\n'
    )


def test_a_consumer_in_its_group_is_healthy():
    assert health_of(page()) == ([], [])


def test_a_consumer_that_waits_for_zookeeper_is_healthy():
    problems, notes = health_of(page(connected=0.0, delivering=0.0, group="orders"))
    assert problems == []
    assert [note.split(" ")[:3] for note in notes] == [["group", "orders:", "not"], ["group", "orders:", "delivers"]]


def test_a_consumer_that_rebalances_is_healthy():
    assert health_of(page(rebalancing=1.0)) == ([], ["group g: joins the group or rebalances"])


def test_a_consumer_that_has_left_its_group_is_unhealthy():
    (problem,), _ = health_of(page(closed=1.0, group="orders"))
    assert problem.startswith("group orders: has left the group")


def test_pages_without_a_consumer_are_unhealthy():
    for other in ("", "# TYPE up gauge\nup 1\n", "<html>not found</html>", page().replace("delivering", "delivered")):
        (problem,), _ = health_of(other)
        assert "check that metrics.port is the port of a consumer" in problem
