"""Which znodes lock members out."""

import pytest

from zkconsumer.operate.groups.rules.znodeaccess import LockedOut, locked_out, principals

OPEN = ((31, "world", "anyone"),)
ADMINS = ((31, "sasl", "admin"), (1, "world", "anyone"))
APPS = ((31, "sasl", "app"), (1, "world", "anyone"))
WRITERS = ((2, "sasl", "app"), (1, "world", "anyone"))
CREATORS = ((4, "sasl", "app"),)
NOBODY = ((1, "world", "anyone"),)


def test_principals_are_those_with_all_permissions():
    assert principals([OPEN, ADMINS, APPS, WRITERS]) == {"sasl:admin", "sasl:app"}
    assert principals([OPEN]) == frozenset()


@pytest.mark.parametrize(
    ("permission", "locked"), [("write", {"/admins", "/creators"}), ("create", {"/admins", "/writers"})]
)
def test_nodes_without_the_permission_are_locked(permission, locked):
    siblings = {"/open": OPEN, "/admins": ADMINS, "/writers": WRITERS, "/creators": CREATORS, "/apps": APPS}
    assert locked_out(siblings, permission, ["sasl:app"]).keys() == locked


def test_members_that_are_unknown_are_those_of_most_nodes():
    assert locked_out({"/a": APPS, "/b": APPS, "/c": ADMINS}, "write") == {"/c": LockedOut(("sasl:admin",), "sasl:app")}
    assert locked_out({"/a": ADMINS, "/b": APPS, "/c": OPEN}, "write") == {
        "/a": LockedOut(("sasl:admin",), "world:anyone"),
        "/b": LockedOut(("sasl:app",), "world:anyone"),
    }
    assert locked_out({"/a": ADMINS, "/b": APPS}, "write") == {"/a": LockedOut(("sasl:admin",), "sasl:app")}


def test_nodes_that_nobody_may_use():
    assert locked_out({"/a": NOBODY}, "write") == {"/a": LockedOut((), "no principal")}
    assert locked_out({"/a": NOBODY}, "write", ["sasl:a"]) == {"/a": LockedOut((), "sasl:a")}
    assert locked_out({}, "write") == {}


def test_principals_are_named_in_order():
    several = tuple((31, "sasl", name) for name in "fbdaec")
    expected = [f"sasl:{letter}" for letter in "zyxwvu"]
    assert locked_out({"/a": several}, "write", expected) == {
        "/a": LockedOut(tuple(f"sasl:{letter}" for letter in "abcdef"), " or ".join(sorted(expected)))
    }
