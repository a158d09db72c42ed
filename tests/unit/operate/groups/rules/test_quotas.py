"""Names of quotas: those of ZooKeeper's paths, and those that brokers report."""

import doctest

import pytest

from zkconsumer.operate.groups.rules import quotas
from zkconsumer.operate.groups.rules.quotas import quota_path, quota_title, quotas_that_apply


def test_examples():
    assert doctest.testmod(quotas).failed == 0


@pytest.mark.parametrize(
    ("entity", "path", "title"),
    [
        ({"client-id": "a b"}, "/config/clients/a%20b", "client-id a b"),
        ({"client-id": None}, "/config/clients/<default>", "client-id <default>"),
        ({"user": "u/clients/x"}, "/config/users/u%2Fclients%2Fx", "user u/clients/x"),
        ({"user": None}, "/config/users/<default>", "user <default>"),
        ({"client-id": "c", "user": "~"}, "/config/users/%7E/clients/c", "user ~, client-id c"),
    ],
)
def test_names(entity, path, title):
    assert (quota_path(entity), quota_title(path)) == (path, title)


@pytest.mark.parametrize("entity", [{}, {"ip": "127.0.0.1"}, {"ip": None, "user": "u"}])
def test_quotas_of_others_have_no_path(entity):
    assert quota_path(entity) is None


def test_quotas_that_may_apply_are_sorted():
    users = [f"/config/users/{name}" for name in "fbdaec"]
    assert quotas_that_apply([*users, "/config/clients/g"], None, "g") == ["/config/clients/g", *sorted(users)]
