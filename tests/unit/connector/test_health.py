"""A consumer's health according to its metrics page."""

import pytest

from zkconsumer.connector.health import health_problems


def page(connected=1.0, delivering=1.0, closed=0.0, group="g"):
    labels = f'client_id="c",group_id="{group}"'
    return (
        "# TYPE zkconsumer_zookeeper_connected gauge\n"
        f"zkconsumer_zookeeper_connected{{{labels}}} {connected}\n"
        "# TYPE zkconsumer_delivering gauge\n"
        f"zkconsumer_delivering{{{labels}}} {delivering}\n"
        "# TYPE zkconsumer_member_state gauge\n"
        f'zkconsumer_member_state{{{labels},state="joined"}} {1 - closed}\n'
        f'zkconsumer_member_state{{{labels},state="closed"}} {closed}\n'
    )


def test_a_connected_consumer_that_delivers_is_healthy():
    assert health_problems(page()) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"connected": 0.0}, "not connected to ZooKeeper"),
        ({"delivering": 0.0}, "delivers no records"),
        ({"closed": 1.0}, "has left the group"),
    ],
)
def test_each_gauge_makes_a_consumer_unhealthy(change, expected):
    (problem,) = health_problems(page(**change, group="orders"))
    assert problem.startswith("group orders: ")
    assert expected in problem


def test_pages_without_a_consumer_are_unhealthy():
    for other in ("", "# TYPE up gauge\nup 1\n", "<html>not found</html>", page().replace("delivering", "delivered")):
        (problem,) = health_problems(other)
        assert "check that metrics.port is the port of a consumer" in problem
